#pragma once

#include <cstdint>

#include "optim/options.hpp"

namespace sw {

/// The learning rate of the next update, a function of the number of completed updates only (never
/// of ranks, micro-batches or skipped steps).
///   completed < warmup   base · (completed + 1) / warmup: the update number `warmup` has the full
///   rate then, with t = completed - warmup and T = total - warmup (t capped at T): constant base
///   linear               minimum + (base - minimum) · (1 - t / T)
///   cosine               minimum + (base - minimum) · (1 + cos(pi · t / T)) / 2
/// `total_updates` is decay_steps where given, else the updates of the run.
[[nodiscard]] double learning_rate(const OptimizerOptions& options, std::int64_t total_updates,
                                   std::int64_t completed);

}  // namespace sw
