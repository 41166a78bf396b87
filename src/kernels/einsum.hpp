#pragma once

#include <cstdint>
#include <string_view>

#include "base/shape.hpp"

namespace sw::kernels {

/// A two-operand einsum as one plain matrix product: result[m, n] = sum over k of a and b, each
/// stored as it comes or transposed.
struct MatrixProduct {
  std::int64_t m = 1;              ///< letters of a and the result
  std::int64_t n = 1;              ///< letters of b and the result
  std::int64_t k = 1;              ///< letters of a and b: summed
  bool a_transposed = false;       ///< a is [k, m], else [m, k]
  bool b_transposed = false;       ///< b is [n, k], else [k, n]
  bool result_transposed = false;  ///< the result is [n, m], else [m, n]
};

/// The product that `spec` ("bsd,hkd->bshk") means for these shapes. Throws InternalError where a
/// letter does not stand in exactly two places, sizes disagree, or letters of a pair are not
/// adjacent and in the same order in both.
[[nodiscard]] MatrixProduct matrix_product(std::string_view spec, const Shape& a, const Shape& b,
                                           const Shape& result);

}  // namespace sw::kernels
