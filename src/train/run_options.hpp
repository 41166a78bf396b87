#pragma once

#include "checkpoint/options.hpp"
#include "data/options.hpp"
#include "mesh/layout.hpp"
#include "model/options.hpp"
#include "optim/options.hpp"
#include "train/options.hpp"

namespace sw {

/// A whole run file, resolved: nothing is left to decide but what the machine decides (threads).
struct RunOptions {
  ModelOptions model;
  DataOptions data;
  TrainOptions train;
  OptimizerOptions optimizer;
  ParallelOptions parallel;
  CheckpointOptions checkpoint;
  friend bool operator==(const RunOptions&, const RunOptions&) = default;
};

}  // namespace sw
