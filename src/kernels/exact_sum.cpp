#include <bit>
#include <cmath>
#include <limits>

#include "kernels/kernel.hpp"

namespace sw::kernels {
namespace {

/// Digits of 32 bits; the last word counts what is not finite.
constexpr int kDigits = ExactSum::kWords - 1;
/// The least bit of digit 0 is worth 2^-kFraction: sums of squares of float32 numbers are multiples
/// of 2^-298 below 2^300, well inside the 1248 bits.
constexpr int kFraction = 608;
constexpr int kLargestExponent = 600;  // leaves room for carries in the upper digits

constexpr std::uint64_t kDigitMask = 0xffffffffU;

}  // namespace

/// Bits below 2^-608 are dropped and values from 2^600 on count as not finite: neither depends on
/// what was added before, so the words never depend on an order.
void ExactSum::add(double value) {
  if (value == 0) return;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // |fraction| in [0.5, 1)
  if (!std::isfinite(value) || exponent > kLargestExponent) {
    ++words[kDigits];
    return;
  }
  auto mantissa = static_cast<std::uint64_t>(std::ldexp(std::fabs(fraction), 53));
  int position = exponent - 53 + kFraction;  // of the mantissa's least bit
  if (position < 0) {
    mantissa = position > -64 ? mantissa >> static_cast<unsigned>(-position) : 0;
    position = 0;
  }
  const int digit = position / 32;
  const auto shift = static_cast<unsigned>(position % 32);
  // 53 bits shifted by up to 31 reach over three digits.
  const std::uint64_t low = (mantissa & kDigitMask) << shift;
  const std::uint64_t high = (mantissa >> 32U) << shift;
  const std::uint64_t digits[3] = {low & kDigitMask, (low >> 32U) + (high & kDigitMask),
                                   high >> 32U};
  for (int i = 0; i < 3; ++i) {
    words[digit + i] += value < 0 ? std::uint64_t{0} - digits[i] : digits[i];
  }
}

void ExactSum::add(const ExactSum& other) {
  for (int i = 0; i < kWords; ++i) words[i] += other.words[i];
}

double ExactSum::value() const {
  if (words[kDigits] != 0) return std::numeric_limits<double>::quiet_NaN();
  // Carry upwards: every digit but the top one into [0, 2^32).
  std::int64_t digit[kDigits];
  std::int64_t carry = 0;
  for (int i = 0; i < kDigits; ++i) {
    const std::int64_t sum = static_cast<std::int64_t>(words[i]) + carry;
    digit[i] = sum & static_cast<std::int64_t>(kDigitMask);
    carry = sum >> 32;
  }
  const bool negative = carry < 0;
  if (negative) {  // two's complement of all digits
    std::int64_t borrow = 1;
    for (std::int64_t& d : digit) {
      const std::int64_t flipped = (~d & static_cast<std::int64_t>(kDigitMask)) + borrow;
      d = flipped & static_cast<std::int64_t>(kDigitMask);
      borrow = flipped >> 32;
    }
  }
  int top = kDigits - 1;
  while (top > 0 && digit[top] == 0) --top;
  // The top 65 to 96 bits and a sticky bit for the rest, far below the 53 that are kept.
  unsigned __int128 bits = 0;
  for (int i = top; i > top - 3; --i) {
    bits = (bits << 32U) | static_cast<unsigned __int128>(i >= 0 ? digit[i] : 0);
  }
  for (int i = 0; i < top - 2; ++i) {
    if (digit[i] != 0) bits |= 1U;
  }
  const double magnitude = std::ldexp(static_cast<double>(bits), 32 * (top - 2) - kFraction);
  return negative ? -magnitude : magnitude;
}

}  // namespace sw::kernels
