#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/rank_context.hpp"
#include "comm/record.hpp"

namespace sw {

/// What one member shows the others; in the control block, behind the group's header. Only that
/// member writes it, and no two share a cache line. Behind it stands, for each member, how many
/// bytes this one took from it in the call at hand.
struct MemberSlot {
  std::atomic<std::uint32_t> steps = 0;    ///< how often it has arrived
  std::atomic<std::uint32_t> pulling = 0;  ///< it is reading other members' memory
  std::atomic<std::int64_t> record = 0;    ///< of the collective it is in
  /// What it shows of odd and of even calls: who has passed a barrier may come to the next before
  /// others have looked, but not to the one after that.
  std::array<std::atomic<std::uint64_t>, 2> tickets = {};
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

  /// Arrives with a record at `now_ns`, waits for the others and checks that all records agree.
  /// From here to `finish`, or to an error, this rank reads other members' memory.
  void arrive(std::int64_t record, const Ticket& ticket, std::int64_t now_ns);
  /// Waits until all members have come this far in the call they arrived for.
  void synchronize() { step(); }
  /// This rank reads nothing more of the others. The call is over once all have `synchronize`d.
  void finish();

  [[nodiscard]] const Record& record_of(int member) const;
  [[nodiscard]] const std::byte* find(int member, std::uint64_t published) const;
  /// Says how many bytes this rank took from another in this call.
  void show_pulled_bytes(int member, std::int64_t bytes);
  /// What the others took from this rank in this call; valid behind its last synchronization.
  [[nodiscard]] std::int64_t sent_bytes() const;

 private:
  /// Shows where a thread waits before it sleeps, without allocating.
  struct Place {
    std::array<char, SharedText::kCapacity> text;
    std::size_t length = 0;
  };

  void open_state(std::uint64_t key);
  [[nodiscard]] std::int64_t slot_bytes() const;
  [[nodiscard]] MemberSlot& slot(int member) const;
  [[nodiscard]] std::atomic<std::int64_t>& pulled_bytes(int by, int from) const;
  void step();
  void check_tickets(const Ticket& ticket);
  void wait_for_others(int& next);
  void sleep_until_all_are_here(int& next);
  /// Whether all members have arrived; `next` is the first that was not seen yet.
  [[nodiscard]] bool all_are_here(int& next) const;
  /// Nanoseconds until the first missing member is lost; aborts when one is.
  std::int64_t time_left(std::int64_t waiting_since);
  [[nodiscard]] std::string lost_message(const std::vector<int>& lost) const;
  [[nodiscard]] bool has_arrived(int member) const;
  [[nodiscard]] Place here() const;
  [[noreturn]] void leave();

  std::shared_ptr<RankContext> context_;
  ControlBlock& control_;
  RankStatus& status_;
  std::string name_;
  std::vector<int> members_;
  int index_ = 0;
  GroupHeader* header_ = nullptr;
  std::byte* slots_ = nullptr;
  std::uint32_t steps_ = 0;
  std::int64_t sequence_ = 0;
};

}  // namespace sw
