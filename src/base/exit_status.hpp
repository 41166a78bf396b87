#pragma once

/// How a process of ours ends: part of the interface, and what the launcher reads of its ranks.
namespace sw {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;   ///< the run failed
inline constexpr int kRefused = 2;  ///< configuration, data or usage is wrong; nothing was written
inline constexpr int kComparisonFailed = 3;
inline constexpr int kStopped = 75;  ///< by a signal: run again with --resume

}  // namespace sw
