#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <vector>

namespace sw::test {

/// Lists of numbers long enough for Programs of up to a hundred instructions.
inline rc::Gen<std::vector<std::uint32_t>> any_numbers() {
  return rc::gen::scale(4.0, rc::gen::arbitrary<std::vector<std::uint32_t>>());
}

}  // namespace sw::test
