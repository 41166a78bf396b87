#include "comm/control_block.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "comm/futex.hpp"

namespace sw {
namespace {

constexpr std::uint64_t kMagic = 0x53776f7264436f6dU;
constexpr std::int64_t kLine = 64;
/// Room for groups and prepared collectives, per rank.
constexpr std::int64_t kBytesPerRank = 64 << 20;

std::int64_t statuses_offset() {
  return round_up(static_cast<std::int64_t>(sizeof(ControlBlock)), kLine);
}

int cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string seconds_ago(std::int64_t then_ns) {
  return fmt::format("{:.1f} s ago", static_cast<double>(monotonic_ns() - then_ns) * 1e-9);
}

}  // namespace

std::int64_t ControlBlock::fixed_bytes(int ranks) {
  return statuses_offset() + ranks * static_cast<std::int64_t>(sizeof(RankStatus));
}

std::int64_t ControlBlock::address_space(int ranks) {
  return round_up(fixed_bytes(ranks), 4096) + ranks * kBytesPerRank;
}

ControlBlock* ControlBlock::create(std::byte* memory, int ranks, const WorldOptions& options) {
  auto* block = new (memory) ControlBlock;
  block->ranks_ = ranks;
  block->may_spin_ = ranks * options.threads_per_rank <= cores();
  block->deadline_ns_ = static_cast<std::int64_t>(options.deadline_s * 1e9);
  block->next_free_ = fixed_bytes(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    new (&block->status(rank)) RankStatus;
  }
  block->magic_.store(kMagic, std::memory_order_release);
  return block;
}

ControlBlock* ControlBlock::open(std::byte* memory) {
  auto* block = std::launder(reinterpret_cast<ControlBlock*>(memory));
  if (block->magic_.load(std::memory_order_acquire) != kMagic) {
    throw CommError("the inherited descriptor is not the shared memory of a job of this version");
  }
  return block;
}

RankStatus& ControlBlock::status(int rank) {
  SW_CHECK(rank >= 0 && rank < ranks_, "rank {} of {}", rank, ranks_);
  return reinterpret_cast<RankStatus*>(at(statuses_offset()))[rank];
}

std::string ControlBlock::doing(int rank) {
  const RankStatus& status = this->status(rank);
  std::string text = "has published no progress";
  if (const std::int64_t then = status.progress_ns.load(); then != 0) {
    text = fmt::format("is in '{}' (instruction {}, {})", status.phase.load(),
                       status.instruction.load(), seconds_ago(then));
  }
  if (status.sleeping.load() > 0) {
    text += ", waiting in " + status.collective.load();
  }
  return text;
}

std::int64_t ControlBlock::allocate(std::int64_t bytes) {
  const std::int64_t size = round_up(bytes, kLine);
  const std::int64_t offset = next_free_.fetch_add(size);
  if (offset + size > address_space(ranks_)) {
    throw CommError(fmt::format(
        "the job's shared control memory of {} bytes is full: too many collectives are prepared",
        address_space(ranks_)));
  }
  return offset;
}

GroupEntry& ControlBlock::find_group(std::uint64_t key, bool& created) {
  for (std::size_t probe = 0; probe < kGroups; ++probe) {
    GroupEntry& entry = groups_[(key + probe) % kGroups];
    std::uint64_t found = 0;
    created = entry.key.compare_exchange_strong(found, key);
    if (created || found == key) {
      return entry;
    }
  }
  throw CommError(fmt::format("the job has more than {} process groups", kGroups));
}

void ControlBlock::abort(std::string_view message) {
  std::uint32_t expected = kNone;
  if (abort_state_.compare_exchange_strong(expected, kClaimed)) {
    const std::size_t length = std::min(message.size(), abort_text_.size() - 1);
    std::memcpy(abort_text_.data(), message.data(), length);
    abort_state_.store(kWritten);
  }
  for (GroupEntry& entry : groups_) {
    if (const std::int64_t offset = entry.state.load(); offset != 0) {
      auto* header = reinterpret_cast<GroupHeader*>(at(offset));
      header->wakes.fetch_add(1);
      futex_wake_all(header->wakes);
    }
  }
}

std::string ControlBlock::aborted() const {
  if (!is_aborted()) {
    return "";
  }
  // The first to abort is writing its message now, or died in the middle of it.
  for (int attempt = 0; attempt < 1'000'000; ++attempt) {
    if (abort_state_.load(std::memory_order_acquire) == kWritten) {
      return abort_text_.data();
    }
    std::this_thread::yield();
  }
  return "a rank was lost while it reported an error";
}

}  // namespace sw
