#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "lower/compile.hpp"
#include "program/versions.hpp"
#include "simulate/simulate.hpp"

/// What a run will cost, before it runs: the Programs of all ranks, simulated. Memory, bytes and
/// calls are exact; time is a prediction.
namespace sw {

struct RunPlan {
  Layout layout;
  std::vector<MemoryAccount> memory;  ///< per rank
  /// Per rank; in synchronous training one version and no uses.
  std::vector<KeptVersions> kept;
  std::vector<std::vector<VersionUse>> versions;
  std::vector<LedgerRow> collectives;  ///< per step
  double step_seconds = 0;
  double tokens_per_second = 0;
  std::optional<double> mfu;  ///< none until the machine's peak is known
  double bubble = 0;  ///< share of the step in which a rank's compute stream waits for others,
                      ///< averaged over ranks
  double exposed_communication_seconds = 0;  ///< of the rank with the most
  std::vector<std::string> notes;
};

/// Compiles every rank's training Program, verifies them together, and simulates a step.
[[nodiscard]] RunPlan make_plan(const Compilation& compilation, const Machine& machine);

/// The shape of `plan --json` and plan.json.
[[nodiscard]] Json to_json(const RunPlan& plan);
/// Tables for people.
[[nodiscard]] std::string to_text(const RunPlan& plan);

/// "1.23 MiB" (2^20), "512 B".
[[nodiscard]] std::string binary_bytes(std::int64_t bytes);

}  // namespace sw
