#include "comm/shared_text.hpp"

#include <algorithm>
#include <cstring>

namespace sw {

// Releases and acquires instead of fences, which ThreadSanitizer cannot see: a word written inside
// a change is never seen with the version of before it.

void SharedText::store(std::string_view text) {
  version_.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < words_.size(); ++i) {
    std::uint64_t word = 0;
    const std::size_t begin = i * sizeof word;
    if (begin < text.size()) {
      std::memcpy(&word, text.data() + begin, std::min(sizeof word, text.size() - begin));
    }
    words_[i].store(word, std::memory_order_release);
  }
  version_.fetch_add(1, std::memory_order_release);
}

std::string SharedText::load() const {
  std::array<char, kCapacity> bytes{};
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint32_t before = version_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::uint64_t word = words_[i].load(std::memory_order_acquire);
      std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
    }
    if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) {
      break;
    }
  }
  return {bytes.data(), strnlen(bytes.data(), bytes.size())};
}

}  // namespace sw
