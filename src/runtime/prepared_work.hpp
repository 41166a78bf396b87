#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.hpp"
#include "program/program.hpp"
#include "runtime/executor.hpp"

namespace sw {

/// What a copy did since it was prepared or last reset, counted as it ran.
struct CopyCount {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// An instruction ready to run: its work with addresses bound.
struct PreparedWork {
  std::function<void(Team&)> run;
  /// Set for collectives, and then what `run` runs.
  std::unique_ptr<PreparedCollective> collective = nullptr;
  /// Set for copies, and then what `run` counts in.
  std::unique_ptr<CopyCount> copies = nullptr;
};

/// `communicators` are those of Program::groups, in order. `threads` is of the team that will run
/// it.
[[nodiscard]] PreparedWork prepare_work(
    const Program& program, const Instruction& instruction, const RankMemory& memory,
    const std::vector<std::unique_ptr<Communicator>>& communicators, const ExecutorOptions& options,
    int threads);

/// The parts of it that have files of their own.
[[nodiscard]] std::function<void(Team&)> prepare_window_work(const Program& program,
                                                             const Instruction& instruction,
                                                             const RankMemory& memory);
[[nodiscard]] std::function<void(Team&)> prepare_optimizer_work(const Program& program,
                                                                const Instruction& instruction,
                                                                const RankMemory& memory);

}  // namespace sw
