#pragma once

#include <cstdint>

/// What this process takes from the heap with operator new, for tests that link allocations.cpp.
namespace sw::test {

/// Calls of operator new so far.
[[nodiscard]] std::int64_t allocations();

/// Begins to watch; `peak_bytes` is the most that was allocated at once since then, above what was
/// allocated before.
void watch_peak();
[[nodiscard]] std::int64_t peak_bytes();

}  // namespace sw::test
