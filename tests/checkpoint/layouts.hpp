#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/pieces.hpp"

/// Logical tensors and random ways to lay them out on ranks, for tests. Elements are taken one by
/// one through their indices: slow, and nothing of the code under test.
namespace sw::testing {

struct LogicalTensor {
  StateTensor about;
  std::vector<std::byte> values;  ///< whole, row major
};

/// A piece with memory of its own.
struct OwnedPiece {
  StateTensor about;
  PieceRange range;
  std::vector<std::byte> values;
};

/// What each rank holds.
using RankPieces = std::vector<std::vector<OwnedPiece>>;

/// Flat indices in the whole tensor of the elements of a range, in order.
[[nodiscard]] std::vector<std::int64_t> element_indices(const Shape& whole,
                                                        const PieceRange& range);

/// The values that a rank with this range must hold.
[[nodiscard]] std::vector<std::byte> values_of(const LogicalTensor& tensor,
                                               const PieceRange& range);

/// A few tensors of uneven shapes and all states, with random bytes.
[[nodiscard]] std::vector<LogicalTensor> random_tensors(std::mt19937_64& random);

/// Cuts every tensor by boxes on random dims (as tp, pp do) and the boxes into flat slices at
/// multiples of a block (as ZeRO does), and deals the pieces out to `ranks`.
[[nodiscard]] RankPieces random_layout(const std::vector<LogicalTensor>& tensors, int ranks,
                                       std::mt19937_64& random);

/// Views of one rank's pieces, as the writer takes them.
[[nodiscard]] std::vector<Piece> views(const std::vector<OwnedPiece>& pieces);

}  // namespace sw::testing
