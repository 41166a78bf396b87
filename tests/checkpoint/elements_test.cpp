#include "checkpoint/elements.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/error.hpp"

namespace sw {
namespace {

float from_half(std::uint16_t bits) {
  float value = 0;
  to_float32(DType::Float16, std::as_bytes(std::span(&bits, 1)), {&value, 1});
  return value;
}

std::uint16_t to_half(float value) {
  std::uint16_t bits = 0;
  from_float32({&value, 1}, DType::Float16, std::as_writable_bytes(std::span(&bits, 1)));
  return bits;
}

/// The value that IEEE 754 gives a binary16, by its formula.
double by_formula(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = (bits & 1023) / 1024.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_finite_half(std::uint16_t bits) { return (bits & 0x7c00) != 0x7c00; }

TEST(Elements, EveryFloat16HasTheValueOfTheFormulaAndComesBack) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = from_half(bits);
    if (is_finite_half(bits)) {
      ASSERT_EQ(static_cast<double>(value), by_formula(bits)) << i;
      ASSERT_EQ(to_half(value), bits) << i;
    } else if ((bits & 0x3ff) == 0) {
      ASSERT_EQ(std::isinf(value), true);
      ASSERT_EQ(to_half(value), bits);
    } else {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_TRUE(std::isnan(from_half(to_half(value))));
    }
  }
}

TEST(Elements, FloatsRoundToTheNearestFloat16AndTiesToTheEvenOne) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {  // 0x7bff is the largest
    const double low = by_formula(bits);
    const double high = by_formula(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one more bit
    const std::uint16_t even = bits % 2 == 0 ? bits : static_cast<std::uint16_t>(bits + 1);
    ASSERT_EQ(to_half(middle), even) << bits;
    ASSERT_EQ(to_half(std::nextafterf(middle, 0)), bits) << bits;
    ASSERT_EQ(to_half(std::nextafterf(middle, 1e9F)), bits + 1) << bits;
    ASSERT_EQ(to_half(-middle), even | 0x8000) << bits;
  }
  EXPECT_EQ(to_half(65519.99F), 0x7bff);
  EXPECT_EQ(to_half(65520.0F), 0x7c00);  // what rounds beyond the largest is infinite
  EXPECT_EQ(to_half(1e30F), 0x7c00);
  EXPECT_EQ(to_half(1e-30F), 0);
}

TEST(Elements, TypesThatHoldEveryFloatGiveItBackToTheBitAtAnyAddress) {
  const std::vector<float> values{0.0F,   -0.0F,  1.0F / 3,
                                  1e-45F, -3e38F, std::numeric_limits<float>::infinity()};
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    const auto size = static_cast<std::size_t>(size_of(dtype));
    std::vector<std::byte> bytes(values.size() * size + 1);
    const auto unaligned = std::span(bytes).subspan(1);
    from_float32(values, dtype, unaligned);
    std::vector<float> back(values.size());
    to_float32(dtype, unaligned, back);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(values[i]));
    }
  }
}

TEST(Elements, AnIntegerIsNoWeight) {
  std::vector<std::byte> bytes(8);
  std::vector<float> values(1);
  EXPECT_THROW(to_float32(DType::Int64, bytes, values), DataError);
  EXPECT_THROW(from_float32(values, DType::Int64, bytes), DataError);
}

}  // namespace
}  // namespace sw
