#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/json.hpp"
#include "base/shape.hpp"

/// What a checkpoint holds beside the elements. Read docs/checkpoints.md for the format.
namespace sw {

/// Where training stands; equal on all ranks.
struct TrainingState {
  std::int64_t step = 0;              ///< steps done, skipped ones too
  std::int64_t updates = 0;           ///< applied updates: what schedule and optimizer count
  std::int64_t consumed_samples = 0;  ///< the place in the data
  std::int64_t skipped_steps = 0;
  std::int64_t skipped_in_a_row = 0;
  std::uint64_t seed = 0;
  double loss_scale = 1.0;
  /// What the caller wants back: schedule, digest of the configuration, and (conversion needs it)
  /// the model's config.json as an object under "model_config".
  Json extra = Json::object();
  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

/// A logical tensor of a checkpoint: one state of one parameter.
struct StateTensor {
  std::string tensor;
  std::string state;  ///< "weight", "momentum", "variance"
  DType dtype = DType::Float32;
  Shape shape;
  friend bool operator==(const StateTensor&, const StateTensor&) = default;
};

}  // namespace sw
