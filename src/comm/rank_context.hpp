#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control_block.hpp"

namespace sw {

/// How one rank sees the memory of another: an address published by it means `base` + address here.
struct WindowView {
  std::uintptr_t base = 0;
  std::int64_t bytes = 0;
};

/// One rank's view of a job, shared by its world, communicators and prepared collectives. What
/// backends differ in is in these fields.
class RankContext {
 public:
  ControlBlock* control = nullptr;
  int rank = 0;
  std::vector<WindowView> windows;  ///< by rank of the world
  /// Ranks are threads: an address is valid everywhere, and memory that a failed rank gives back is
  /// gone for its peers too.
  bool one_address_space = false;
  /// Turns bytes of the control block into real memory; empty if they are already.
  std::function<void(std::int64_t offset, std::int64_t bytes)> reserve;
  std::shared_ptr<void> memory;  ///< keeps the control block mapped

  /// Zeroed memory in the control block.
  [[nodiscard]] std::int64_t allocate(std::int64_t bytes);
  /// Memory for a prepared collective; not zeroed. `bytes` is rounded up to a power of two.
  [[nodiscard]] std::int64_t take_record(std::int64_t bytes);
  void give_back_record(std::int64_t offset, std::int64_t bytes);

  /// How often this rank has asked for a group of this name and members before.
  [[nodiscard]] int times_made(const std::string& group);

  [[nodiscard]] bool inside_window(const std::byte* data, std::int64_t bytes) const;
  /// What other ranks need to find `data` in this rank's window.
  [[nodiscard]] std::uint64_t publish(const std::byte* data) const;
  [[nodiscard]] const std::byte* find(int owner, std::uint64_t published) const;

  void publish_progress(std::int64_t instruction, const char* phase);

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<std::int64_t>> free_records_;
  std::map<std::string, int> groups_made_;
  std::atomic<const char*> phase_ = nullptr;
};

}  // namespace sw
