#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/algorithms.hpp"
#include "comm/communicator.hpp"
#include "comm/group.hpp"
#include "comm/rank_context.hpp"
#include "comm/reduce.hpp"

namespace sw {

/// A collective in which every rank pulls what it needs straight out of its peers' windows.
class PulledCollective final : public PreparedCollective {
 public:
  /// `collective` has passed check_collective; `peer` and ranks are those of `group`.
  PulledCollective(std::shared_ptr<RankContext> context, std::shared_ptr<GroupMember> group,
                   const Collective& collective);
  ~PulledCollective() override;
  PulledCollective(const PulledCollective&) = delete;
  PulledCollective& operator=(const PulledCollective&) = delete;

  void run() override;
  void set_ranges(std::span<const Range> inputs, std::span<const Range> outputs) override;
  [[nodiscard]] CollectiveResult result() const override { return result_; }
  void reset() override { result_ = {}; }

 private:
  /// Orders the moves of a call whose `bytes` over all members do not fit the caches.
  void spare_memory(CollectiveKind kind, std::int64_t bytes);
  void publish(const Collective& collective, const CollectiveSizes& sizes);
  void run_round(const Round& round);
  void run_move(const Pull& move);
  /// Of all segments; the same on all members, but for an all_to_all.
  [[nodiscard]] std::int64_t whole_bytes() const;
  [[nodiscard]] const std::byte* operand_address(const Source& operand) const;
  [[nodiscard]] std::byte* own_address(const Strip& piece) const;

  std::shared_ptr<RankContext> context_;
  std::shared_ptr<GroupMember> group_;
  DType dtype_;
  ReduceOp op_;
  std::vector<Segment> segments_;  ///< own buffers, as in plan_rounds
  /// The whole of an all_to_all whose counts come with each run: its input's `length`, and its
  /// output's.
  Segment whole_;
  std::int64_t output_room_;
  std::vector<Round> rounds_;
  Stores stores_ = Stores::Cached;
  std::int64_t record_ = 0;
  std::int64_t record_bytes_ = 0;
  Ticket ticket_;
  std::vector<const std::byte*> operands_;  ///< of the move at hand
  std::vector<std::int64_t> pulled_bytes_;  ///< in this call, by member
  CollectiveResult result_;
};

}  // namespace sw
