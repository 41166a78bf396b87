#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/exit_status.hpp"
#include "comm/communicator.hpp"

/// Local ranks as child processes of the command: fork and exec of the same binary, before any
/// thread exists, with a parent-death signal and an inherited shared-memory job.
namespace sw {

struct LaunchOptions {
  int ranks = 1;
  std::string role;     ///< what the ranks do: "train", "verify"
  std::string payload;  ///< all they need to know for it; any bytes
  WorldOptions world;
  std::string executable = "/proc/self/exe";
};

/// How the ranks ended.
struct LaunchResult {
  int status = 0;       ///< kDone, kFailed, kStopped, else what all ranks ended with
  std::string message;  ///< of a failure: one sentence with the rank
};

/// Starts the ranks and waits for all of them. SIGTERM and SIGINT to this process are passed on as
/// a stop request; a second one ends the ranks at once. When a rank dies the others are aborted
/// with a message that names it, have the deadline to end, and are killed after it. No rank
/// outlives the call or this process. Must be called while the process has one thread.
[[nodiscard]] LaunchResult launch_ranks(const LaunchOptions& options);

/// What a rank is started with.
struct RankStart {
  int rank = 0;
  int ranks = 1;
  int job_descriptor = -1;
  int report_descriptor = -1;
  std::string role;
  std::string payload;
};

/// The hidden sub-command under which a rank starts.
inline constexpr const char* kRankCommand = "__rank";

/// Whether the command line is that of a rank.
[[nodiscard]] bool is_rank(int argc, const char* const* argv);
/// Reads it; sets the parent-death signal. SIGTERM and SIGINT stay blocked in every thread of a
/// rank: see docs/decisions/0014.
[[nodiscard]] RankStart start_rank(int argc, const char* const* argv);

/// True once this process was asked to stop: whether SIGTERM or SIGINT is pending. Ranks agree on
/// it at a step boundary.
[[nodiscard]] bool stop_requested();

/// Joins the job, runs `body` and returns the process's exit status: what `body` returns, or 1
/// after it threw; then the group is aborted and the launcher told why.
int run_rank(const RankStart& start, const std::function<int(World& world)>& body);

/// The same on threads of this process (communicator `local`).
LaunchResult run_local_ranks(int ranks, const WorldOptions& options,
                             const std::function<int(World& world)>& body);

}  // namespace sw
