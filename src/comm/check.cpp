#include "comm/check.hpp"

#include <numeric>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "comm/reduce.hpp"
#include "comm/traffic.hpp"

namespace sw {
namespace {

struct Bytes {
  const std::byte* begin = nullptr;
  std::int64_t size = 0;
};

bool overlap(const Bytes& a, const Bytes& b) {
  return a.size > 0 && b.size > 0 && a.begin < b.begin + b.size && b.begin < a.begin + a.size;
}

class Check {
 public:
  Check(const Collective& collective, const RankContext& context, std::string_view group, int ranks,
        int rank)
      : collective_(collective),
        context_(context),
        ranks_(ranks),
        rank_(rank),
        where_(
            fmt::format("{} '{}' on group {}", to_text(collective.kind), collective.name, group)) {}

  void run() const {
    check_supported();
    check_peer();
    if (collective_.kind == CollectiveKind::AllToAll) {
      check_all_to_all();
      return;
    }
    for (const Segment& segment : collective_.segments) {
      check_segment(segment);
    }
  }

 private:
  void check_supported() const {
    if (algorithm_for(collective_.kind, collective_.algorithm) != collective_.algorithm) {
      throw ConfigError(fmt::format(
          "{}: there is no ring form; ask traffic's algorithm_for, or set direct", where_));
    }
    const bool reduces = collective_.kind == CollectiveKind::AllReduce ||
                         collective_.kind == CollectiveKind::ReduceScatter;
    if (reduces && !can_reduce(collective_.dtype)) {
      throw ConfigError(fmt::format(
          "{}: {} is not reduced in this version; reduce float32, float64, bfloat16, int64, int32 "
          "or uint64",
          where_, to_text(collective_.dtype)));
    }
  }

  void check_peer() const {
    const bool pair =
        collective_.kind == CollectiveKind::Send || collective_.kind == CollectiveKind::Receive;
    if (pair || collective_.kind == CollectiveKind::Broadcast) {
      SW_CHECK(collective_.peer >= 0 && collective_.peer < ranks_, "{}: peer {} of {} ranks",
               where_, collective_.peer, ranks_);
      SW_CHECK(!pair || collective_.peer != rank_, "{}: rank {} is its own peer", where_, rank_);
    }
  }

  void check_all_to_all() const {
    if (collective_.output_room >= 0) {
      check_room();
      return;
    }
    const auto count = static_cast<std::size_t>(ranks_);
    SW_CHECK(collective_.segments.size() == 1 && collective_.segments[0].outer == 1,
             "{}: takes one segment with outer = 1", where_);
    SW_CHECK(collective_.input_counts.size() == count && collective_.output_counts.size() == count,
             "{}: {} input and {} output counts for {} ranks", where_,
             collective_.input_counts.size(), collective_.output_counts.size(), ranks_);
    const Segment& segment = collective_.segments[0];
    const auto r = static_cast<std::size_t>(rank_);
    SW_CHECK(collective_.input_counts[r] == collective_.output_counts[r],
             "{}: sends {} elements to itself and expects {}", where_, collective_.input_counts[r],
             collective_.output_counts[r]);
    const Bytes input{segment.input, total(collective_.input_counts)};
    const Bytes output{segment.output, total(collective_.output_counts)};
    check_buffer(input);
    check_buffer(output);
    SW_CHECK(!overlap(input, output), "{}: input and output overlap", where_);
  }

  /// Counts come later: here only where they may lie.
  void check_room() const {
    SW_CHECK(collective_.segments.size() == 1 && collective_.input_counts.empty() &&
                 collective_.output_counts.empty(),
             "{}: takes one segment, and its counts with each run", where_);
    const Segment& segment = collective_.segments[0];
    const std::int64_t size = size_of(collective_.dtype);
    const Bytes input{segment.input, elements({segment.length, size})};
    const Bytes output{segment.output, elements({collective_.output_room, size})};
    check_buffer(input);
    check_buffer(output);
    SW_CHECK(!overlap(input, output), "{}: input and output overlap", where_);
  }

  [[nodiscard]] std::int64_t total(const std::vector<std::int64_t>& counts) const {
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) {
      SW_CHECK(count >= 0, "{}: a count of {}", where_, count);
      sum += elements({count, size_of(collective_.dtype)});
    }
    return sum;
  }

  void check_segment(const Segment& segment) const {
    const std::int64_t size = size_of(collective_.dtype);
    const std::int64_t whole = elements({segment.outer, segment.length, segment.trailing, size});
    const Range part = split(segment.length, ranks_, rank_);
    const std::int64_t part_bytes = segment.outer * part.size() * segment.trailing * size;
    const CollectiveKind kind = collective_.kind;
    const bool scatters = kind == CollectiveKind::ReduceScatter;
    const bool gathers = kind == CollectiveKind::AllGather;
    const bool reads = kind != CollectiveKind::Receive &&
                       (kind != CollectiveKind::Broadcast || collective_.peer == rank_);
    const bool writes = kind != CollectiveKind::Send;
    const Bytes input{segment.input, reads ? (gathers ? part_bytes : whole) : 0};
    const Bytes output{segment.output, writes ? (scatters ? part_bytes : whole) : 0};
    check_buffer(input);
    check_buffer(output);
    if (overlap(input, output)) {
      const std::int64_t offset = part.begin * segment.trailing * size;
      const bool same = input.begin == output.begin && !scatters && !gathers;
      const bool part_in_place =
          segment.outer == 1 && ((scatters && output.begin == input.begin + offset) ||
                                 (gathers && input.begin == output.begin + offset));
      SW_CHECK(same || part_in_place || ranks_ == 1, "{}: input and output overlap", where_);
    }
  }

  void check_buffer(const Bytes& bytes) const {
    if (bytes.size == 0) {
      return;
    }
    SW_CHECK(bytes.begin != nullptr, "{}: no buffer of {} bytes", where_, bytes.size);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.begin);
    SW_CHECK(address % static_cast<std::uintptr_t>(size_of(collective_.dtype)) == 0,
             "{}: a buffer is not aligned to its {} elements", where_, to_text(collective_.dtype));
    SW_CHECK(context_.inside_window(bytes.begin, bytes.size),
             "{}: {} bytes are not inside this rank's window of {} bytes", where_, bytes.size,
             context_.windows[static_cast<std::size_t>(context_.rank)].bytes);
  }

  const Collective& collective_;
  const RankContext& context_;
  int ranks_;
  int rank_;
  std::string where_;
};

}  // namespace

void check_collective(const Collective& collective, const RankContext& context,
                      std::string_view group, int ranks, int rank) {
  Check(collective, context, group, ranks, rank).run();
}

}  // namespace sw
