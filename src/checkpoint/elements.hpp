#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.hpp"

/// Elements of files as float32 and back. The bytes may lie at any address.
namespace sw {

/// Float64 rounds to nearest; the shorter types are exact. DataError for a type that is no
/// floating-point number.
void to_float32(DType dtype, std::span<const std::byte> elements, std::span<float> values);

/// Rounds to nearest, ties to even; what a Float16 cannot hold becomes infinite.
void from_float32(std::span<const float> values, DType dtype, std::span<std::byte> elements);

}  // namespace sw
