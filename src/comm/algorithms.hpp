#pragma once

#include <cstdint>
#include <vector>

#include "comm/traffic.hpp"

/// Algorithms as data: which rank pulls what from whom, round by round. Nothing here knows a
/// transport.
namespace sw {

enum class Side : std::uint8_t { Input, Output };

/// Rows of elements inside a segment's input or output; row i starts at offset + i * stride.
struct Strip {
  Side buffer = Side::Input;
  int segment = 0;
  std::int64_t offset = 0;  ///< elements
  std::int64_t stride = 0;  ///< elements
};

struct Source {
  int member = 0;
  Strip piece;
};

/// target = operands[0] op operands[1] op …, in this order; one operand is a copy. The target lies
/// in this rank's own buffers.
struct Pull {
  Strip target;
  std::vector<Source> operands;
  std::int64_t rows = 1;
  std::int64_t columns = 0;
};
using Round = std::vector<Pull>;

/// The rounds of one rank. The group synchronizes before each round and after the last.
/// In an all_to_all, segment j is the piece to (input) and from (output) rank j, and `sizes` is not
/// asked for lengths: the pieces have `sizes.segments[j].length` elements on the *receiving* side.
/// For a send or receive the group is the pair.
[[nodiscard]] std::vector<Round> plan_rounds(const CollectiveSizes& sizes, int ranks, int rank);

/// The same moves with each cut into `pieces`, and round i of piece j done in round i + j: what one
/// round leaves in the caches is read in the next. Every rank must cut alike.
[[nodiscard]] std::vector<Round> in_pieces(const std::vector<Round>& rounds, std::int64_t pieces);

}  // namespace sw
