#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"

/// The geometry of checkpoints: which elements of a logical tensor lie where.
namespace sw {

/// What a piece of a logical tensor covers: the box (a range per dim) that a rank's shard occupies
/// in the whole tensor, and a half-open range of elements, flat and row major *inside that box*.
/// For a scalar the box has no ranges and one element.
struct PieceRange {
  std::vector<Range> box;
  Range elements;
  friend bool operator==(const PieceRange&, const PieceRange&) = default;
};

/// All of a tensor.
[[nodiscard]] PieceRange whole_range(const Shape& whole);
/// Elements of a box; 0 when a side is empty.
[[nodiscard]] std::int64_t box_elements(const PieceRange& range);
/// Why `range` is not a part of a tensor of shape `whole`; nothing when it is.
[[nodiscard]] std::optional<std::string> misfit(const PieceRange& range, const Shape& whole);

/// One rank's part of one logical tensor, in the rank's memory.
struct Piece {
  std::string tensor;
  std::string state;  ///< "weight", "momentum", "variance"
  DType dtype = DType::Float32;
  Shape whole;
  PieceRange range;
  const std::byte* data = nullptr;  ///< range.elements.size() elements
};

/// Elements that lie side by side both in the whole tensor and in a piece.
struct Run {
  std::int64_t whole = 0;  ///< where they begin in the whole tensor, flat and row major
  std::int64_t local = 0;  ///< where they begin in the piece's own data
  std::int64_t count = 0;
};

/// The runs of a piece, one by one and in ascending order (of both offsets), as long as possible
/// within a row of the box.
class Runs {
 public:
  /// `range` must fit `whole`.
  Runs(const Shape& whole, const PieceRange& range);
  /// The next run; nothing at the end.
  [[nodiscard]] std::optional<Run> next();
  /// Leaves out the rows that end before `whole`, an element of the whole tensor.
  void skip_to(std::int64_t whole);

 private:
  [[nodiscard]] std::int64_t whole_offset(std::int64_t row) const;

  std::vector<std::int64_t> outer_sizes_;    ///< of the box, the dims outside a row
  std::vector<std::int64_t> outer_begins_;   ///< of the box in the whole tensor
  std::vector<std::int64_t> outer_strides_;  ///< of the whole tensor
  std::int64_t row_begin_ = 0;               ///< first element of a row, within its dims
  std::int64_t row_ = 1;                     ///< elements of a row
  Range elements_;
  std::int64_t at_ = 0;  ///< next element, flat inside the box
};

/// Copies every element that both ranges hold; returns how many. `from` and `to` are the data of
/// the two ranges.
std::int64_t copy_common(const Shape& whole, std::int64_t element_bytes, const PieceRange& from,
                         const std::byte* from_data, const PieceRange& to, std::byte* to_data);

/// Why the ranges do not cover every element exactly once; nothing when they do.
[[nodiscard]] std::optional<std::string> cover_fault(const Shape& whole,
                                                     std::span<const PieceRange> ranges);

}  // namespace sw
