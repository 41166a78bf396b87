#pragma once

#include <cstdint>
#include <cstdlib>

namespace sw::testing {

/// How often a sampled test repeats: `sampled` times in `./dev test`, `full` times in `./dev soak`,
/// which sets SW_SOAK.
[[nodiscard]] inline std::int64_t runs(std::int64_t sampled, std::int64_t full) {
  return std::getenv("SW_SOAK") == nullptr ? sampled : full;
}

}  // namespace sw::testing
