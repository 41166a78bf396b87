#pragma once

#include <string>
#include <vector>

#include "program/ledger.hpp"
#include "program/program.hpp"

namespace sw {

/// What a machine can do, as `calibrate` measures it or a cluster file says it.
struct Machine {
  std::string name = "default";
  double flops_per_s = 5e10;         ///< of one rank's matrix products, all its threads
  double memory_bytes_per_s = 1e10;  ///< of one rank's streaming kernels
  double link_bytes_per_s = 5e9;     ///< of one rank's collectives
  double link_latency_s = 5e-6;      ///< a round of a collective
  double host_link_bytes_per_s = 0;  ///< of copies between device and host, each way; 0 = of memory
  double instruction_s = 2e-6;       ///< overhead of any instruction
  double peak_flops_per_s = 0;       ///< of one rank, for the MFU; 0 = unknown
};

struct Simulation {
  std::vector<Timeline> timelines;  ///< per rank
  std::vector<Ledger> ledgers;      ///< per rank, one step, seconds filled in
  double step_seconds = 0;
};

/// Advances a clock over all ranks' Programs (ranks[r].rank == r) with `Order` and rendezvous of
/// collectives. Kernel time = max(flops / flops_per_s, bytes touched / memory_bytes_per_s) +
/// instruction_s; collective time by its bytes and rounds, a copy's by its bytes.
[[nodiscard]] Simulation simulate(const std::vector<Program>& ranks, Algorithm algorithm,
                                  const Machine& machine);

}  // namespace sw
