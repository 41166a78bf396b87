#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "comm/communicator.hpp"

/// What a rank shows the others of a prepared collective: what they check against their own, and
/// where its buffers are. Lies in the control block, so it holds no pointers.
namespace sw {

struct PublishedSegment {
  std::int64_t outer = 1;
  std::int64_t length = 0;  ///< all_to_all: elements sent to rank `index of this segment`
  std::int64_t trailing = 1;
  std::int64_t expected = 0;  ///< all_to_all: elements expected from that rank
  std::uint64_t input = 0;    ///< RankContext::publish
  std::uint64_t output = 0;
};

struct alignas(16) Record {
  std::uint64_t hash = 0;  ///< of all that must be equal on all members
  CollectiveKind kind = CollectiveKind::Barrier;
  ReduceOp op = ReduceOp::Sum;
  Algorithm algorithm = Algorithm::Direct;
  DType dtype = DType::Float32;
  std::int32_t peer = -1;
  std::int32_t segment_count = 0;
  std::array<char, 72> name = {};

  static std::int64_t bytes(std::size_t segments);
  [[nodiscard]] std::span<PublishedSegment> segments();
  [[nodiscard]] std::span<const PublishedSegment> segments() const;
};

/// Hash of kind, op, algorithm, dtype, root, name and sizes. A send and the receive it pairs with
/// have the same; names of the two ends may differ.
[[nodiscard]] std::uint64_t hash_of(const Record& record);

/// What a member shows on arrival, and what it expects the others to show: equal for all members of
/// a collective, unlike for the two ends of a send.
struct Ticket {
  std::uint64_t shown = 0;
  std::uint64_t expected = 0;
};
[[nodiscard]] Ticket ticket_of(const Record& record);

/// "all_reduce 'gradients'"
[[nodiscard]] std::string title(const Record& record);

/// What two records disagree in, from both sides: "rank 1 calls all_reduce 'x' (sum, float32,
/// direct) with segment 0 of [1][3][1], rank 2 calls …"; empty if they go together.
/// `left_index` and `right_index` are ranks in the group, `left` and `right` in the world.
struct Caller {
  const Record* record = nullptr;
  int index = 0;  ///< in the group
  int rank = 0;   ///< in the world
};
[[nodiscard]] std::string disagreement(const Caller& left, const Caller& right);

}  // namespace sw
