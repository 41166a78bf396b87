#pragma once

#include <cstdint>

namespace sw {

/// [checkpoint] of a run file.
struct CheckpointOptions {
  std::int64_t every = 50;  ///< steps; 0 = none
  std::int64_t keep = 3;    ///< the last N complete ones
  bool background = true;
  friend bool operator==(const CheckpointOptions&, const CheckpointOptions&) = default;
};

}  // namespace sw
