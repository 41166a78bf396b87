#pragma once

#include <vector>

#include "base/json.hpp"
#include "program/ledger.hpp"
#include "program/program.hpp"

/// Which versions of its weights a rank computed with, as told by when its instructions ran.
namespace sw {

/// A micro-batch's on one rank, counted by the rank's updates since the window began.
struct VersionUse {
  int micro_batch = 0;
  int forward = 0;
  int backward = 0;
  /// The update that its gradient is added up for: it makes version `update + 1`.
  int update = 0;
  /// Updates between the weights of the gradient and those that it changes.
  [[nodiscard]] int staleness() const { return update - backward; }
  friend bool operator==(const VersionUse&, const VersionUse&) = default;
};

/// Of a Program whose window has more than one update: by micro-batch, read off `timeline`, be it
/// that of a run or of a simulation. A version is what a buffer of weights held when a kernel began
/// to read it: how many updates of it had ended by then, or had when it was copied from there.
/// Empty in synchronous training, where all of it would be 0. Throws InternalError when kernels of
/// one forward (or backward) read different versions.
[[nodiscard]] std::vector<VersionUse> version_uses(const Program& program,
                                                   const Timeline& timeline);

/// [forward, backward, update] for each micro-batch: what plan and run write into their files.
[[nodiscard]] Json to_json(const std::vector<VersionUse>& uses);

/// A timeline in which each instruction ends before the next of the list starts.
[[nodiscard]] Timeline list_order(const Program& program);

/// The most of all; 0 in synchronous training.
[[nodiscard]] int most_stale(const std::vector<VersionUse>& uses);

/// Most versions of its weights that a rank holds at once, and the bytes of those beside the one
/// that it updates. {1, 0} in synchronous training.
struct KeptVersions {
  int versions = 1;
  std::int64_t stashed_bytes = 0;
  friend bool operator==(const KeptVersions&, const KeptVersions&) = default;
};
[[nodiscard]] KeptVersions kept_versions(const Program& program);

}  // namespace sw
