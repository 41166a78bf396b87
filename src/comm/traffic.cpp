#include "comm/traffic.hpp"

#include "base/shape.hpp"

namespace sw {
namespace {

std::int64_t whole_bytes(const Extent& extent, DType dtype) {
  return extent.outer * extent.length * extent.trailing * size_of(dtype);
}

std::int64_t part_bytes(const Extent& extent, DType dtype, int ranks, int rank) {
  const Range part = split(extent.length, ranks, rank % ranks);
  return extent.outer * part.size() * extent.trailing * size_of(dtype);
}

std::int64_t sent_of_segment(const CollectiveSizes& sizes, const Extent& extent, int ranks,
                             int rank) {
  const std::int64_t whole = whole_bytes(extent, sizes.dtype);
  const auto part = [&](int r) { return part_bytes(extent, sizes.dtype, ranks, r); };
  const bool ring = sizes.algorithm == Algorithm::Ring;
  switch (sizes.kind) {
    case CollectiveKind::AllReduce:
      return ring ? 2 * whole - part(rank + 1) - part(rank + 2)
                  : whole - part(rank) + (ranks - 1) * part(rank);
    case CollectiveKind::ReduceScatter:
      return whole - part(rank);
    case CollectiveKind::AllGather:
      return ring ? whole - part(rank + 1) : (ranks - 1) * part(rank);
    case CollectiveKind::Broadcast:
      return rank == sizes.peer ? (ranks - 1) * whole : 0;
    case CollectiveKind::Send:
      return whole;
    case CollectiveKind::AllToAll:
    case CollectiveKind::Receive:
    case CollectiveKind::Barrier:
      break;
  }
  return 0;
}

}  // namespace

CollectiveSizes sizes_of(const Collective& collective) {
  CollectiveSizes sizes{.kind = collective.kind,
                        .algorithm = collective.algorithm,
                        .dtype = collective.dtype,
                        .segments = {},
                        .peer = collective.peer,
                        .input_counts = collective.input_counts};
  for (const Segment& segment : collective.segments) {
    sizes.segments.push_back({segment.outer, segment.length, segment.trailing});
  }
  return sizes;
}

Algorithm algorithm_for(CollectiveKind kind, Algorithm wanted) {
  const bool has_ring = kind == CollectiveKind::AllReduce ||
                        kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::AllGather;
  return has_ring ? wanted : Algorithm::Direct;
}

std::int64_t sent_bytes(const CollectiveSizes& sizes, int ranks, int rank) {
  std::int64_t sent = 0;
  if (sizes.kind == CollectiveKind::AllToAll) {
    for (int other = 0; other < ranks; ++other) {
      sent += other == rank ? 0 : sizes.input_counts[static_cast<std::size_t>(other)];
    }
    return sent * size_of(sizes.dtype);
  }
  for (const Extent& extent : sizes.segments) {
    sent += sent_of_segment(sizes, extent, ranks, rank);
  }
  return sent;
}

int rounds(CollectiveKind kind, Algorithm algorithm, int ranks) {
  const bool ring = algorithm == Algorithm::Ring;
  if (ranks == 1 || kind == CollectiveKind::Barrier) {
    return 0;
  }
  if (kind == CollectiveKind::AllReduce) {
    return ring ? 2 * (ranks - 1) : 2;
  }
  return ring ? ranks - 1 : 1;
}

}  // namespace sw
