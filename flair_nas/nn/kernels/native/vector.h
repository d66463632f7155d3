// Vectors as wide as the processor's registers, and functions of them, in the vector extensions of GCC and Clang.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
constexpr int TILE_ROWS = 12;  // times two vectors, and two of weights: 26 of 32 registers
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
constexpr int TILE_ROWS = 6;  // 14 of 16 registers
#elif defined(__aarch64__)
constexpr int VECTOR_BYTES = 16;
constexpr int TILE_ROWS = 12;
#else
constexpr int VECTOR_BYTES = 16;
constexpr int TILE_ROWS = 6;
#endif

using bfloat16 = std::uint16_t;  // its bits; all computation is in float

template <class T>
struct Of;
template <>
struct Of<float> {
  typedef float V __attribute__((vector_size(VECTOR_BYTES)));
  typedef std::int32_t I __attribute__((vector_size(VECTOR_BYTES)));
};
template <>
struct Of<double> {
  typedef double V __attribute__((vector_size(VECTOR_BYTES)));
};
template <class T>
using Vector = typename Of<T>::V;
template <class T>
constexpr int LANES = VECTOR_BYTES / sizeof(T);

// --- loading and storing, with rounding to nearest even, as PyTorch does ---

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
inline void store(T* to, Vector<T> value) {
  std::memcpy(to, &value, sizeof value);
}

template <class T>
inline Vector<T> load_as(const T* from) {
  return load(from);
}

template <class T>
inline Vector<T> load_as(const bfloat16* from) {
  typename Of<T>::I bits;
#if defined(__AVX512BF16__)
  bits = (typename Of<T>::I)_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))), 16);
#else
  for (int lane = 0; lane < LANES<T>; ++lane) bits[lane] = static_cast<std::int32_t>(std::uint32_t(from[lane]) << 16);
#endif
  return (Vector<T>)bits;
}

inline bfloat16 rounded(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return 0x7fc0;
  return static_cast<bfloat16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline void store(bfloat16* to, Vector<float> value) {
#if defined(__AVX512BF16__)
  __m256bh half = _mm512_cvtneps_pbh((__m512)value);
  std::memcpy(to, &half, sizeof half);
#else
  for (int lane = 0; lane < LANES<float>; ++lane) to[lane] = rounded(value[lane]);
#endif
}

inline float converted(float value, float) { return value; }
inline double converted(double value, double) { return value; }
inline bfloat16 converted(float value, bfloat16) { return rounded(value); }

template <class T>
inline T sum(Vector<T> value) {
  T total = 0;
  for (int lane = 0; lane < LANES<T>; ++lane) total += value[lane];
  return total;
}

// --- functions ---

// e^x to about one unit in the last place; x is clamped to [-87, 88]. NaN stays NaN.
inline Vector<float> exponential(Vector<float> x) {
  using I = Of<float>::I;
  constexpr float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  x = x < -87.0f ? Vector<float>{} - 87.0f : x;
  x = x > 88.0f ? Vector<float>{} + 88.0f : x;
  Vector<float> shifted = x * 1.44269504088896341f + shift;
  Vector<float> whole = shifted - shift;
  Vector<float> rest = x - whole * 0.693359375f;
  rest = rest + whole * 2.12194440e-4f;
  // the minimax polynomial of Cephes' expf
  Vector<float> y = rest * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * rest + 8.3334519073e-3f;
  y = y * rest + 4.1665795894e-2f;
  y = y * rest + 1.6666665459e-1f;
  y = y * rest + 5.0000001201e-1f;
  y = y * (rest * rest) + rest + 1.0f;
  return y * (Vector<float>)(((I)shifted - 0x4b400000 + 127) << 23);
}

inline Vector<double> exponential(Vector<double> x) {
  for (int lane = 0; lane < LANES<double>; ++lane) x[lane] = std::exp(x[lane]);
  return x;
}

template <class V>
inline V sigmoid(V x) {
  return 1 / (1 + exponential(-x));
}

// tanh from e^-x; near 0, where that cancels, the polynomial of Cephes' tanhf
inline Vector<float> tanh_from(Vector<float> x, Vector<float> e) {
  Vector<float> large = 2.0f / (1.0f + e * e) - 1.0f;
  Vector<float> square = x * x;
  Vector<float> y = square * -5.70498872745e-3f + 2.06390887954e-2f;
  y = y * square - 5.37397155531e-2f;
  y = y * square + 1.33314422036e-1f;
  y = y * square - 3.33332819422e-1f;
  Vector<float> small = x + x * square * y;
  return square < 0.390625f ? small : large;
}

template <class V>
inline V positive(V x) {
  return x < 0 ? V{} : x;  // NaN stays NaN
}

// e^-x, with x clamped to ±40, so the square does not overflow
inline Vector<float> falling(Vector<float> x) {
  Vector<float> bounded = x < -40.0f ? Vector<float>{} - 40.0f : x;
  bounded = bounded > 40.0f ? Vector<float>{} + 40.0f : bounded;
  return exponential(-bounded);
}
inline Vector<double> falling(Vector<double> x) { return exponential(-x); }

inline Vector<float> hyperbolic(Vector<float> x) { return tanh_from(x, falling(x)); }
inline Vector<double> hyperbolic(Vector<double> x) {
  for (int lane = 0; lane < LANES<double>; ++lane) x[lane] = std::tanh(x[lane]);
  return x;
}
