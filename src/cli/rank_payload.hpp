#pragma once

#include <string>

#include "train/trainer.hpp"

/// What the launcher hands a rank process, as text.
namespace sw {

inline constexpr const char* kTrainRole = "train";

[[nodiscard]] std::string to_payload(const TrainingPlan& plan);
[[nodiscard]] TrainingPlan plan_from_payload(const std::string& payload);

/// The whole life of a rank process; returns its exit status.
int run_rank_process(int argc, const char* const* argv);

}  // namespace sw
