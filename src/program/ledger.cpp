#include "program/ledger.hpp"

#include <algorithm>

#include "program/collective.hpp"

namespace sw {

std::string_view to_text(Traffic traffic) {
  if (const auto* kind = std::get_if<CollectiveKind>(&traffic)) return to_text(*kind);
  return std::get<CopyDirection>(traffic) == CopyDirection::ToHost ? "to_host" : "to_device";
}

Traffic traffic_from_text(std::string_view text) {
  for (const CopyDirection direction : {CopyDirection::ToHost, CopyDirection::ToDevice}) {
    if (text == to_text(direction)) return direction;
  }
  return collective_from_text(text);
}

bool communicates(const Instruction& instruction) {
  return std::holds_alternative<CollectiveWork>(instruction.work) ||
         std::holds_alternative<CopyWork>(instruction.work);
}

std::vector<LedgerRow> merge(const std::vector<Ledger>& ranks) {
  std::map<std::pair<Traffic, std::string>, LedgerRow> rows;
  for (const Ledger& ledger : ranks) {
    for (const auto& [key, entry] : ledger) {
      if (key.first == Traffic(CollectiveKind::Receive)) continue;
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

std::pair<Traffic, std::string> ledger_key(const Program& program, const Instruction& instruction) {
  if (const auto* work = std::get_if<CollectiveWork>(&instruction.work)) {
    return {work->kind, group_of(program, *work).axis};
  }
  const auto target = static_cast<std::size_t>(instruction.outputs.front().buffer);
  const bool to_host = program.buffers[target].lane == Lane::Host;
  return {to_host ? CopyDirection::ToHost : CopyDirection::ToDevice, "host"};
}

std::int64_t moved_bytes(const Program& program, const Instruction& instruction,
                         Algorithm algorithm) {
  return std::holds_alternative<CopyWork>(instruction.work)
             ? bytes_of(instruction.inputs.front())
             : sent_bytes(program, instruction, algorithm);
}

Ledger planned_ledger(const Program& program, Algorithm algorithm, Routes routes) {
  Ledger ledger;
  for (const Instruction& instruction : program.instructions) {
    if (!communicates(instruction)) continue;
    const auto* work = std::get_if<CollectiveWork>(&instruction.work);
    const bool routed = work != nullptr && work->routing != Routing::None;
    if (in_further_round(instruction) || (routed && routes == Routes::Apart)) continue;
    LedgerEntry& entry = ledger[ledger_key(program, instruction)];
    ++entry.calls;
    entry.sent_bytes += moved_bytes(program, instruction, algorithm);
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
    const int moves = communicates(instruction) ? 1 : 0;
    changes.push_back({entry.start, 1 - moves, moves});
    changes.push_back({entry.end, moves - 1, -moves});
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
