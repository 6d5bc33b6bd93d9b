// Defines the words of CUDA C++ for kernels that run on a processor.
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(N)
#define __shared__ static
#define blockIdx (host::group)
#define threadIdx (host::index)
#define __syncthreads host::barrier
#define __shfl_xor_sync(mask, x, bits) host::exchange(x, bits)
static inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
static inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
static inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
#define sqrtf __builtin_sqrtf
#define sqrt __builtin_sqrt
#define truncf __builtin_truncf
#define trunc __builtin_trunc
static inline float gl_from_f16(unsigned short x) { return (float)__builtin_bit_cast(_Float16, x); }
static inline unsigned short gl_to_f16(float x) { return __builtin_bit_cast(unsigned short, (_Float16)x); }

// mma.sync according to the PTX ISA ("Matrix Fragments for mma.m16n8k16", "for mma.m8n8k4"), whose tables give the
// thread and register of each element.
namespace host {
static inline float widen(unsigned bits, bool half) {
  return half ? gl_from_f16(bits) : __uint_as_float(bits << 16);
}

static void mma_half(float* c, const unsigned short* a, const unsigned short* b, bool half) {
  struct Both { unsigned short a[8], b[4]; } both;
  memcpy(both.a, a, sizeof both.a);
  memcpy(both.b, b, sizeof both.b);
  unsigned lot = show(both), first = current / 32 * 32, lane = current % 32;
  for (int i = 0; i < 4; i++) {
    unsigned row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
    for (unsigned k = 0; k < 16; k++) {
      unsigned ra = (k & 1) + (row >= 8 ? 2 : 0) + (k >= 8 ? 4 : 0), rb = (k & 1) + (k >= 8 ? 2 : 0);
      Both left = seen<Both>(lot, first + row % 8 * 4 + k % 8 / 2), right = seen<Both>(lot, first + column * 4 + k % 8 / 2);
      c[i] += widen(left.a[ra], half) * widen(right.b[rb], half);
    }
  }
}

#define GL_HALVES(NAME, HALF) \
  static inline void NAME(float& c0, float& c1, float& c2, float& c3, unsigned short a0, unsigned short a1, unsigned short a2, \
      unsigned short a3, unsigned short a4, unsigned short a5, unsigned short a6, unsigned short a7, unsigned short b0, \
      unsigned short b1, unsigned short b2, unsigned short b3) { \
    float c[] = {c0, c1, c2, c3}; \
    unsigned short a[] = {a0, a1, a2, a3, a4, a5, a6, a7}, b[] = {b0, b1, b2, b3}; \
    mma_half(c, a, b, HALF); \
    c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3]; \
  }
GL_HALVES(mma_f16, true)
GL_HALVES(mma_bf16, false)

static inline void mma_f64(double& c0, double& c1, double a0, double b0) {
  struct Both { double a, b; };
  unsigned lot = show(Both{a0, b0}), first = current / 32 * 32, lane = current % 32;
  for (unsigned i = 0; i < 2; i++) {
    for (unsigned k = 0; k < 4; k++) {
      double left = seen<Both>(lot, first + lane / 4 * 4 + k).a;
      double right = seen<Both>(lot, first + (lane % 4 * 2 + i) * 4 + k).b;
      (i ? c1 : c0) += left * right;
    }
  }
}
}  // namespace host
