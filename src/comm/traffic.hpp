#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.hpp"

/// What a collective costs on the wire, from plain values: planner and simulator ask here, and the
/// tests hold the counters of every backend to it.
namespace sw {

/// The whole buffer of one segment, [outer][length][trailing] elements.
struct Extent {
  std::int64_t outer = 1;
  std::int64_t length = 0;
  std::int64_t trailing = 1;
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// A collective without its buffers.
struct CollectiveSizes {
  CollectiveKind kind = CollectiveKind::Barrier;
  Algorithm algorithm = Algorithm::Direct;
  DType dtype = DType::Float32;
  std::vector<Extent> segments = {};
  int peer = -1;  ///< root of a broadcast; other end of a send or receive
  std::vector<std::int64_t> input_counts = {};  ///< all_to_all: elements to each rank
  friend bool operator==(const CollectiveSizes&, const CollectiveSizes&) = default;
};
[[nodiscard]] CollectiveSizes sizes_of(const Collective& collective);

/// The algorithm that a run's choice comes to: Ring exists for all_reduce, reduce_scatter and
/// all_gather; the other kinds have one form, Direct.
[[nodiscard]] Algorithm algorithm_for(CollectiveKind kind, Algorithm wanted);

/// Bytes that leave `rank` (in the group) for others, in a group of `ranks`; W is the whole buffer
/// and w(r) the part of rank r:
///   direct   all_reduce W - w(r) + (n-1) w(r), reduce_scatter W - w(r), all_gather (n-1) w(r)
///   ring     all_reduce 2W - w(r+1) - w(r+2), reduce_scatter W - w(r), all_gather W - w(r+1)
///   broadcast (n-1) W on the root; send W; all_to_all what is not for itself
/// Over all ranks both algorithms send 2(n-1)W, (n-1)W and (n-1)W.
[[nodiscard]] std::int64_t sent_bytes(const CollectiveSizes& sizes, int ranks, int rank);

/// Steps in which data moves, each behind a synchronization of the group.
[[nodiscard]] int rounds(CollectiveKind kind, Algorithm algorithm, int ranks);

}  // namespace sw
