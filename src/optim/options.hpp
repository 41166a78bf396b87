#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace sw {

enum class OptimizerName : std::uint8_t { AdamW, Sgd };
enum class Schedule : std::uint8_t { Constant, Linear, Cosine };

/// [optimizer] of a run file; the defaults of AdamW are those of PyTorch.
struct OptimizerOptions {
  OptimizerName name = OptimizerName::AdamW;
  double learning_rate = 3e-4;
  Schedule schedule = Schedule::Cosine;
  std::int64_t warmup_steps = 0;     ///< linear from 0; counts applied updates
  std::int64_t decay_steps = 0;      ///< updates until the schedule's end; 0 = all of the run
  double minimum_learning_rate = 0;  ///< where linear and cosine end
  double gradient_clip = 1.0;        ///< of the global norm; 0 = none
  std::array<double, 2> betas = {0.9, 0.999};
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  std::vector<std::string> no_decay;  ///< weight name patterns
  double momentum = 0;                ///< sgd
  double loss_scale = 0;              ///< float16: 0 = dynamic
  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

}  // namespace sw
