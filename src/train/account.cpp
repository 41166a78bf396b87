#include "train/account.hpp"

#include <fstream>
#include <map>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"

namespace sw {
namespace {

constexpr std::int64_t kFileLimit = std::int64_t{1} << 30;

Json to_json(const Ledger& ledger) {
  Json rows = Json::array();
  for (const auto& [key, entry] : ledger) {
    rows.push_back({{"kind", to_text(key.first)},
                    {"axis", key.second},
                    {"calls", entry.calls},
                    {"sent_bytes", entry.sent_bytes},
                    {"seconds", entry.seconds},
                    {"wait_seconds", entry.wait_seconds}});
  }
  return rows;
}

Ledger ledger_from(const Json& rows) {
  Ledger ledger;
  for (const Json& row : rows) {
    ledger[{traffic_from_text(row.at("kind").get<std::string>()),
            row.at("axis").get<std::string>()}] = {row.at("calls"), row.at("sent_bytes"),
                                                   row.at("seconds"), row.at("wait_seconds")};
  }
  return ledger;
}

/// Chrome's trace events of one step: a process per rank, a thread per stream.
Json trace_events(const Program& program, const Timeline& timeline) {
  static constexpr const char* kPhases[] = {"forward", "backward", "window"};
  Json events = Json::array();
  events.push_back({{"ph", "M"},
                    {"name", "process_name"},
                    {"pid", program.rank},
                    {"args", {{"name", fmt::format("rank {}", program.rank)}}}});
  for (std::size_t s = 0; s < program.streams.size(); ++s) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", program.rank},
                      {"tid", s},
                      {"args", {{"name", program.streams[s]}}}});
  }
  for (const TimelineEntry& entry : timeline) {
    const Instruction& instruction =
        program.instructions[static_cast<std::size_t>(entry.instruction)];
    events.push_back({{"ph", "X"},
                      {"name", instruction.name},
                      {"cat", kPhases[static_cast<std::size_t>(instruction.phase)]},
                      {"pid", program.rank},
                      {"tid", instruction.stream},
                      {"ts", entry.start * 1e6},
                      {"dur", (entry.end - entry.start) * 1e6}});
  }
  return events;
}

/// By micro-batch of the last step: the versions of its forward and backward, and the update that
/// its gradient was for.
Json versions_json(const Session& session) {
  const std::vector<VersionUse> planned = session.planned_versions();
  return planned.empty() ? Json(nullptr)
                         : Json{{"rank", session.training_program().rank},
                                {"planned", to_json(planned)},
                                {"measured", to_json(session.version_uses())}};
}

/// Peak memory of the job's control group, where one can be read.
Json process_peak(std::size_t ranks) {
  std::ifstream file("/sys/fs/cgroup/memory.peak");
  double bytes = 0;
  return file >> bytes ? Json(static_cast<std::int64_t>(bytes / static_cast<double>(ranks)))
                       : Json(nullptr);
}

struct Both {
  std::vector<Ledger> planned, measured;
};

std::map<std::pair<Traffic, std::string>, LedgerRow> by_key(const std::vector<Ledger>& ledgers) {
  std::map<std::pair<Traffic, std::string>, LedgerRow> rows;
  for (const LedgerRow& row : merge(ledgers)) {
    rows[{row.kind, row.axis}] = row;
  }
  return rows;
}

/// A line per kind and axis; `equal` becomes false where planned and measured differ.
Json collective_rows(const Both& both, bool& equal) {
  const auto planned = by_key(both.planned);
  auto measured = by_key(both.measured);
  Json rows = Json::array();
  const auto integers = [](const LedgerRow& row) {
    return Json{{"calls", row.calls},
                {"sent_bytes_per_rank", row.sent_bytes_per_rank},
                {"sent_bytes", row.sent_bytes}};
  };
  for (const auto& [key, plan] : planned) {
    const LedgerRow found = measured[key];
    equal = equal && plan.calls == found.calls && plan.sent_bytes == found.sent_bytes &&
            plan.sent_bytes_per_rank == found.sent_bytes_per_rank;
    Json run = integers(found);
    run["seconds"] = found.seconds;
    run["wait_seconds"] = found.wait_seconds;
    rows.push_back({{"kind", to_text(key.first)},
                    {"axis", key.second},
                    {"planned", integers(plan)},
                    {"measured", run}});
  }
  equal = equal && measured.size() == planned.size();
  return rows;
}

}  // namespace

void write_rank_account(const std::filesystem::path& path, const Session& session,
                        std::int64_t steps) {
  Json account;
  account["rank"] = session.training_program().rank;
  account["steps"] = steps;
  account["planned"] = to_json(session.planned());
  account["measured"] = to_json(session.measured());
  account["planned_peak"] = session.planned_peak();
  account["measured_peak"] = session.measured_peak();
  account["planned_host"] = session.planned_host();
  account["measured_host"] = session.measured_host();
  account["versions"] = versions_json(session);
  account["trace"] = trace_events(session.training_program(), session.timeline());
  write_whole_file(real_files(), path, account.dump());
}

bool merge_rank_accounts(const std::filesystem::path& run_folder,
                         const std::vector<std::filesystem::path>& ranks) {
  Both both;
  Json ledger;
  Json memory = Json::array();
  Json trace = Json::array();
  Json versions = Json::array();
  bool equal = true;
  for (const std::filesystem::path& path : ranks) {
    const Json account = parse_json(read_whole_file(path, kFileLimit), path.string());
    both.planned.push_back(ledger_from(account.at("planned")));
    both.measured.push_back(ledger_from(account.at("measured")));
    ledger["steps"] = account.at("steps");
    memory.push_back({{"rank", account.at("rank")},
                      {"planned_peak", account.at("planned_peak")},
                      {"measured_peak", account.at("measured_peak")},
                      {"planned_host", account.at("planned_host")},
                      {"measured_host", account.at("measured_host")}});
    equal = equal && account.at("planned_peak") == account.at("measured_peak") &&
            account.at("planned_host") == account.at("measured_host");
    if (const Json& used = account.at("versions"); !used.is_null()) {
      versions.push_back(used);
      equal = equal && used.at("planned") == used.at("measured");
    }
    for (const Json& event : account.at("trace")) {
      trace.push_back(event);
    }
  }
  ledger["collectives"] = collective_rows(both, equal);
  ledger["memory"] = memory;
  if (!versions.empty()) {
    ledger["versions"] = versions;
  }
  ledger["process_peak"] = process_peak(ranks.size());
  ledger["equal"] = equal;
  Files& files = real_files();
  write_whole_file(files, run_folder / "ledger.json", ledger.dump(1) + "\n");
  write_whole_file(files, run_folder / "trace.json", Json{{"traceEvents", trace}}.dump() + "\n");
  for (const std::filesystem::path& path : ranks) {
    files.remove_all(path);
  }
  return equal;
}

}  // namespace sw
