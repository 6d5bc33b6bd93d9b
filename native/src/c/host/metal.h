// Defines the words of Metal's shading language for kernels that run on a processor. Address spaces are removed;
// attributes of parameters are ignored.
#define kernel extern "C"
#define device
#define constant const
#define threadgroup static
#define thread
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

namespace metal {
template <class T, int N> struct vec;
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  vec() = default;
  vec(T x, T y) : x(x), y(y) {}
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  vec() = default;
  vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
};
#define GL_OPERATOR(O) \
  template <class T> static inline vec<T, 2> operator O(vec<T, 2> a, vec<T, 2> b) { \
    return vec<T, 2>(a.x O b.x, a.y O b.y); \
  } \
  template <class T> static inline vec<T, 4> operator O(vec<T, 4> a, vec<T, 4> b) { \
    return vec<T, 4>(a.x O b.x, a.y O b.y, a.z O b.z, a.w O b.w); \
  }
GL_OPERATOR(+) GL_OPERATOR(-) GL_OPERATOR(*) GL_OPERATOR(/)
template <class T> static inline vec<T, 2> operator-(vec<T, 2> a) { return vec<T, 2>(-a.x, -a.y); }
template <class T> static inline vec<T, 4> operator-(vec<T, 4> a) { return vec<T, 4>(-a.x, -a.y, -a.z, -a.w); }
#define GL_VECTORS(T) typedef vec<T, 2> T##2; typedef vec<T, 4> T##4;
GL_VECTORS(char) GL_VECTORS(short) GL_VECTORS(int) GL_VECTORS(long) GL_VECTORS(uchar) GL_VECTORS(ushort)
GL_VECTORS(uint) GL_VECTORS(ulong) GL_VECTORS(half) GL_VECTORS(float)
typedef gl_index uint3;
template <class T, class U> static inline T as_type(U x) { return __builtin_bit_cast(T, x); }
static inline float trunc(float x) { return __builtin_truncf(x); }
namespace precise { static inline float sqrt(float x) { return __builtin_sqrtf(x); } }
enum class mem_flags { mem_threadgroup };
static inline void threadgroup_barrier(mem_flags) { host::barrier(); }
template <class T> static inline T simd_shuffle_xor(T x, ushort bits) { return host::exchange(x, bits); }

struct bfloat {
  ushort bits;
  operator float() const { return __builtin_bit_cast(float, (uint)bits << 16); }
};

// A thread's part of an 8 x 8 matrix: two adjacent elements of a row.
template <class T, int R, int C> struct simdgroup_matrix {
  T elements[2];
  T* thread_elements() { return elements; }
};

// The bits of the number of the thread that holds an element, from the lowest: bit 1 of the column, bits 0 and 1 of the
// row, bit 2 of the column, bit 2 of the row.
template <class T> static inline float simdgroup_element(unsigned lot, int which, unsigned row, unsigned column) {
  unsigned lane = (column >> 1 & 1) | (row & 3) << 1 | (column >> 2) << 3 | (row >> 2) << 4;
  struct Both { T of[2][2]; };
  return (float)host::seen<Both>(lot, host::current / 32 * 32 + lane).of[which][column & 1];
}

template <class T>
static inline void simdgroup_multiply_accumulate(simdgroup_matrix<float, 8, 8>& d, simdgroup_matrix<T, 8, 8> a,
                                                 simdgroup_matrix<T, 8, 8> b, simdgroup_matrix<float, 8, 8> c) {
  struct Both { T of[2][2]; } both = {{{a.elements[0], a.elements[1]}, {b.elements[0], b.elements[1]}}};
  unsigned lot = host::show(both), lane = host::current % 32;
  unsigned row = (lane >> 1 & 3) | (lane >> 4) << 2, column = (lane & 1) << 1 | (lane >> 3 & 1) << 2;
  for (unsigned i = 0; i < 2; i++) {
    float sum = c.elements[i];
    for (unsigned k = 0; k < 8; k++)
      sum += simdgroup_element<T>(lot, 0, row, k) * simdgroup_element<T>(lot, 1, k, column + i);
    d.elements[i] = sum;
  }
}
}  // namespace metal
