#include "base/random.hpp"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace sw {
namespace {

constexpr int kPhiloxRounds = 10;
constexpr int kFeistelRounds = 8;

constexpr std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32U);
}

/// A double in (0, 1] from 53 of 64 bits: its logarithm is finite.
double unit(std::uint32_t upper, std::uint32_t lower) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(upper) << 32U) | lower;
  return (static_cast<double>(bits >> 11U) + 1.0) * 0x1.0p-53;
}

/// The point of the plane whose coordinates are a pair of normal numbers.
struct Polar {
  double radius = 0;
  double angle = 0;
};
Polar polar(std::uint64_t seed, std::uint64_t stream, std::uint64_t pair) {
  const auto words = philox(seed, stream, pair);
  return {std::sqrt(-2.0 * std::log(unit(words[0], words[1]))),
          2.0 * std::numbers::pi * unit(words[2], words[3])};
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_high,
                                    std::uint64_t counter_low) {
  std::array<std::uint32_t, 4> x = {low(counter_low), high(counter_low), low(counter_high),
                                    high(counter_high)};
  std::uint32_t k0 = low(key);
  std::uint32_t k1 = high(key);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * x[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * x[2];
    x = {high(p1) ^ x[1] ^ k0, low(p1), high(p0) ^ x[3] ^ k1, low(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return x;
}

double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const Polar point = polar(seed, stream, index / 2);
  return point.radius * (index % 2 == 0 ? std::cos(point.angle) : std::sin(point.angle));
}

std::array<double, 2> normal_pair(std::uint64_t seed, std::uint64_t stream, std::uint64_t pair) {
  const Polar point = polar(seed, stream, pair);
  return {point.radius * std::cos(point.angle), point.radius * std::sin(point.angle)};
}

Permutation::Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(static_cast<std::uint64_t>(size)), key_(mix(seed ^ mix(epoch + 1))) {
  SW_CHECK(size >= 0, "a permutation of {} elements", size);
  const int bits = size > 1 ? static_cast<int>(std::bit_width(size_ - 1)) : 1;
  half_bits_ = (bits + 1) / 2;
}

std::int64_t Permutation::operator()(std::int64_t position) const {
  SW_CHECK(position >= 0 && static_cast<std::uint64_t>(position) < size_,
           "position {} of a permutation of {} elements", position, size_);
  const std::uint64_t mask = (std::uint64_t{1} << static_cast<unsigned>(half_bits_)) - 1;
  auto value = static_cast<std::uint64_t>(position);
  // The domain has fewer than 4 * size elements, so a walk is short: under four rounds on average.
  do {
    std::uint64_t left = value >> static_cast<unsigned>(half_bits_);
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < kFeistelRounds; ++round) {
      const std::uint64_t next = left ^ (mix(key_ + mix(right) + round) & mask);
      left = right;
      right = next;
    }
    value = (left << static_cast<unsigned>(half_bits_)) | right;
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

}  // namespace sw
