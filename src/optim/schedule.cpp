#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sw {

double learning_rate(const OptimizerOptions& options, std::int64_t total_updates,
                     std::int64_t completed) {
  const double base = options.learning_rate;
  if (completed < options.warmup_steps) {
    return base * static_cast<double>(completed + 1) / static_cast<double>(options.warmup_steps);
  }
  const std::int64_t total = options.decay_steps > 0 ? options.decay_steps : total_updates;
  const auto span = static_cast<double>(std::max<std::int64_t>(total - options.warmup_steps, 1));
  const double progress =
      std::min(static_cast<double>(completed - options.warmup_steps) / span, 1.0);
  const double room = base - options.minimum_learning_rate;
  switch (options.schedule) {
    case Schedule::Constant:
      return base;
    case Schedule::Linear:
      return options.minimum_learning_rate + room * (1 - progress);
    case Schedule::Cosine:
      return options.minimum_learning_rate + room * (1 + std::cos(std::numbers::pi * progress)) / 2;
  }
  return base;
}

}  // namespace sw
