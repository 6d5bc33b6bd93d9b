// Runs workgroups of GPU kernels on a processor; the kernels are compiled as C++. Each thread has a stack of its own (a
// coroutine); at a barrier it switches to the next thread. From one barrier to the next threads run alternately in
// ascending and descending order, so that a missing barrier leads to wrong results. If the first thread of a group
// reaches no barrier, the group is a plain loop of calls.
//
// After this file and before the kernels come the words of their language (metal.h, cuda.h, hip.h); after the kernels
// comes a function for each of them, which calls host::launch to run it for all groups of a grid.
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#define GL_HOST

struct gl_index { unsigned x, y, z; };

namespace host {
const unsigned MOST = 1024;
const size_t STACK = 256 << 10;
enum { MET = 0, APART = 1, OUTSIDE = 2, NO_MEMORY = 3 };
struct Thread {
  jmp_buf here;
  ucontext_t context;
  unsigned waits, exchanges;
  bool started, done;
};
static Thread threads[MOST];
static char* stacks;
static jmp_buf scheduler;
static unsigned current, size;
static gl_index local, group, index;
static bool alone;
static int wrong;
static void (*body)();
// The values that threads exchange. There are two sets of them, because a thread may be ahead of another one by one
// exchange.
static char shown[2][MOST][64] __attribute__((aligned(64)));
static void* const* buffers;
static const uint32_t* scalars;

// c plus the dot product of two words of four signed bytes, with wrapping.
static inline int dot(unsigned a, unsigned b, int c) {
  unsigned sum = c;
  for (int i = 0; i < 32; i += 8) sum += (unsigned)((int)(signed char)(a >> i) * (int)(signed char)(b >> i));
  return (int)sum;
}

// Arguments of kernels, which convert to whatever pointer or 4-byte type a parameter has.
struct Buffer { void* at; template <class T> operator T*() const { return (T*)at; } };
struct Word { uint32_t bits; template <class T> operator T() const { T x; memcpy(&x, &bits, sizeof x); return x; } };

__attribute__((noinline)) static void wait(unsigned kind) {
  if (alone) {
    wrong = APART;
    return;
  }
  threads[current].waits = kind;
  if (!_setjmp(threads[current].here)) _longjmp(scheduler, 1);
}

static void barrier() { wait(1); }

// Publishes a value to the group. Gives the number of the set in which seen() reads the values of other threads.
template <class T> static unsigned show(T x) {
  unsigned lot = threads[current].exchanges++ & 1;
  static_assert(sizeof x <= sizeof shown[0][0], "a value that is too large");
  memcpy(shown[lot][current], &x, sizeof x);
  wait(2);
  return lot;
}

template <class T> static T seen(unsigned lot, unsigned by) {
  T x;
  if (by >= size) wrong = OUTSIDE, by = current;
  memcpy(&x, shown[lot][by], sizeof x);
  return x;
}

template <class T> static T exchange(T x, unsigned bits) {
  unsigned lot = show(x);
  return seen<T>(lot, current ^ bits);
}

// The function of each stack: runs the kernel for its thread, once for every group.
static void run() {
  for (;;) {
    threads[current].exchanges = 0;
    body();
    threads[current].done = true;
    if (!_setjmp(threads[current].here)) _longjmp(scheduler, 1);
  }
}

static void place(unsigned i) {
  current = i;
  index = gl_index{i % local.x, i / local.x % local.y, i / (local.x * local.y)};
}

// Resumes a thread until it waits or ends; a thread that has ended starts anew.
__attribute__((noinline)) static void resume(unsigned i) {
  place(i);
  Thread& t = threads[i];
  t.done = false;
  if (_setjmp(scheduler)) return;
  if (t.started) _longjmp(t.here, 1);
  t.started = true;
  getcontext(&t.context);
  t.context.uc_stack.ss_sp = stacks + (size_t)i * STACK;
  t.context.uc_stack.ss_size = STACK;
  t.context.uc_link = 0;
  makecontext(&t.context, run, 0);
  setcontext(&t.context);
}

static void run_group() {
  resume(0);
  if (threads[0].done) {
    alone = true;
    for (unsigned i = 1; i < size; i++) place(i), body();
    alone = false;
    return;
  }
  for (unsigned i = 1; i < size; i++) resume(i);
  for (unsigned turn = 1;; turn++) {
    unsigned done = 0;
    for (unsigned i = 0; i < size; i++) {
      done += threads[i].done;
      if (threads[i].waits != threads[0].waits) wrong = APART;
    }
    if (done == size) break;
    if (done) wrong = APART;
    if (wrong) break;
    for (unsigned i = 0; i < size; i++) resume(turn & 1 ? size - 1 - i : i);
  }
  for (unsigned i = 0; i < size; i++) threads[i].started &= threads[i].done;
}

static int launch(void (*kernel)(), const unsigned* shape, void* const* views, const uint32_t* words, const unsigned* grid) {
  local = gl_index{shape[0], shape[1], shape[2]};
  size = local.x * local.y * local.z;
  if (size > MOST) return OUTSIDE;
  if (!stacks) {
    void* at = mmap(0, STACK * MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NO_MEMORY;
    stacks = (char*)at;
  }
  body = kernel, buffers = views, scalars = words, wrong = MET;
  for (group.z = 0; group.z < grid[2]; group.z++)
    for (group.y = 0; group.y < grid[1]; group.y++)
      for (group.x = 0; group.x < grid[0]; group.x++) {
        run_group();
        if (wrong) return wrong;
      }
  return MET;
}

__attribute__((destructor)) static void give_back() {
  if (stacks) munmap(stacks, STACK * MOST);
}
}  // namespace host
