#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.hpp"
#include "program/program.hpp"
#include "runtime/executor.hpp"

namespace sw {

using Run = std::function<void(Team&)>;

template <typename T>
[[nodiscard]] T* pointer(const Program& program, const RankMemory& memory, const Operand& operand) {
  return reinterpret_cast<T*>(memory.address(program, operand));
}

/// What a copy did since it was prepared or last reset, counted as it ran.
struct CopyCount {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// What a routed all_to_all had to send by its table, apart from what was counted on the way.
struct RoutedCount {
  std::int64_t calls = 0;
  std::int64_t sent_bytes = 0;
};

/// An instruction ready to run: its work with addresses bound.
struct PreparedWork {
  Run run;
  /// Set for collectives, and then what `run` runs.
  std::unique_ptr<PreparedCollective> collective = nullptr;
  /// Set for copies, and then what `run` counts in.
  std::unique_ptr<CopyCount> copies = nullptr;
  std::unique_ptr<RoutedCount> routed = nullptr;  ///< likewise for collectives with routing
};

/// `communicators` are those of Program::groups, in order. `threads` is of the team that will run
/// it.
[[nodiscard]] PreparedWork prepare_work(
    const Program& program, const Instruction& instruction, const RankMemory& memory,
    const std::vector<std::unique_ptr<Communicator>>& communicators, const ExecutorOptions& options,
    int threads);

/// The parts of it that have files of their own.
[[nodiscard]] Run prepare_window_work(const Program& program, const Instruction& instruction,
                                      const RankMemory& memory);
[[nodiscard]] Run prepare_optimizer_work(const Program& program, const Instruction& instruction,
                                         const RankMemory& memory);
[[nodiscard]] Run prepare_slot_work(const Program& program, const Instruction& instruction,
                                    const RankMemory& memory);
/// `collective` is the instruction's, prepared without counts.
[[nodiscard]] PreparedWork prepare_exchange(const Program& program, const Instruction& instruction,
                                            const RankMemory& memory,
                                            std::unique_ptr<PreparedCollective> collective);

}  // namespace sw
