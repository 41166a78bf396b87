#include "comm/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace sw {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

// Return codes are not looked at: awake, changed, interrupted and timed out all mean "look again".

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::int64_t timeout_ns) {
  const std::int64_t positive = std::max<std::int64_t>(timeout_ns, 0);
  const timespec timeout{.tv_sec = positive / 1'000'000'000, .tv_nsec = positive % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace sw
