// Matrix products in tiles; weights are packed in the order in which a tile reads them.
#pragma once
#include <algorithm>

#include "team.h"
#include "vector.h"

// A weight matrix of `depth` rows as panels, [panels][depth][2 * LANES]. In bfloat16 pairs of rows alternate,
// [panels][depth / 2][2 * LANES][2], as the processor's dot products read them.
template <class T, class P>
struct Weight {
  P* packed = nullptr;
  long depth = 0;  // even in bfloat16

  P* panel(long number) const { return packed + number * depth * 2 * LANES<T>; }
};

// The rows of a packed matrix: an even number in bfloat16.
template <class P>
long deep(long size) {
  return sizeof(P) == 2 ? (size + 1) / 2 * 2 : size;
}

inline long blocks(long size, long block) { return (size + block - 1) / block; }

// The position of row k and column `lane` in a panel.
template <class T, class P>
inline long place(long k, long lane) {
  constexpr long width = 2 * LANES<T>;
  return sizeof(P) == 2 ? k / 2 * 2 * width + lane * 2 + k % 2 : k * width + lane;
}

// Fills half a panel, `side` 0 or 1, with `lanes` columns of a matrix of `depth` rows, whose row k starts at
// from + k * stride; the rest becomes 0.
template <class T, class P>
void pack_rows(P* panel, long side, const T* from, long stride, long depth, long lanes) {
  constexpr long L = LANES<T>;
  long k = 0;
  if (lanes >= L) {
    if constexpr (sizeof(P) == sizeof(T)) {
      for (; k < depth; ++k) store(panel + place<T, P>(k, side * L), load(from + k * stride));
    } else {
#if defined(__AVX512BF16__)
      for (; k + 1 < depth; k += 2) {
        __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + k * stride)));
        __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + (k + 1) * stride)));
        _mm512_storeu_si512(panel + place<T, P>(k, side * L), _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
      }
#endif
    }
  }
  for (; k < deep<P>(depth); ++k)
    for (long lane = 0; lane < L; ++lane)
      panel[place<T, P>(k, side * L + lane)] = k < depth && lane < lanes ? converted(from[k * stride + lane], P{}) : P(0);
}

// Fills a panel with a transposed matrix: row `first` + k of column `lane` is from[lane * stride + k]; the rest is left
// as it is. `first` is even.
template <class T, class P>
void pack_columns(P* panel, const T* from, long stride, long first, long depth, long lanes) {
  constexpr long L = LANES<T>, block = 16;  // rows at a time, so the written lines stay in the cache
  for (long start = 0; start < depth; start += block)
    for (long lane = 0; lane < std::min(lanes, 2 * L); ++lane) {
#if defined(__AVX512BF16__)
      if constexpr (sizeof(P) == 2)
        if (start + block <= depth) {
          std::uint32_t pairs[block / 2];
          store(reinterpret_cast<bfloat16*>(pairs), load(from + lane * stride + start));
          for (long pair = 0; pair < block / 2; ++pair)
            std::memcpy(panel + place<T, P>(first + start + 2 * pair, lane), pairs + pair, sizeof *pairs);
          continue;
        }
#endif
      for (long k = start; k < std::min(start + block, depth); ++k)
        panel[place<T, P>(first + k, lane)] = converted(from[lane * stride + k], P{});
    }
}

// out [rows, 2 * LANES] (+)= a [rows, depth] times a panel.
template <int ROWS, class T>
void multiply_rows(const T* a, long stride, const T* panel, long depth, T* out, bool add) {
  using V = Vector<T>;
  constexpr int lanes = LANES<T>;
  V total[ROWS][2];
  for (int row = 0; row < ROWS; ++row)
    for (int side = 0; side < 2; ++side)
      total[row][side] = add ? load(out + (row * 2 + side) * lanes) : V{};
  for (long k = 0; k < depth; ++k) {
    V left = load(panel + k * 2 * lanes), right = load(panel + k * 2 * lanes + lanes);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) {
      V value = a[row * stride + k] - V{};
      total[row][0] += value * left;
      total[row][1] += value * right;
    }
  }
  for (int row = 0; row < ROWS; ++row)
    for (int side = 0; side < 2; ++side) store(out + (row * 2 + side) * lanes, total[row][side]);
}

#if defined(__AVX512BF16__)
template <int ROWS, class T>
void multiply_rows(const bfloat16* a, long stride, const bfloat16* panel, long depth, float* out, bool add) {
  __m512 total[ROWS][2];
  for (int row = 0; row < ROWS; ++row)
    for (int side = 0; side < 2; ++side)
      total[row][side] = add ? _mm512_loadu_ps(out + (row * 2 + side) * 16) : _mm512_setzero_ps();
  for (long k = 0; k < depth; k += 2) {
    __m512bh left = (__m512bh)_mm512_loadu_si512(panel + k * 32);
    __m512bh right = (__m512bh)_mm512_loadu_si512(panel + k * 32 + 32);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; ++row) {
      std::int32_t two;
      std::memcpy(&two, a + row * stride + k, sizeof two);
      __m512bh value = (__m512bh)_mm512_set1_epi32(two);
      total[row][0] = _mm512_dpbf16_ps(total[row][0], value, left);
      total[row][1] = _mm512_dpbf16_ps(total[row][1], value, right);
    }
  }
  for (int row = 0; row < ROWS; ++row)
    for (int side = 0; side < 2; ++side) _mm512_storeu_ps(out + (row * 2 + side) * 16, total[row][side]);
}
#endif

template <class T, class P, int ROWS = TILE_ROWS>
void multiply(long rows, const P* a, long stride, const P* panel, long depth, T* out, bool add) {
  if (rows == ROWS) return multiply_rows<ROWS, T>(a, stride, panel, depth, out, add);
  if constexpr (ROWS > 1) multiply<T, P, ROWS - 1>(rows, a, stride, panel, depth, out, add);
}

// Calls tile(first row, rows) for blocks of rows of about equal size.
template <class Tile>
void for_row_blocks(long rows, Tile tile) {
  long count = blocks(rows, TILE_ROWS);
  for (long number = 0; number < count; ++number) {
    long first = rows * number / count;
    tile(first, rows * (number + 1) / count - first);
  }
}

// Calls product(panel, row, rows, out) for each block of rows and each of a thread's panels, then each(row, feature,
// value) for each of its vectors below `width`.
template <class T, class Product, class Each>
void over_columns(long rows, long width, Part mine, Product product, Each each) {
  constexpr long L = LANES<T>;
  T out[TILE_ROWS * 2 * L];
  for (long panel = mine.begin; panel < mine.end; ++panel)
    for_row_blocks(rows, [&](long row, long count) {
      product(panel, row, count, out);
      for (long b = 0; b < count; ++b)
        for (long side = 0; side < 2; ++side) {
          const long f = (panel * 2 + side) * L;
          if (f < width) each(row + b, f, load(out + (b * 2 + side) * L));
        }
    });
}
