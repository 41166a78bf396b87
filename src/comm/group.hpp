#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/rank_context.hpp"
#include "comm/record.hpp"

namespace sw {

/// What one member shows the others; in the control block, behind the group's header.
struct alignas(64) MemberSlot {
  std::atomic<std::uint32_t> steps = 0;      ///< how often it has arrived
  std::atomic<std::uint32_t> pulling = 0;    ///< it is reading other members' memory
  std::atomic<std::int64_t> record = 0;      ///< of the collective it is in
  std::atomic<std::int64_t> sent_bytes = 0;  ///< taken from it by others in this call
};

/// A process group as one member holds it: synchronization, and the checks and deadlines that ride
/// in it. Not thread-safe: a group belongs to one stream.
class GroupMember {
 public:
  /// `members` are ranks of the world, this one among them. `name` is for messages, `key` tells
  /// groups apart. Blocks until the first member to ask has made the shared state.
  GroupMember(std::shared_ptr<RankContext> context, std::string name, const std::string& key,
              std::vector<int> members);

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Arrives with a record, waits for the others and checks that all records agree.
  void arrive(std::int64_t record);
  /// Waits until all members have come this far in the call they arrived for.
  void synchronize();

  /// Between these two this rank reads other members' memory.
  void begin_pulling();
  void end_pulling();

  [[nodiscard]] const Record& record_of(int member) const;
  [[nodiscard]] const std::byte* find(int member, std::uint64_t published) const;
  void add_sent_bytes(int member, std::int64_t bytes);
  /// What others took from this rank since the last call of this; valid behind a synchronization.
  [[nodiscard]] std::int64_t take_sent_bytes();

 private:
  void open_state(std::uint64_t key);
  void step(bool check);
  void check_records();
  void finish_step();
  void wait_for_step(std::uint32_t epoch);
  void sleep_until_step(std::uint32_t epoch);
  /// Nanoseconds until the first missing member is lost; aborts when one is.
  std::int64_t time_left(std::int64_t waiting_since);
  [[nodiscard]] std::string lost_message(const std::vector<int>& lost) const;
  [[nodiscard]] bool has_arrived(int member) const;
  [[nodiscard]] std::string here() const;
  [[noreturn]] void leave();

  std::shared_ptr<RankContext> context_;
  ControlBlock& control_;
  std::string name_;
  std::vector<int> members_;
  int index_ = 0;
  GroupHeader* header_ = nullptr;
  MemberSlot* slots_ = nullptr;
  std::uint32_t steps_ = 0;
  std::int64_t sequence_ = 0;
};

}  // namespace sw
