#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/communicator.hpp"
#include "comm/shared_text.hpp"

/// What the ranks of a job share besides windows: one block of plain memory without a pointer in
/// it, so that it serves threads of one process and processes that map it at different addresses.
namespace sw {

/// What a rank says about itself.
struct alignas(64) RankStatus {
  std::atomic<std::int64_t> progress_ns = 0;  ///< when it last published progress; 0: never
  std::atomic<std::int64_t> instruction = 0;
  SharedText phase;
  std::atomic<std::int64_t> arrived_ns = 0;    ///< when it last came to a collective
  std::atomic<std::int32_t> sleeping = 0;      ///< threads of it that wait for others
  SharedText collective;                       ///< what one of them waits in
  std::atomic<std::int64_t> window_bytes = 0;  ///< what it asks for, where windows are shared
  std::atomic<std::int32_t> window_error = 0;  ///< the errno of a refusal
};

/// One entry of the table of process groups: zero, or the group's key and where its state lies.
struct GroupEntry {
  std::atomic<std::uint64_t> key = 0;
  std::atomic<std::int64_t> state = 0;
};

/// What every state of a group begins with. Waiters sleep on `wakes`, which changes when all
/// members have arrived while somebody sleeps, and when the job is aborted.
struct alignas(64) GroupHeader {
  std::atomic<std::uint32_t> wakes = 0;
  std::atomic<std::uint32_t> sleepers = 0;
};

class ControlBlock {
 public:
  /// Bytes of address space that a block for `ranks` ranks takes. Only what is used becomes memory.
  static std::int64_t address_space(int ranks);
  /// Makes a block in zeroed memory of that size.
  static ControlBlock* create(std::byte* memory, int ranks, const WorldOptions& options);
  /// The block another process made there; throws CommError if there is none.
  static ControlBlock* open(std::byte* memory);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] bool may_spin() const { return may_spin_; }
  [[nodiscard]] std::int64_t deadline_ns() const { return deadline_ns_; }
  [[nodiscard]] RankStatus& status(int rank);
  /// "in 'forward layers.2' (instruction 117, 31.2 s ago), waiting in all_reduce #3 on group tp"
  [[nodiscard]] std::string doing(int rank);

  /// Takes `bytes` of the block, zeroed; the offset stays valid for the life of the job. Throws
  /// CommError when the block is full.
  [[nodiscard]] std::int64_t allocate(std::int64_t bytes);
  [[nodiscard]] std::byte* at(std::int64_t offset) {
    return reinterpret_cast<std::byte*>(this) + offset;
  }
  /// Bytes in use before the first `allocate`.
  [[nodiscard]] static std::int64_t fixed_bytes(int ranks);

  /// The entry of a group, claimed by the first to ask: then `created` is true and the caller must
  /// store the state's offset.
  [[nodiscard]] GroupEntry& find_group(std::uint64_t key, bool& created);

  void abort(std::string_view message);
  [[nodiscard]] bool is_aborted() const { return abort_state_.load() != kNone; }
  /// The message of the first abort; empty if none.
  [[nodiscard]] std::string aborted() const;

 private:
  ControlBlock() = default;
  static constexpr std::size_t kGroups = 16384;
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t kClaimed = 1;
  static constexpr std::uint32_t kWritten = 2;

  std::atomic<std::uint64_t> magic_ = 0;
  std::int32_t ranks_ = 0;
  bool may_spin_ = false;
  std::int64_t deadline_ns_ = 0;
  std::atomic<std::int64_t> next_free_ = 0;
  alignas(64) std::atomic<std::uint32_t> abort_state_ = kNone;
  std::array<char, 2048> abort_text_ = {};
  std::array<GroupEntry, kGroups> groups_ = {};
};

}  // namespace sw
