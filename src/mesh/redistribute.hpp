#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mesh/mesh.hpp"

namespace sw {

/// One move between two shardings of a tensor: a collective over a set of axes, or a slice (no
/// communication). What stands in `collective_between` is all that exists.
struct Move {
  std::optional<CollectiveKind> collective;  ///< none: a slice
  ReduceOp op = ReduceOp::Sum;
  std::vector<int>
      axes;  ///< mesh axes, ascending: more than one when steps of the same kind are folded
  Placement from, to;  ///< on each of these axes (slots: on the first)
  Sharding before, after;
  bool detour = false;  ///< gathered only because an inner axis is in the way
};

/// The row of the table "from -> to": the collective, or none for a slice. Empty
/// optional-of-optional when the move does not exist (R -> P, S -> P, Pmax -> S; slots come from
/// the cut that they return to, and from nowhere else).
struct TableRow {
  bool exists = false;
  std::optional<CollectiveKind> collective;
};
[[nodiscard]] TableRow collective_between(Placement from, Placement to);

/// Bytes that a rank sends to change one axis of n ranks; W = bytes of the local buffer with this
/// axis gathered. Infinite when the move does not exist.
[[nodiscard]] double move_bytes(Placement from, Placement to, int n, double gathered_bytes);

/// The moves from one sharding to another, in the order: slices, reduce-scatters, all-reduces,
/// all-to-alls, all-gathers; folded. Empty when they are equal; nothing when there is no way.
[[nodiscard]] std::optional<std::vector<Move>> path(const Sharding& from, const Sharding& to,
                                                    const Mesh& mesh);

/// Bytes sent along a path by the rank with the largest shards, for a tensor of `whole` shape with
/// `element_bytes`.
[[nodiscard]] double path_bytes(const std::vector<Move>& moves, const Shape& whole,
                                std::int64_t element_bytes, const Mesh& mesh);

}  // namespace sw
