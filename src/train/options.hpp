#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"

namespace sw {

/// [train] of a run file.
struct TrainOptions {
  std::int64_t steps = 200;        ///< 0 = as many as `epochs` gives
  std::int64_t epochs = 0;         ///< 0 = as many as `steps` needs
  std::int64_t global_batch = 32;  ///< sequences per step
  std::int64_t micro_batch = 4;    ///< sequences per micro-batch and data-parallel rank
  std::int64_t accumulation = 2;   ///< derived: global_batch / (micro_batch x dp), whole
  std::int64_t head_chunk = 2048;  ///< most tokens of a rank whose logits exist; 0 = all
  DType precision = DType::Float32;
  DType gradient_precision = DType::Float32;  ///< of accumulators and wire
  std::uint64_t seed = 1;
  std::vector<std::string> freeze;  ///< weight name patterns
  std::int64_t max_skipped = 20;    ///< consecutive skipped steps before the run stops
  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

}  // namespace sw
