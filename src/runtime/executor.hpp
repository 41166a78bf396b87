#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "device/arena.hpp"
#include "program/ledger.hpp"
#include "program/program.hpp"

namespace sw {

/// The memory of a rank: the private arena, the window and the host's, filled with the pattern that
/// tells touched bytes from untouched ones. Shared by the Programs of a run. Each is longer than
/// planned by a guard, so that a write past the plan shows as a measured peak above it.
class RankMemory {
 public:
  /// Large enough for each of `programs`; collective over `world` (it allocates the window).
  /// `control_bytes` more of the window are for control traffic: in no Program, not planned.
  RankMemory(World& world, std::span<const Program* const> programs,
             std::int64_t control_bytes = 0);
  [[nodiscard]] std::span<std::byte> control() const { return control_; }
  [[nodiscard]] std::byte* address(const Program& program, const Operand& operand) const;
  /// Highest byte touched in the private arena plus highest touched in the window: the measured
  /// peak. Equal to MemoryAccount::peak once a Program has run with its persistent buffers written.
  [[nodiscard]] std::int64_t measured_peak() const;
  /// The same of the host's memory; equal to MemoryAccount::host.
  [[nodiscard]] std::int64_t measured_host() const;

 private:
  [[nodiscard]] std::span<std::byte> lane(Lane lane) const;

  Arena private_;
  Arena host_;
  std::span<std::byte> window_;
  std::span<std::byte> control_;
};

struct ExecutorOptions {
  Algorithm algorithm = Algorithm::Direct;
  int threads = 1;
  bool may_spin = true;
  /// Copies between device and host take as long as on a link of this speed, each way; 0 = as fast
  /// as this machine's memory.
  double host_link_bytes_per_s = 0;
};

/// Runs one Program of one rank again and again. Everything is prepared in the constructor
/// (collective over the world: it makes the communicators).
class Executor {
 public:
  Executor(const Program& program, World& world, RankMemory& memory, Team& team,
           const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// One run of the Program; returns when all streams are done. Host operands are written before
  /// and read after by the caller. Throws the first error of any stream, after aborting the world;
  /// the executor is of no use then. Allocates nothing.
  void run();

  /// Of all runs since construction or the last `reset_ledger`.
  [[nodiscard]] Ledger ledger() const;
  void reset_ledger();
  /// Of the same runs, what the tables of routes said that collectives with routing had to send.
  [[nodiscard]] Ledger routed() const;
  /// Of the last run.
  [[nodiscard]] const Timeline& timeline() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sw
