#include "simulate/simulate.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "program/collective.hpp"
#include "program/rendezvous.hpp"

namespace sw {
namespace {

std::int64_t touched_bytes(const Instruction& instruction) {
  std::int64_t bytes = 0;
  for (const Operand& operand : instruction.outputs) bytes += bytes_of(operand);
  // A slice reads no more than it writes.
  if (std::holds_alternative<SliceWork>(instruction.work)) return 2 * bytes;
  for (const Operand& operand : instruction.inputs) bytes += bytes_of(operand);
  return bytes;
}

/// Of an instruction that does not wait; of a collective, once all members have arrived.
double seconds_of(const Program& program, const Instruction& instruction, Algorithm algorithm,
                  const Machine& machine) {
  if (in_further_round(instruction)) return 0;
  if (const auto* work = std::get_if<CollectiveWork>(&instruction.work)) {
    const auto ranks = static_cast<int>(group_of(program, *work).members.size());
    const int steps = rounds(work->kind, algorithm_for(work->kind, algorithm), ranks);
    return machine.instruction_s + machine.link_latency_s * steps +
           static_cast<double>(sent_bytes(program, instruction, algorithm)) /
               machine.link_bytes_per_s;
  }
  if (std::holds_alternative<CopyWork>(instruction.work)) {
    const double rate = machine.host_link_bytes_per_s > 0 ? machine.host_link_bytes_per_s
                                                          : machine.memory_bytes_per_s;
    return machine.instruction_s +
           static_cast<double>(moved_bytes(program, instruction, algorithm)) / rate;
  }
  return machine.instruction_s +
         std::max(instruction.flops / machine.flops_per_s,
                  static_cast<double>(touched_bytes(instruction)) / machine.memory_bytes_per_s);
}

Ledger ledger_of(const Program& program, const std::vector<Moment>& moments, Algorithm algorithm) {
  Ledger ledger;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!communicates(instruction) || in_further_round(instruction)) continue;
    LedgerEntry& entry = ledger[ledger_key(program, instruction)];
    ++entry.calls;
    entry.sent_bytes += moved_bytes(program, instruction, algorithm);
    entry.seconds += moments[i].end - moments[i].start;
    entry.wait_seconds += moments[i].begin - moments[i].start;
  }
  return ledger;
}

}  // namespace

Simulation simulate(const std::vector<Program>& ranks, Algorithm algorithm,
                    const Machine& machine) {
  const Rendezvous rendezvous(ranks);
  std::vector<std::vector<double>> seconds;
  for (const Program& program : ranks) {
    std::vector<double>& mine = seconds.emplace_back();
    for (const Instruction& instruction : program.instructions) {
      mine.push_back(seconds_of(program, instruction, algorithm, machine));
    }
  }
  const Course course = run_course(ranks, rendezvous, seconds);
  SW_CHECK(course.deadlock.empty(),
           "Programs that deadlock cannot be simulated; verify them first");
  Simulation simulation;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<Moment>& moments = course.moments[r];
    Timeline& timeline = simulation.timelines.emplace_back();
    for (std::size_t i = 0; i < moments.size(); ++i) {
      timeline.push_back({static_cast<InstructionId>(i), moments[i].start, moments[i].end});
      simulation.step_seconds = std::max(simulation.step_seconds, moments[i].end);
    }
    simulation.ledgers.push_back(ledger_of(ranks[r], moments, algorithm));
  }
  return simulation;
}

}  // namespace sw
