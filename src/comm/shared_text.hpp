#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sw {

/// A short text in memory shared by threads or processes. One writer at a time, wait-free; a reader
/// that meets a writer too often takes what it sees, which is right for a message and nothing else.
class SharedText {
 public:
  static constexpr std::size_t kCapacity = 128;

  /// Stores the first `kCapacity` bytes.
  void store(std::string_view text);
  [[nodiscard]] std::string load() const;

 private:
  std::atomic<std::uint32_t> version_ = 0;  ///< odd while a writer is inside
  std::array<std::atomic<std::uint64_t>, kCapacity / 8> words_ = {};
};

}  // namespace sw
