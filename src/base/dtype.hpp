#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace sw {

enum class DType : std::uint8_t {
  Float64,
  Float32,
  Float16,
  BFloat16,
  Int64,
  Int32,
  UInt64,
  UInt8,
};

/// Bytes of one element.
[[nodiscard]] std::int64_t size_of(DType dtype);
/// "float32", "bfloat16", …
[[nodiscard]] std::string_view to_text(DType dtype);
/// The inverse of to_text; throws ConfigError for an unknown name.
[[nodiscard]] DType dtype_from_text(std::string_view text);

/// A bfloat16 as stored: the upper half of a float32.
struct BFloat16 {
  std::uint16_t bits = 0;
  friend bool operator==(BFloat16, BFloat16) = default;
};

[[nodiscard]] inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

/// Round to nearest, ties to even; NaN stays NaN.
[[nodiscard]] inline BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}

}  // namespace sw
