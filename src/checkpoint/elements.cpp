#include "checkpoint/elements.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace sw {
namespace {

// Float16: one sign bit, five of exponent (bias 15), ten of mantissa.
float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1fU) {
    return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13U));
  }
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(sign | 0x7e00U);
  }
  if (magnitude >= 65520.0F) {  // halfway from the largest (65504) to the next power of two
    return static_cast<std::uint16_t>(sign | 0x7c00U);
  }
  if (magnitude < 0x1p-14F) {
    // Adding 0.5 leaves room for exactly the bits of 2^-24 in the sum, rounded as addition rounds.
    const auto shifted = std::bit_cast<std::uint32_t>(magnitude + 0.5F);
    return static_cast<std::uint16_t>(sign | (shifted - std::bit_cast<std::uint32_t>(0.5F)));
  }
  std::uint32_t rounded = (bits & 0x7fffffffU) - (112U << 23U);
  rounded += 0xfffU + ((rounded >> 13U) & 1U);
  return static_cast<std::uint16_t>(sign | (rounded >> 13U));
}

template <typename Stored, typename Convert>
void read_each(std::span<const std::byte> elements, std::span<float> values,
               const Convert& convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, elements.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(stored);
  }
}

template <typename Stored, typename Convert>
void write_each(std::span<const float> values, std::span<std::byte> elements,
                const Convert& convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(elements.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

void check_sizes(std::size_t values, DType dtype, std::size_t bytes) {
  SW_CHECK(std::cmp_equal(bytes, static_cast<std::int64_t>(values) * size_of(dtype)),
           "{} elements of {} are not {} bytes", values, to_text(dtype), bytes);
}

[[noreturn]] void refuse(DType dtype) {
  throw DataError(
      fmt::format("{} is not a type of weights; float64, float32, float16 and bfloat16 "
                  "are",
                  to_text(dtype)));
}

}  // namespace

void to_float32(DType dtype, std::span<const std::byte> elements, std::span<float> values) {
  check_sizes(values.size(), dtype, elements.size());
  switch (dtype) {
    case DType::Float64:
      return read_each<double>(elements, values, [](double x) { return static_cast<float>(x); });
    case DType::Float32:
      return read_each<float>(elements, values, [](float x) { return x; });
    case DType::Float16:
      return read_each<std::uint16_t>(elements, values, half_to_float);
    case DType::BFloat16:
      return read_each<BFloat16>(elements, values, [](BFloat16 x) { return to_float(x); });
    default:
      refuse(dtype);
  }
}

void from_float32(std::span<const float> values, DType dtype, std::span<std::byte> elements) {
  check_sizes(values.size(), dtype, elements.size());
  switch (dtype) {
    case DType::Float64:
      return write_each<double>(values, elements, [](float x) { return static_cast<double>(x); });
    case DType::Float32:
      return write_each<float>(values, elements, [](float x) { return x; });
    case DType::Float16:
      return write_each<std::uint16_t>(values, elements, float_to_half);
    case DType::BFloat16:
      return write_each<BFloat16>(values, elements, [](float x) { return to_bfloat16(x); });
    default:
      refuse(dtype);
  }
}

}  // namespace sw
