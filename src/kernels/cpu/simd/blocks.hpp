#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"

/// Small matrices in cache: products and softmax steps of attention.
namespace sw::kernels::simd {

/// Columns of a block's right operand and result come in groups of so many: pad to a multiple.
inline constexpr std::int64_t kColumnGroup = 16;
/// Keys of a block of attention.
inline constexpr std::int64_t kKeys = 64;

/// c[rows, columns] = (or +=) a[rows, depth] b[depth, columns]. Element (i, k) of a stands at
/// a[i * a_row + k * a_column]; b and c are row-major; `columns` is a multiple of kColumnGroup.
struct BlockProduct {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0;
  std::int64_t a_column = 1;
  const float* b = nullptr;
  std::int64_t b_row = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
  bool accumulate = false;
};
void multiply(const BlockProduct& product);

/// Rows of float32 or bfloat16 numbers.
struct StoredRows {
  const std::byte* data = nullptr;
  DType dtype = DType::Float32;
  std::int64_t row = 0;  ///< elements from one to the next
  std::int64_t count = 0;
  std::int64_t size = 0;
};
/// Times `factor` into float32 rows of `to_row` numbers, zero beyond their size.
void load_rows(const StoredRows& from, float factor, float* to, std::int64_t to_row);
/// to[j, i] = element j of row i, in float32; columns of `to` from `count` to `to_row` are left
/// alone.
void turn_rows(const StoredRows& from, float* to, std::int64_t to_row);

/// Which keys of a block a query sees: the same document and lowest < position <= its own.
struct KeyBlock {
  std::int32_t position[kKeys];
  std::int32_t document[kKeys];
};
struct Query {
  std::int32_t position = 0;
  std::int32_t document = 0;
  std::int32_t lowest = 0;
};
/// Of `count` keys from `first` on: sets to -infinity the scores of what a query does not see. Here
/// and below, `scores` are those of the first of these keys, rows lie kKeys apart, and `count` is a
/// multiple of kColumnGroup.
void hide(float* scores, const Query* queries, std::int64_t rows, const KeyBlock& keys,
          std::int64_t first, std::int64_t count);

/// One step of the running softmax over some keys: `scores` become weights exp(score - most),
/// `most` and `sum` are updated, and the rows of `output` [rows, width] are scaled to the new
/// maximum.
void softmax_step(float* scores, std::int64_t rows, std::int64_t count, float* most, float* sum,
                  float* output, std::int64_t width);

/// The backward of some keys: `scores` become weights p = exp(score - lse), and `d_weights` become
/// d_scores = p * (d_weights - delta).
void softmax_grad(float* scores, float* d_weights, std::int64_t rows, std::int64_t count,
                  const float* lse, const float* delta);

}  // namespace sw::kernels::simd
