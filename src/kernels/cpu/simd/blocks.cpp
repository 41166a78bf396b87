#include "kernels/cpu/simd/blocks.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/blocks.cpp"
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sw::kernels::simd::HWY_NAMESPACE {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows x (vectors * lanes) elements of the result, kept in registers over the whole depth. `p` is
/// a copy: of a reference the compiler would read every size again after each store.
template <int kRows, int kVectors>
HWY_INLINE void multiply_tile(BlockProduct p, std::int64_t row, std::int64_t column) {
  const float* a = p.a + row * p.a_row;
  const float* b = p.b + column;
  float* c = p.c + row * p.c_row + column;
  const std::int64_t step = lanes();
  Floats sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = p.accumulate ? load(c + r * p.c_row + v * step) : hn::Zero(FloatTag());
    }
  }
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < p.depth; ++k) {
    Floats right[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + v * step);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const Floats left = all(a[r * p.a_row]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
    a += p.a_column;
    b += p.b_row;
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(sum[r][v], c + r * p.c_row + v * step);
  }
}

template <int kVectors>
HWY_INLINE void multiply_columns(const BlockProduct& p, std::int64_t column) {
  std::int64_t row = 0;
  for (; row + 6 <= p.rows; row += 6) multiply_tile<6, kVectors>(p, row, column);
  for (; row + 4 <= p.rows; row += 4) multiply_tile<4, kVectors>(p, row, column);
  for (; row < p.rows; ++row) multiply_tile<1, kVectors>(p, row, column);
}

void multiply(const BlockProduct& p) {
  std::int64_t column = 0;
  for (; column + 2 * lanes() <= p.columns; column += 2 * lanes()) multiply_columns<2>(p, column);
  for (; column < p.columns; column += lanes()) multiply_columns<1>(p, column);
}

/// Fetches the rows that follow `row` by as far as memory is away.
template <typename T>
HWY_INLINE void fetch_ahead(const StoredRows& from, std::int64_t row) {
  constexpr std::int64_t kAhead = 8;
  if (row + kAhead >= from.count) return;
  const auto* next = from.data + (row + kAhead) * from.row * static_cast<std::int64_t>(sizeof(T));
  const auto bytes = from.size * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t at = 0; at < bytes; at += 64) hwy::Prefetch(next + at);
}

template <typename T>
HWY_INLINE void load_rows_of(const StoredRows& from, float factor, float* to, std::int64_t to_row) {
  const auto* data = reinterpret_cast<const T*>(from.data);
  const std::int64_t step = lanes();
  const Floats f = all(factor);
  for (std::int64_t i = 0; i < from.count; ++i) {
    const T* row = data + i * from.row;
    float* out = to + i * to_row;
    fetch_ahead<T>(from, i);
    std::int64_t j = 0;
    for (; j + 4 * step <= from.size; j += 4 * step) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        store(hn::Mul(f, load_as_floats(FloatTag(), row + j + v * step)), out + j + v * step);
      }
    }
    for (; j + step <= from.size; j += step) {
      store(hn::Mul(f, load_as_floats(FloatTag(), row + j)), out + j);
    }
    for (; j < from.size; ++j) out[j] = factor * as_float(row[j]);
    for (; j < to_row; ++j) out[j] = 0.0F;
  }
}

void load_rows(const StoredRows& from, float factor, float* to, std::int64_t to_row) {
  if (from.dtype == DType::Float32) {
    load_rows_of<float>(from, factor, to, to_row);
  } else {
    load_rows_of<BFloat16>(from, factor, to, to_row);
  }
}

template <typename T>
HWY_INLINE void turn_rows_of(const StoredRows& from, float* to, std::int64_t to_row) {
  const auto* data = reinterpret_cast<const T*>(from.data);
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; i + 4 <= from.count; i += 4) {
    const T* row = data + i * from.row;
    for (int r = 0; r < 4; ++r) fetch_ahead<T>(from, i + r);
    turn_four(row, row + from.row, row + 2 * from.row, row + 3 * from.row, from.size, to + i,
              to_row);
  }
#endif
  for (; i < from.count; ++i) {
    const T* row = data + i * from.row;
    for (std::int64_t j = 0; j < from.size; ++j) to[j * to_row + i] = as_float(row[j]);
  }
}

void turn_rows(const StoredRows& from, float* to, std::int64_t to_row) {
  if (from.dtype == DType::Float32) {
    turn_rows_of<float>(from, to, to_row);
  } else {
    turn_rows_of<BFloat16>(from, to, to_row);
  }
}

void hide(float* scores, const Query* queries, std::int64_t rows, const KeyBlock& keys,
          std::int64_t first, std::int64_t count) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> integers;
  const Floats hidden = all(-kInfinity);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* s = scores + row * kKeys;
    const auto position = hn::Set(integers, queries[row].position);
    const auto document = hn::Set(integers, queries[row].document);
    const auto lowest = hn::Set(integers, queries[row].lowest);
    for (std::int64_t i = 0; i < count; i += lanes()) {
      const auto key = hn::LoadU(integers, keys.position + first + i);
      const auto same = hn::Eq(hn::LoadU(integers, keys.document + first + i), document);
      const auto in_reach = hn::AndNot(hn::VecFromMask(integers, hn::Gt(key, position)),
                                       hn::VecFromMask(integers, hn::Gt(key, lowest)));
      const auto seen = hn::And(hn::VecFromMask(integers, same), in_reach);
      const auto mask = hn::RebindMask(d, hn::MaskFromVec(seen));
      store(hn::IfThenElse(mask, load(s + i), hidden), s + i);
    }
  }
}

