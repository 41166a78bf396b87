#pragma once

#include <atomic>
#include <cstdint>

/// Sleeping on a word of memory that other threads and other processes may share.
namespace sw {

/// Sleeps while `word` holds `expected`, for `timeout_ns` at most; may return early for no reason.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::int64_t timeout_ns);
void futex_wake_all(const std::atomic<std::uint32_t>& word);

/// CLOCK_MONOTONIC, the same for all processes of a host.
[[nodiscard]] std::int64_t monotonic_ns();

}  // namespace sw
