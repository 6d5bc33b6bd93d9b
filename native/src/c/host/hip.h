// Defines the words of HIP C++ that the printer uses, for kernels that run on a processor.
#define GL_FN static inline
#define GL_SHARED static
#define GL_KERNEL(N) extern "C" void
#define gl_group_x() (host::group.x)
#define gl_group_y() (host::group.y)
#define gl_group_z() (host::group.z)
#define gl_thread_x() (host::index.x)
#define gl_thread_y() (host::index.y)
#define gl_thread_z() (host::index.z)
#define gl_barrier host::barrier
#define gl_exchange(x, bits) host::exchange(x, bits)
#define gl_lane() (host::current % 32)
#define gl_other_row(x) host::exchange(x, 16u)

// The wave matrix product of RDNA 3 according to its ISA ("Wave Matrix Multiply Accumulate"): a thread holds a row of
// the left factor and a column of the right one, which the other half of the wave holds as well, and every second row
// of a column of the product.
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) \
  host::wmma(a, b, c, [](auto x) { return (float)x; })
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) \
  host::wmma(a, b, c, [](short x) { return __builtin_bit_cast(float, (unsigned)(unsigned short)x << 16); })
namespace host {
template <class A, class C, class W> static C wmma(A a, A b, C c, W widen) {
  struct Both { A a, b; };
  unsigned lot = show(Both{a, b}), first = current / 32 * 32, lane = current % 32;
  Both other = seen<Both>(lot, current ^ 16);
  if (memcmp(&other.a, &a, sizeof a) || memcmp(&other.b, &b, sizeof b)) wrong = APART;
  for (unsigned i = 0; i < 8; i++) {
    A row = seen<Both>(lot, first + 2 * i + lane / 16).a;
    for (unsigned k = 0; k < 16; k++) c[i] += widen(row[k]) * widen(b[k]);
  }
  return c;
}
}  // namespace host
