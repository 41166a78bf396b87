#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "comm/communicator.hpp"
#include "program/program.hpp"

namespace sw {

/// The way of a copy over the link between a device and its host.
enum class CopyDirection : std::uint8_t { ToHost, ToDevice };

/// What moves bytes: an operation of a communicator, or a copy.
using Traffic = std::variant<CollectiveKind, CopyDirection>;
[[nodiscard]] std::string_view to_text(Traffic traffic);  // "all_reduce", …, "to_host"
/// Throws ConfigError for another word.
[[nodiscard]] Traffic traffic_from_text(std::string_view text);

/// What one rank's traffic of one kind on one axis ("host" for copies) did, or is planned to do, in
/// some number of steps.
struct LedgerEntry {
  std::int64_t calls = 0;
  std::int64_t sent_bytes = 0;
  double seconds = 0;
  double wait_seconds = 0;
  friend bool operator==(const LedgerEntry&, const LedgerEntry&) = default;
};

/// (kind, axis) -> entry, of one rank.
using Ledger = std::map<std::pair<Traffic, std::string>, LedgerEntry>;

/// A row over all ranks: calls and sent_bytes_per_rank are the largest over ranks, sent_bytes the
/// sum. Receives are in a rank's Ledger (for their waiting) and in no row.
struct LedgerRow {
  Traffic kind;
  std::string axis;
  std::int64_t calls = 0;
  std::int64_t sent_bytes_per_rank = 0;
  std::int64_t sent_bytes = 0;
  double seconds = 0;       ///< largest over ranks
  double wait_seconds = 0;  ///< largest over ranks
};
[[nodiscard]] std::vector<LedgerRow> merge(const std::vector<Ledger>& ranks);

/// One instruction as it ran, or is predicted to run.
struct TimelineEntry {
  InstructionId instruction = 0;
  double start = 0;  ///< seconds from the step's start
  double end = 0;
};
using Timeline = std::vector<TimelineEntry>;

/// Whether it is of a further round: nothing is planned of these.
[[nodiscard]] inline bool in_further_round(const Instruction& instruction) {
  return instruction.round > 0;
}
/// Whether the instruction moves bytes instead of computing; where it is then counted, and the
/// bytes that this rank sends.
[[nodiscard]] bool communicates(const Instruction& instruction);
[[nodiscard]] std::pair<Traffic, std::string> ledger_key(const Program& program,
                                                         const Instruction& instruction);
[[nodiscard]] std::int64_t moved_bytes(const Program& program, const Instruction& instruction,
                                       Algorithm algorithm);

/// Collectives whose bytes are known only when they have run (Routing): planned as if every expert
/// were chosen equally often, or left out, to be planned from the routes that were taken.
enum class Routes : std::uint8_t { Even, Apart };
/// What one rank's traffic will be in one run of `program`, from comm/traffic's formulas and the
/// sizes of copies alone: the plan.
[[nodiscard]] Ledger planned_ledger(const Program& program, Algorithm algorithm,
                                    Routes routes = Routes::Even);

/// Seconds of the step in which no stream computes but at least one moves bytes.
[[nodiscard]] double exposed_communication(const Program& program, const Timeline& timeline);

}  // namespace sw
