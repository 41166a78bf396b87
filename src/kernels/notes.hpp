#pragma once

#include <string>

#include "base/dtype.hpp"

namespace sw::kernels {

/// How this machine multiplies matrices of `dtype`, as a line of the plan: with which instruction
/// set, and what becomes of bfloat16 operands.
[[nodiscard]] std::string matrix_product_note(DType dtype);

}  // namespace sw::kernels
