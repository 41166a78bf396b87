#pragma once

#include <cstdint>

namespace sw::test {

/// Calls of operator new in this process so far.
[[nodiscard]] std::int64_t allocations();

}  // namespace sw::test