/// Of numbers: a NaN may be lost, and makes its weight NaN and so its row.
HWY_INLINE float largest_score(const float* scores, std::int64_t count) {
  Floats most = load(scores);
  for (std::int64_t i = lanes(); i < count; i += lanes()) most = hn::Max(most, load(scores + i));
  return hn::GetLane(hn::MaxOfLanes(FloatTag(), most));
}

/// body(i) for i in [0, count) by fours of vectors, and the rest by ones, whose number it takes.
template <typename Body>
HWY_INLINE void for_vectors(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + 4 * lanes() <= count; i += 4 * lanes()) {
    body(i, std::integral_constant<int, 4>());
  }
  for (; i < count; i += lanes()) body(i, std::integral_constant<int, 1>());
}

/// scores[i] = exp(scores[i] - shift), and their sum.
HWY_INLINE float to_weights(float* scores, std::int64_t count, Floats shift) {
  Floats sum = hn::Zero(FloatTag());
  for_vectors(count, [&](std::int64_t first, auto number) HWY_ATTR {
    Floats weights[number()];
    for (int v = 0; v < number(); ++v) {
      weights[v] = hn::Sub(load(scores + first + v * lanes()), shift);
    }
    exponentials_up_to_88(weights);
    for (int v = 0; v < number(); ++v) {
      sum = hn::Add(sum, weights[v]);
      store(weights[v], scores + first + v * lanes());
    }
  });
  return sum_of(sum);
}

/// As many rows at a time as a vector holds, so that their maxima and factors are vectors too.
void softmax_step(float* scores, std::int64_t rows, std::int64_t count, float* most, float* sum,
                  float* output, std::int64_t width) {
  const FloatTag d;
  const Floats lowest = all(-kInfinity);
  HWY_ALIGN float tops[hn::MaxLanes(d)];
  HWY_ALIGN float factors[hn::MaxLanes(d)];
  HWY_ALIGN float totals[hn::MaxLanes(d)] = {};
  for (std::int64_t first = 0; first < rows; first += lanes()) {
    const std::int64_t some = std::min(lanes(), rows - first);
    float* s = scores + first * kKeys;
    store(lowest, tops);
    for (std::int64_t row = 0; row < some; ++row) tops[row] = largest_score(s + row * kKeys, count);
    const Floats before = load_some(most + first, some);
    const Floats after = hn::Max(before, load(tops));
    const Floats factor = hn::IfThenElse(hn::Eq(before, after), all(1.0F),
                                         exponential_up_to_88(hn::Sub(before, after)));
    store(factor, factors);
    // A query that sees nothing yet: exp(-infinity - 0) is 0.
    store(hn::IfThenZeroElse(hn::Eq(after, lowest), after), tops);
    for (std::int64_t row = 0; row < some; ++row) {
      totals[row] = to_weights(s + row * kKeys, count, all(tops[row]));
      if (factors[row] == 1.0F) continue;
      const Floats f = all(factors[row]);
      float* o = output + (first + row) * width;
      map(
          width, o, [f](Floats v) HWY_ATTR { return hn::Mul(v, f); }, o);
    }
    store_some(after, most + first, some);
    store_some(hn::MulAdd(load_some(sum + first, some), factor, load(totals)), sum + first, some);
  }
}

void softmax_grad(float* scores, float* d_weights, std::int64_t rows, std::int64_t count,
                  const float* lse, const float* delta) {
  for (std::int64_t row = 0; row < rows; ++row) {
    float* s = scores + row * kKeys;
    float* g = d_weights + row * kKeys;
    const Floats shift = all(lse[row]);
    const Floats center = all(delta[row]);
    for_vectors(count, [&](std::int64_t first, auto number) HWY_ATTR {
      Floats weights[number()];
      for (int v = 0; v < number(); ++v) {
        weights[v] = hn::Sub(load(s + first + v * lanes()), shift);
      }
      exponentials_up_to_88(weights);
      for (int v = 0; v < number(); ++v) {
        float* to = g + first + v * lanes();
        store(weights[v], s + first + v * lanes());
        store(hn::Mul(weights[v], hn::Sub(load(to), center)), to);
      }
    });
  }
}

}  // namespace sw::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sw::kernels::simd {

HWY_EXPORT(multiply);
HWY_EXPORT(load_rows);
HWY_EXPORT(turn_rows);
HWY_EXPORT(hide);
HWY_EXPORT(softmax_step);
HWY_EXPORT(softmax_grad);

void multiply(const BlockProduct& product) { HWY_DYNAMIC_DISPATCH(multiply)(product); }
void load_rows(const StoredRows& from, float factor, float* to, std::int64_t to_row) {
  HWY_DYNAMIC_DISPATCH(load_rows)(from, factor, to, to_row);
}
void turn_rows(const StoredRows& from, float* to, std::int64_t to_row) {
  HWY_DYNAMIC_DISPATCH(turn_rows)(from, to, to_row);
}
void hide(float* scores, const Query* queries, std::int64_t rows, const KeyBlock& keys,
          std::int64_t first, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(hide)(scores, queries, rows, keys, first, count);
}
void softmax_step(float* scores, std::int64_t rows, std::int64_t count, float* most, float* sum,
                  float* output, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(softmax_step)(scores, rows, count, most, sum, output, width);
}
void softmax_grad(float* scores, float* d_weights, std::int64_t rows, std::int64_t count,
                  const float* lse, const float* delta) {
  HWY_DYNAMIC_DISPATCH(softmax_grad)(scores, d_weights, rows, count, lse, delta);
}

}  // namespace sw::kernels::simd
#endif
