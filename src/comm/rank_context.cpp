#include "comm/rank_context.hpp"

#include <bit>

#include "comm/futex.hpp"

namespace sw {
namespace {

std::int64_t record_size(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

}  // namespace

std::int64_t RankContext::allocate(std::int64_t bytes) {
  const std::int64_t offset = control->allocate(bytes);
  if (reserve) {
    reserve(offset, bytes);
  }
  return offset;
}

std::int64_t RankContext::take_record(std::int64_t bytes) {
  const std::int64_t size = record_size(bytes);
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t>& free = free_records_[size];
  if (free.empty()) {
    return allocate(size);
  }
  const std::int64_t offset = free.back();
  free.pop_back();
  return offset;
}

void RankContext::give_back_record(std::int64_t offset, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  free_records_[record_size(bytes)].push_back(offset);
}

int RankContext::times_made(const std::string& group) {
  const std::lock_guard lock(mutex_);
  return groups_made_[group]++;
}

bool RankContext::inside_window(const std::byte* data, std::int64_t bytes) const {
  if (one_address_space || bytes == 0) {
    return true;
  }
  const WindowView& window = windows[static_cast<std::size_t>(rank)];
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return address >= window.base && bytes <= window.bytes &&
         address - window.base <= static_cast<std::uintptr_t>(window.bytes - bytes);
}

std::uint64_t RankContext::publish(const std::byte* data) const {
  return reinterpret_cast<std::uintptr_t>(data) - windows[static_cast<std::size_t>(rank)].base;
}

const std::byte* RankContext::find(int owner, std::uint64_t published) const {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an offset from another rank, in this rank's mapping
  return reinterpret_cast<const std::byte*>(windows[static_cast<std::size_t>(owner)].base +
                                            published);
}

void RankContext::publish_progress(std::int64_t instruction, const char* phase) {
  RankStatus& status = control->status(rank);
  if (phase_.exchange(phase, std::memory_order_relaxed) != phase) {
    status.phase.store(phase);
  }
  status.instruction.store(instruction, std::memory_order_relaxed);
  status.progress_ns.store(monotonic_ns(), std::memory_order_release);
}

}  // namespace sw
