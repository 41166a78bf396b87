#pragma once

#include <string>

#include "base/dtype.hpp"

namespace sw::kernels {

/// How this machine multiplies matrices of `dtype`, as a line of the plan: which library and
/// instruction set, and whether operands are converted.
[[nodiscard]] std::string matrix_product_note(DType dtype);

}  // namespace sw::kernels
