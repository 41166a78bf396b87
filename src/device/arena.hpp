#pragma once

#include <cstddef>
#include <cstdint>

namespace sw {

/// One block of memory of a fixed size, page-aligned, huge pages where the kernel gives them.
/// Nothing is allocated from it: the memory map of a Program says which bytes belong to whom.
class Arena {
 public:
  Arena() = default;
  /// Reserves and touches `bytes`; throws DeviceError naming the bytes when there are not enough.
  explicit Arena(std::int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Fills memory with the pattern that `highest_touched` looks for.
void fill_with_pattern(std::byte* data, std::int64_t bytes);
/// One past the highest byte of [data, data + bytes) that no longer holds the pattern; 0 if none:
/// the measured peak of an arena filled before the run. The pattern is unlikely to be written by
/// chance (eight bytes wide, keyed by position).
[[nodiscard]] std::int64_t highest_touched(const std::byte* data, std::int64_t bytes);

}  // namespace sw
