#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "program/program.hpp"

namespace sw {

/// What one rank's collectives of one kind on one axis did, or are planned to do, in some number of
/// steps.
struct LedgerEntry {
  std::int64_t calls = 0;
  std::int64_t sent_bytes = 0;
  double seconds = 0;
  double wait_seconds = 0;
  friend bool operator==(const LedgerEntry&, const LedgerEntry&) = default;
};

/// (kind, axis) -> entry, of one rank.
using Ledger = std::map<std::pair<CollectiveKind, std::string>, LedgerEntry>;

/// A row over all ranks: calls and sent_bytes_per_rank are the largest over ranks, sent_bytes the
/// sum. Receives are in a rank's Ledger (for their waiting) and in no row.
struct LedgerRow {
  CollectiveKind kind = CollectiveKind::AllReduce;
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

/// What one rank's collectives will do in one run of `program`, from comm/traffic's formulas alone:
/// the plan.
[[nodiscard]] Ledger planned_ledger(const Program& program, Algorithm algorithm);

/// Seconds of the step in which no stream computes but at least one communicates.
[[nodiscard]] double exposed_communication(const Program& program, const Timeline& timeline);

}  // namespace sw
