#include <algorithm>
#include <cmath>

#include "kernels/kernel.hpp"

namespace sw::kernels {

std::int64_t capacity(const CapacityParameters& parameters, std::int64_t slots) {
  const double mean =
      parameters.factor * static_cast<double>(slots) / static_cast<double>(parameters.experts);
  const double whole = std::round(mean);  // 1.1 * 10 is a little more than 11 in binary
  const double rounded = std::abs(mean - whole) <= 1e-12 * mean ? whole : std::ceil(mean);
  return static_cast<std::int64_t>(std::min(rounded, static_cast<double>(slots)));
}

}  // namespace sw::kernels
