#pragma once

#include <cstdint>
#include <vector>

#include "data/options.hpp"

namespace sw {

/// The samples of one step.
struct Window {
  std::int64_t epoch = 0;
  std::vector<std::int64_t> samples;  ///< global_batch ids; -1: a row of nothing but padding
  std::int64_t consumed = 0;          ///< ids that are no padding
  std::int64_t dropped = 0;  ///< left at the end of the epoch before, with LastWindow::Drop
  std::int64_t next = 0;     ///< position of the window after this one
};

/// The order of samples: in each epoch a permutation keyed by (seed, epoch), cut into windows of
/// `global_batch`.
///
/// Where a run stands is one integer, its *position*: samples used or dropped since the start. It
/// knows nothing of ranks or of the global batch, so a run may resume with others and still uses
/// each sample of the epoch once. Everything here is a pure function of arguments and position.
class Sampler {
 public:
  /// ConfigError when there is no sample, or when no window would ever be full and Drop is asked.
  Sampler(std::int64_t samples, std::int64_t global_batch, std::uint64_t seed,
          DataOptions::LastWindow last_window);

  /// The window at a position: 0 at the start, then `next` of the one before.
  [[nodiscard]] Window window(std::int64_t position) const;
  [[nodiscard]] std::int64_t windows_per_epoch() const;
  /// Windows from a position to the end of epoch `epochs` - 1: the steps left of a run of `epochs`.
  [[nodiscard]] std::int64_t windows_left(std::int64_t position, std::int64_t epochs) const;

 private:
  [[nodiscard]] std::int64_t windows_of(std::int64_t samples) const;

  std::int64_t samples_;
  std::int64_t global_batch_;
  std::uint64_t seed_;
  DataOptions::LastWindow last_window_;
};

}  // namespace sw
