#include "program/ledger.hpp"

#include <algorithm>

#include "program/collective.hpp"

namespace sw {

std::vector<LedgerRow> merge(const std::vector<Ledger>& ranks) {
  std::map<std::pair<CollectiveKind, std::string>, LedgerRow> rows;
  for (const Ledger& ledger : ranks) {
    for (const auto& [key, entry] : ledger) {
      if (key.first == CollectiveKind::Receive) continue;
      LedgerRow& row = rows[key];
      row.kind = key.first;
      row.axis = key.second;
      row.calls = std::max(row.calls, entry.calls);
      row.sent_bytes_per_rank = std::max(row.sent_bytes_per_rank, entry.sent_bytes);
      row.sent_bytes += entry.sent_bytes;
      row.seconds = std::max(row.seconds, entry.seconds);
      row.wait_seconds = std::max(row.wait_seconds, entry.wait_seconds);
    }
  }
  std::vector<LedgerRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  return list;
}

Ledger planned_ledger(const Program& program, Algorithm algorithm) {
  Ledger ledger;
  for (const Instruction& instruction : program.instructions) {
    const auto* work = std::get_if<CollectiveWork>(&instruction.work);
    if (work == nullptr) continue;
    LedgerEntry& entry = ledger[{work->kind, group_of(program, *work).axis}];
    ++entry.calls;
    entry.sent_bytes += sent_bytes(program, instruction, algorithm);
  }
  return ledger;
}

double exposed_communication(const Program& program, const Timeline& timeline) {
  struct Change {
    double at = 0;
    int computing = 0;
    int communicating = 0;
  };
  std::vector<Change> changes;
  for (const TimelineEntry& entry : timeline) {
    const Instruction& instruction =
        program.instructions[static_cast<std::size_t>(entry.instruction)];
    const int communicates = std::holds_alternative<CollectiveWork>(instruction.work) ? 1 : 0;
    changes.push_back({entry.start, 1 - communicates, communicates});
    changes.push_back({entry.end, communicates - 1, -communicates});
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.at < b.at; });
  double exposed = 0;
  Change now;
  for (const Change& change : changes) {
    if (now.computing == 0 && now.communicating > 0) exposed += change.at - now.at;
    now = {change.at, now.computing + change.computing, now.communicating + change.communicating};
  }
  return exposed;
}

}  // namespace sw
