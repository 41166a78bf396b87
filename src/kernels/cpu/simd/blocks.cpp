#include "kernels/cpu/simd/blocks.hpp"

#include <hwy/cache_control.h>

#include <cmath>
#include <limits>

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

template <typename T>
HWY_INLINE void load_rows_of(const StoredRows& from, float* to, std::int64_t to_row) {
  const auto* data = reinterpret_cast<const T*>(from.data);
  constexpr std::int64_t kAhead = 8;  // rows: as far as memory is away
  const auto bytes = from.size * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < from.count; ++i) {
    const T* row = data + i * from.row;
    float* out = to + i * to_row;
    if (i + kAhead < from.count) {
      const auto* next = reinterpret_cast<const std::byte*>(row + kAhead * from.row);
      for (std::int64_t at = 0; at < bytes; at += 64) hwy::Prefetch(next + at);
    }
    std::int64_t j = 0;
    for (; j + lanes() <= from.size; j += lanes()) {
      store(load_as_floats(FloatTag(), row + j), out + j);
    }
    for (; j < from.size; ++j) out[j] = as_float(row[j]);
    for (; j < to_row; ++j) out[j] = 0.0F;
  }
}

void load_rows(const StoredRows& from, float* to, std::int64_t to_row) {
  if (from.dtype == DType::Float32) {
    load_rows_of<float>(from, to, to_row);
  } else {
    load_rows_of<BFloat16>(from, to, to_row);
  }
}

void transpose(const float* from, std::int64_t from_row, std::int64_t rows, std::int64_t columns,
               float* to, std::int64_t to_row) {
  std::int64_t row = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; row + 4 <= rows; row += 4) {
    const float* first = from + row * from_row;
    turn_four(first, first + from_row, first + 2 * from_row, first + 3 * from_row, columns,
              to + row, to_row);
  }
#endif
  for (; row < rows; ++row) {
    for (std::int64_t c = 0; c < columns; ++c) to[c * to_row + row] = from[row * from_row + c];
  }
}

void hide(float* scores, const Query* queries, std::int64_t rows, const KeyBlock& keys) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> integers;
  const Floats hidden = all(-kInfinity);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* s = scores + row * kKeys;
    const auto position = hn::Set(integers, queries[row].position);
    const auto document = hn::Set(integers, queries[row].document);
    const auto lowest = hn::Set(integers, queries[row].lowest);
    for (std::int64_t i = 0; i < kKeys; i += lanes()) {
      const auto key = hn::LoadU(integers, keys.position + i);
      const auto same = hn::Eq(hn::LoadU(integers, keys.document + i), document);
      const auto in_reach = hn::AndNot(hn::VecFromMask(integers, hn::Gt(key, position)),
                                       hn::VecFromMask(integers, hn::Gt(key, lowest)));
      const auto seen = hn::And(hn::VecFromMask(integers, same), in_reach);
      const auto mask = hn::RebindMask(d, hn::MaskFromVec(seen));
      store(hn::IfThenElse(mask, load(s + i), hidden), s + i);
    }
  }
}

HWY_INLINE float largest_score(const float* scores) {
  const FloatTag d;
  Floats most = load(scores);
  for (std::int64_t i = lanes(); i < kKeys; i += lanes()) most = larger(most, load(scores + i));
  // A NaN in any lane must win: MaxOfLanes may drop it.
  const float result = hn::GetLane(hn::MaxOfLanes(d, most));
  return hn::AllTrue(d, hn::Eq(most, most)) ? result : std::numeric_limits<float>::quiet_NaN();
}

void softmax_step(float* scores, std::int64_t rows, float* most, float* sum, float* output,
                  std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    float* s = scores + row * kKeys;
    const float block = largest_score(s);
    const float top = most[row] >= block ? most[row] : block;
    if (top == -kInfinity) {  // this query sees nothing yet
      map(kKeys, s, []() HWY_ATTR { return hn::Zero(FloatTag()); });
      continue;
    }
    const Floats shift = all(top);
    Floats total = hn::Zero(FloatTag());
    for (std::int64_t i = 0; i < kKeys; i += lanes()) {
      const Floats weight = exponential(hn::Sub(load(s + i), shift));
      total = hn::Add(total, weight);
      store(weight, s + i);
    }
    if (top != most[row]) {
      const float shrink = std::exp(most[row] - top);
      const Floats factor = all(shrink);
      float* o = output + row * width;
      map(
          width, o, [factor](Floats v) HWY_ATTR { return hn::Mul(v, factor); }, o);
      sum[row] *= shrink;
      most[row] = top;
    }
    sum[row] += sum_of(total);
  }
}

void softmax_grad(float* scores, float* d_weights, std::int64_t rows, const float* lse,
                  const float* delta) {
  for (std::int64_t row = 0; row < rows; ++row) {
    float* s = scores + row * kKeys;
    float* g = d_weights + row * kKeys;
    const Floats shift = all(lse[row]);
    const Floats center = all(delta[row]);
    for (std::int64_t i = 0; i < kKeys; i += lanes()) {
      const Floats weight = exponential(hn::Sub(load(s + i), shift));
      store(weight, s + i);
      store(hn::Mul(weight, hn::Sub(load(g + i), center)), g + i);
    }
  }
}

}  // namespace sw::kernels::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sw::kernels::simd {

HWY_EXPORT(multiply);
HWY_EXPORT(load_rows);
HWY_EXPORT(transpose);
HWY_EXPORT(hide);
HWY_EXPORT(softmax_step);
HWY_EXPORT(softmax_grad);

void multiply(const BlockProduct& product) { HWY_DYNAMIC_DISPATCH(multiply)(product); }
void load_rows(const StoredRows& from, float* to, std::int64_t to_row) {
  HWY_DYNAMIC_DISPATCH(load_rows)(from, to, to_row);
}
void transpose(const float* from, std::int64_t from_row, std::int64_t rows, std::int64_t columns,
               float* to, std::int64_t to_row) {
  HWY_DYNAMIC_DISPATCH(transpose)(from, from_row, rows, columns, to, to_row);
}
void hide(float* scores, const Query* queries, std::int64_t rows, const KeyBlock& keys) {
  HWY_DYNAMIC_DISPATCH(hide)(scores, queries, rows, keys);
}
void softmax_step(float* scores, std::int64_t rows, float* most, float* sum, float* output,
                  std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(softmax_step)(scores, rows, most, sum, output, width);
}
void softmax_grad(float* scores, float* d_weights, std::int64_t rows, const float* lse,
                  const float* delta) {
  HWY_DYNAMIC_DISPATCH(softmax_grad)(scores, d_weights, rows, lse, delta);
}

}  // namespace sw::kernels::simd
#endif
