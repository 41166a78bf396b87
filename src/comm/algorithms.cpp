#include "comm/algorithms.hpp"

#include <utility>

#include "base/shape.hpp"

namespace sw {
namespace {

/// The geometry of one segment in a group.
class Parts {
 public:
  Parts(const Extent& extent, int segment, int ranks)
      : extent_(extent), segment_(segment), ranks_(ranks) {}

  /// Part `part` where it lies inside a whole buffer.
  [[nodiscard]] Strip in_whole(Side buffer, int part) const {
    return {buffer, segment_, range(part).begin * extent_.trailing,
            extent_.length * extent_.trailing};
  }
  /// Part `part` as a buffer of its own.
  [[nodiscard]] Strip dense(Side buffer, int part) const {
    return {buffer, segment_, 0, range(part).size() * extent_.trailing};
  }
  [[nodiscard]] Pull move(int part, Strip target, std::vector<Source> operands) const {
    return {target, std::move(operands), extent_.outer, range(part).size() * extent_.trailing};
  }
  [[nodiscard]] int wrap(int part) const { return ((part % ranks_) + ranks_) % ranks_; }

 private:
  [[nodiscard]] Range range(int part) const { return split(extent_.length, ranks_, part); }

  Extent extent_;
  int segment_;
  int ranks_;
};

/// All ranks' part `part`, added in rank order.
Pull sum_of_all(const Parts& parts, int ranks, int part, Strip target) {
  std::vector<Source> operands;
  for (int member = 0; member < ranks; ++member) {
    operands.push_back({member, parts.in_whole(Side::Input, part)});
  }
  return parts.move(part, target, std::move(operands));
}

void direct_all_reduce(const Parts& parts, int ranks, int rank, std::vector<Round>& rounds) {
  rounds[0].push_back(sum_of_all(parts, ranks, rank, parts.in_whole(Side::Output, rank)));
  for (int step = 1; step < ranks; ++step) {
    const int from = parts.wrap(rank + step);
    const Strip piece = parts.in_whole(Side::Output, from);
    rounds[1].push_back(parts.move(from, piece, {{from, piece}}));
  }
}

void direct_reduce_scatter(const Parts& parts, int ranks, int rank, std::vector<Round>& rounds) {
  rounds[0].push_back(sum_of_all(parts, ranks, rank, parts.dense(Side::Output, rank)));
}

void direct_all_gather(const Parts& parts, int ranks, int rank, std::vector<Round>& rounds) {
  for (int step = 0; step < ranks; ++step) {
    const int from = parts.wrap(rank + step);
    rounds[0].push_back(parts.move(from, parts.in_whole(Side::Output, from),
                                   {{from, parts.dense(Side::Input, from)}}));
  }
}

/// Part rank - 1 starts at its owner and comes round; every rank adds its own and passes it on, so
/// rank r ends with part r + 1; then the finished parts go round.
void ring_all_reduce(const Parts& parts, int ranks, int rank, std::vector<Round>& rounds) {
  const int left = parts.wrap(rank - 1);
  for (int step = 0; step < ranks - 1; ++step) {
    const int part = parts.wrap(rank - 1 - step);
    const Side source = step == 0 ? Side::Input : Side::Output;
    rounds[static_cast<std::size_t>(step)].push_back(parts.move(
        part, parts.in_whole(Side::Output, part),
        {{left, parts.in_whole(source, part)}, {rank, parts.in_whole(Side::Input, part)}}));
  }
  for (int step = 0; step < ranks - 1; ++step) {
    const int part = parts.wrap(rank - step);
    const Strip piece = parts.in_whole(Side::Output, part);
    rounds[static_cast<std::size_t>(ranks - 1 + step)].push_back(
        parts.move(part, piece, {{left, piece}}));
  }
}

/// Partial sums are kept in the input, so that no scratch memory is needed.
void ring_reduce_scatter(const Parts& parts, int ranks, int rank, std::vector<Round>& rounds) {
  const int left = parts.wrap(rank - 1);
  for (int step = 0; step < ranks - 1; ++step) {
    const int part = parts.wrap(rank - 2 - step);
    const Strip piece = parts.in_whole(Side::Input, part);
    const bool last = part == rank;
    rounds[static_cast<std::size_t>(step)].push_back(parts.move(
        part, last ? parts.dense(Side::Output, part) : piece, {{left, piece}, {rank, piece}}));
  }
}

void ring_all_gather(const Parts& parts, int ranks, int rank, std::vector<Round>& rounds) {
  const int left = parts.wrap(rank - 1);
  rounds[0].push_back(parts.move(rank, parts.in_whole(Side::Output, rank),
                                 {{rank, parts.dense(Side::Input, rank)}}));
  for (int step = 0; step < ranks - 1; ++step) {
    const int part = parts.wrap(rank - 1 - step);
    const Strip whole = parts.in_whole(Side::Output, part);
    rounds[static_cast<std::size_t>(step)].push_back(
        parts.move(part, whole, {{left, step == 0 ? parts.dense(Side::Input, part) : whole}}));
  }
}

Pull copy_whole(const Extent& extent, int segment, int from) {
  const std::int64_t row = extent.length * extent.trailing;
  return {
      {Side::Output, segment, 0, row}, {{from, {Side::Input, segment, 0, row}}}, extent.outer, row};
}

void add_segment(const CollectiveSizes& sizes, int segment, int ranks, int rank,
                 std::vector<Round>& rounds) {
  const Extent& extent = sizes.segments[static_cast<std::size_t>(segment)];
  const Parts parts(extent, segment, ranks);
  const bool ring = sizes.algorithm == Algorithm::Ring;
  switch (sizes.kind) {
    case CollectiveKind::AllReduce:
      return (ring ? ring_all_reduce : direct_all_reduce)(parts, ranks, rank, rounds);
    case CollectiveKind::ReduceScatter:
      return (ring ? ring_reduce_scatter : direct_reduce_scatter)(parts, ranks, rank, rounds);
    case CollectiveKind::AllGather:
      return (ring ? ring_all_gather : direct_all_gather)(parts, ranks, rank, rounds);
    case CollectiveKind::Broadcast:
    case CollectiveKind::Receive:
      rounds[0].push_back(copy_whole(extent, segment, sizes.peer));
      return;
    case CollectiveKind::AllToAll: {
      const std::int64_t count = extent.length;
      rounds[0].push_back({{Side::Output, segment, 0, count},
                           {{segment, {Side::Input, rank, 0, count}}},
                           1,
                           count});
      return;
    }
    case CollectiveKind::Send:
    case CollectiveKind::Barrier:
      return;
  }
}

/// Piece `index` of a move cut into `pieces`.
Pull piece_of(const Pull& move, std::int64_t pieces, std::int64_t index) {
  const bool one_row = move.rows == 1;
  const Range range = split(one_row ? move.columns : move.rows, pieces, index);
  Pull piece = move;
  (one_row ? piece.columns : piece.rows) = range.size();
  const auto shift = [&](Strip& strip) {
    strip.offset += range.begin * (one_row ? 1 : strip.stride);
  };
  shift(piece.target);
  for (Source& operand : piece.operands) {
    shift(operand.piece);
  }
  return piece;
}

bool is_empty(const Pull& move) { return move.rows * move.columns == 0; }

/// Rows that touch become one.
void merge_rows(Pull& move) {
  bool dense = move.target.stride == move.columns;
  for (const Source& operand : move.operands) {
    dense = dense && operand.piece.stride == move.columns;
  }
  if (dense) {
    move.columns *= move.rows;
    move.rows = 1;
  }
}

}  // namespace

std::vector<Round> plan_rounds(const CollectiveSizes& sizes, int ranks, int rank) {
  CollectiveSizes own = sizes;
  int count = sw::rounds(own.kind, own.algorithm, ranks);
  if (ranks == 1 && own.kind != CollectiveKind::Barrier) {
    own.algorithm = Algorithm::Direct;
    count = 1;  // no traffic, but the input is still copied to the output
  }
  std::vector<Round> rounds(static_cast<std::size_t>(count));
  for (int segment = 0; segment < static_cast<int>(own.segments.size()); ++segment) {
    add_segment(own, segment, ranks, rank, rounds);
  }
  for (Round& round : rounds) {
    std::erase_if(round, is_empty);
    for (Pull& move : round) {
      merge_rows(move);
    }
  }
  return rounds;
}

std::vector<Round> in_pieces(const std::vector<Round>& rounds, std::int64_t pieces) {
  const auto count = static_cast<std::int64_t>(rounds.size());
  std::vector<Round> cut(static_cast<std::size_t>(count + pieces - 1));
  for (std::int64_t at = 0; at < count + pieces - 1; ++at) {
    for (std::int64_t i = count - 1; i >= 0; --i) {
      const std::int64_t piece = at - i;
      if (piece < 0 || piece >= pieces) continue;
      for (const Pull& move : rounds[static_cast<std::size_t>(i)]) {
        const Pull part = piece_of(move, pieces, piece);
        if (!is_empty(part)) cut[static_cast<std::size_t>(at)].push_back(part);
      }
    }
  }
  return cut;
}

}  // namespace sw
