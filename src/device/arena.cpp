#include "device/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"

namespace sw {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kHugePage = 2 << 20;

std::optional<std::int64_t> first_number(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// Bytes that this process can still touch before the kernel kills somebody: what /proc/meminfo
/// calls available, within the limit of the control group.
std::int64_t available_bytes() {
  std::int64_t available = std::numeric_limits<std::int64_t>::max();
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::string unit;
  std::int64_t kibibytes = 0;
  while (file >> key >> kibibytes) {
    std::getline(file, unit);
    if (key == "MemAvailable:") available = kibibytes * 1024;
  }
  const auto limit = first_number("/sys/fs/cgroup/memory.max");
  const auto used = first_number("/sys/fs/cgroup/memory.current");
  // Page cache counts as used there, but gives way: only a request beyond the limit is refused.
  if (limit && used) available = std::min(available, *limit);
  return available;
}

/// Maps `bytes` (a multiple of the page size) at a multiple of the huge page size.
std::byte* map_aligned(std::int64_t bytes) {
  const auto reserve = static_cast<std::size_t>(bytes + kHugePage);
  void* whole = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) {
    throw DeviceError(
        fmt::format("an arena of {} bytes cannot be mapped: {}", bytes, std::strerror(errno)));
  }
  auto* begin = static_cast<std::byte*>(whole);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t before = (kHugePage - address % kHugePage) % kHugePage;
  const std::size_t after = reserve - before - static_cast<std::size_t>(bytes);
  if (before > 0) munmap(begin, before);
  if (after > 0) munmap(begin + before + bytes, after);
  return begin + before;
}

/// What a filled arena holds in word `word`. Every odd byte is 0x7a or 0x7b, which as the upper
/// byte of a float32 or bfloat16 means about 1e36 and as that of an integer two thousand millions:
/// no number of a run, so that the highest byte written is found to the byte.
std::uint64_t pattern_at(std::int64_t word) {
  std::uint64_t x = (static_cast<std::uint64_t>(word) + 1) * 0x9E3779B97F4A7C15U;
  x ^= x >> 29U;
  return (x & 0x01ff01ff01ff01ffU) | 0x7a007a007a007a00U;
}

/// One past the last byte of word `word` that differs from the pattern, counted in the word; 0 if
/// none of its first `bytes` do.
std::int64_t touched_in_word(const std::byte* data, std::int64_t word, std::int64_t bytes) {
  const std::uint64_t expected = pattern_at(word);
  std::byte pattern[8];
  std::memcpy(pattern, &expected, sizeof pattern);
  std::int64_t touched = bytes;
  while (touched > 0 && data[word * 8 + touched - 1] == pattern[touched - 1]) --touched;
  return touched;
}

}  // namespace

Arena::Arena(std::int64_t bytes) : size_(bytes) {
  SW_CHECK(bytes >= 0, "an arena of {} bytes", bytes);
  if (bytes == 0) return;
  const std::int64_t available = available_bytes();
  if (bytes > available) {
    throw DeviceError(fmt::format(
        "an arena of {} bytes does not fit in the {} bytes of memory available here; use more "
        "ranks, a smaller micro-batch or recomputation",
        bytes, available));
  }
  const std::int64_t mapped = round_up(bytes, kPage);
  data_ = map_aligned(mapped);
  // Advice: without huge pages the arena is slower and nothing else.
  (void)madvise(data_, static_cast<std::size_t>(mapped), MADV_HUGEPAGE);
  for (std::int64_t i = 0; i < mapped; i += kPage) data_[i] = std::byte{0};
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(round_up(size_, kPage)));
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void fill_with_pattern(std::byte* data, std::int64_t bytes) {
  for (std::int64_t word = 0; word * 8 < bytes; ++word) {
    const std::uint64_t value = pattern_at(word);
    std::memcpy(data + word * 8, &value,
                static_cast<std::size_t>(std::min<std::int64_t>(8, bytes - word * 8)));
  }
}

std::int64_t highest_touched(const std::byte* data, std::int64_t bytes) {
  for (std::int64_t word = (bytes + 7) / 8 - 1; word >= 0; --word) {
    const std::int64_t touched =
        touched_in_word(data, word, std::min<std::int64_t>(8, bytes - word * 8));
    if (touched > 0) return word * 8 + touched;
  }
  return 0;
}

}  // namespace sw
