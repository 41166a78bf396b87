#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.hpp"

/// The innermost parts of a matrix product: operands packed into strips, and tiles of the result
/// out of strips.
namespace sw::kernels::simd {

/// Rows of the left operand that a strip holds.
inline constexpr std::int64_t kStripRows = 6;
/// A multiple of the columns of a strip of the right operand on every instruction set.
inline constexpr std::int64_t kColumnMultiple = 64;
/// Columns of the right operand that a strip holds on this machine.
[[nodiscard]] std::int64_t strip_columns();
/// "AVX2": what this machine runs of the instruction sets compiled in.
[[nodiscard]] std::string instruction_set();

/// What packed operands are made of, 32 bits each: a float32, or two bfloat16 that follow each
/// other in k. Both give the same bits but for what underflows and for which NaN comes out
/// (docs/decisions/0030-bfloat16-in-pairs.md).
enum class Factors : std::uint8_t { Floats, Pairs };
/// Pairs where this machine multiplies two bfloat16 pairs in one instruction; elsewhere they cost
/// more than float32.
[[nodiscard]] Factors fastest_factors();
/// Factors that `depth` numbers of k take; an odd last one is a pair with zero.
[[nodiscard]] constexpr std::int64_t packed_depth(Factors factors, std::int64_t depth) {
  return factors == Factors::Pairs ? (depth + 1) / 2 : depth;
}

/// A part of an operand, [count, depth] with the summed letter k second, as it is stored: in rows
/// along k, or in rows along the other letter.
struct Unpacked {
  const std::byte* data = nullptr;
  DType dtype = DType::Float32;  ///< or BFloat16
  std::int64_t row = 0;          ///< elements from one stored row to the next
  bool rows_along_k = false;
  /// The stored rows that there are, counted from `data`; null: one after the other.
  const std::int32_t* listed = nullptr;
  std::int64_t count = 0;
  std::int64_t depth = 0;
};
/// Packs into strips of kStripRows (of strip_columns()), each stored [packed depth, strip], one
/// after the other; what the last one lacks is zero. Pairs are made of bfloat16 only.
void pack_left(const Unpacked& from, Factors factors, float* to);
void pack_right(const Unpacked& from, Factors factors, float* to);

/// c[rows, columns] = (or +=) the product of packed operands.
struct Tile {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;  ///< packed
  Factors factors = Factors::Floats;
  const float* left = nullptr;
  const float* right = nullptr;
  float* c = nullptr;
  std::int64_t c_row = 0;
  bool add = false;
  Unpacked next;  ///< fetched into a cache meanwhile: what is packed after this
};
void multiply_tile(const Tile& tile);

}  // namespace sw::kernels::simd
