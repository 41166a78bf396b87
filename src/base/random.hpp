#pragma once

#include <array>
#include <cstdint>

namespace sw {

/// Philox 4x32-10 (Salmon et al. 2011): four random words that are a pure function of key and
/// counter.
[[nodiscard]] std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_high,
                                                  std::uint64_t counter_low);

/// Standard normal number `index` of a stream: a pure function of its arguments (Box-Muller in
/// double).
[[nodiscard]] double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);
/// Numbers 2 * pair and 2 * pair + 1 of the stream, for little more than the price of one.
[[nodiscard]] std::array<double, 2> normal_pair(std::uint64_t seed, std::uint64_t stream,
                                                std::uint64_t pair);

/// A permutation of [0, size) that is a pure function of (seed, epoch): position -> index, computed
/// per call (Feistel network with cycle walking), so that the place in the data is one integer.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch);
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const;

 private:
  std::uint64_t size_ = 0;
  std::uint64_t key_ = 0;
  int half_bits_ = 0;
};

/// A 64-bit hash of a word (SplitMix64's finisher): for deriving keys.
[[nodiscard]] std::uint64_t mix(std::uint64_t value);

}  // namespace sw
