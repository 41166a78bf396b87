#include "plan/plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/error.hpp"

namespace sw {
namespace {

/// Seconds in which a stream ran something.
double busy_seconds(const Program& program, const Timeline& timeline, StreamId stream) {
  double busy = 0;
  for (const TimelineEntry& entry : timeline) {
    const Instruction& instruction =
        program.instructions[static_cast<std::size_t>(entry.instruction)];
    busy +=
        instruction.stream == stream && !communicates(instruction) ? entry.end - entry.start : 0;
  }
  return busy;
}

struct MemoryColumn {
  const char* name;
  std::int64_t MemoryAccount::*member;
};
constexpr std::array<MemoryColumn, 9> kMemoryColumns{{
    {"parameters", &MemoryAccount::parameters},
    {"gradients", &MemoryAccount::gradients},
    {"optimizer", &MemoryAccount::optimizer},
    {"activations", &MemoryAccount::activations},
    {"communication", &MemoryAccount::communication},
    {"workspace", &MemoryAccount::workspace},
    {"gaps", &MemoryAccount::gaps},
    {"peak", &MemoryAccount::peak},
    {"host", &MemoryAccount::host},
}};

/// Columns of the table for people: that of the host only where something is there.
std::span<const MemoryColumn> shown_columns(const std::vector<MemoryAccount>& memory) {
  const bool host = std::any_of(memory.begin(), memory.end(),
                                [](const MemoryAccount& account) { return account.host > 0; });
  return std::span(kMemoryColumns).first(kMemoryColumns.size() - (host ? 0 : 1));
}

Json to_json(const KeptVersions& kept, const std::vector<VersionUse>& uses) {
  return {{"kept", kept.versions},
          {"stashed_bytes", kept.stashed_bytes},
          {"staleness", most_stale(uses)},
          {"micro_batches", to_json(uses)}};
}

/// A line per rank: versions kept and their memory, then those that each micro-batch goes through.
std::string versions_text(const RunPlan& plan) {
  if (std::all_of(plan.versions.begin(), plan.versions.end(),
                  [](const auto& of_rank) { return of_rank.empty(); })) {
    return "";
  }
  std::string text = fmt::format("\nversions of weights\n  {:>4} {:>5} {:>13} {:>10}  {}\n", "rank",
                                 "kept", "stashed", "staleness", "by micro-batch");
  for (std::size_t rank = 0; rank < plan.versions.size(); ++rank) {
    std::vector<int> versions;
    for (const VersionUse& use : plan.versions[rank]) {
      versions.push_back(use.backward);
    }
    text += fmt::format("  {:>4} {:>5} {:>13} {:>10}  {}\n", rank, plan.kept[rank].versions,
                        binary_bytes(plan.kept[rank].stashed_bytes),
                        most_stale(plan.versions[rank]), fmt::join(versions, " "));
  }
  return text;
}

}  // namespace

RunPlan make_plan(const Compilation& compilation, const Machine& machine) {
  RunPlan plan;
  plan.layout = compilation.options().parallel.layout;
  std::vector<Program> programs;
  for (int rank = 0; rank < compilation.world(); ++rank) {
    programs.push_back(compilation.training(rank));
    plan.memory.push_back(memory_account(programs.back()));
  }
  verify(programs);
  const ParallelOptions& parallel = compilation.options().parallel;
  Machine linked = machine;
  linked.host_link_bytes_per_s = parallel.offload_gb_per_s * 1e9;
  const Simulation simulation = simulate(programs, parallel.algorithm, linked);
  plan.collectives = merge(simulation.ledgers);
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    plan.kept.push_back(kept_versions(programs[rank]));
    plan.versions.push_back(version_uses(programs[rank], simulation.timelines[rank]));
  }
  plan.step_seconds = simulation.step_seconds;
  const double tokens =
      static_cast<double>(compilation.rows_per_window() * compilation.options().sequence);
  plan.tokens_per_second = tokens / plan.step_seconds;
  if (machine.peak_flops_per_s > 0) {
    plan.mfu = compilation.model_flops_per_window() /
               (plan.step_seconds * machine.peak_flops_per_s * compilation.world());
  }
  double idle = 0;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const double exposed = exposed_communication(programs[rank], simulation.timelines[rank]);
    plan.exposed_communication_seconds = std::max(plan.exposed_communication_seconds, exposed);
    idle +=
        plan.step_seconds - busy_seconds(programs[rank], simulation.timelines[rank], 0) - exposed;
  }
  plan.bubble = std::max(0.0, idle / (plan.step_seconds * static_cast<double>(programs.size())));
  plan.notes = programs.front().notes;
  plan.notes.push_back(fmt::format(
      "time is predicted for machine '{}'; memory, bytes and calls are exact", machine.name));
  return plan;
}

std::string binary_bytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

Json to_json(const RunPlan& plan) {
  Json json;
  const Layout& layout = plan.layout;
  json["world"] = layout.world();
  json["layout"] = {{"pp", layout.pp},
                    {"dp", layout.dp},
                    {"cp", layout.cp},
                    {"tp", layout.tp},
                    {"ep", layout.ep}};
  json["ranks"] = Json::array();
  for (std::size_t rank = 0; rank < plan.memory.size(); ++rank) {
    Json memory;
    for (const MemoryColumn& column : kMemoryColumns) {
      memory[column.name] = plan.memory[rank].*column.member;
    }
    json["ranks"].push_back({{"rank", rank}, {"memory", memory}});
    if (!plan.versions[rank].empty()) {
      json["ranks"].back()["versions"] = to_json(plan.kept[rank], plan.versions[rank]);
    }
  }
  json["collectives"] = Json::array();
  for (const LedgerRow& row : plan.collectives) {
    json["collectives"].push_back({{"kind", to_text(row.kind)},
                                   {"axis", row.axis},
                                   {"calls", row.calls},
                                   {"sent_bytes_per_rank", row.sent_bytes_per_rank},
                                   {"sent_bytes", row.sent_bytes},
                                   {"seconds", row.seconds}});
  }
  json["step_seconds"] = plan.step_seconds;
  json["tokens_per_second"] = plan.tokens_per_second;
  json["mfu"] = plan.mfu.has_value() ? Json(*plan.mfu) : Json(nullptr);
  json["bubble"] = plan.bubble;
  json["exposed_communication_seconds"] = plan.exposed_communication_seconds;
  json["notes"] = plan.notes;
  return json;
}

std::string to_text(const RunPlan& plan) {
  const Layout& layout = plan.layout;
  std::string text =
      fmt::format("layout: {} ranks = pp {} x dp {} x cp {} x tp {}{}\n\nmemory per rank\n  {:>4}",
                  layout.world(), layout.pp, layout.dp, layout.cp, layout.tp,
                  layout.ep > 1 ? fmt::format(", experts on ep {}", layout.ep) : "", "rank");
  const std::span<const MemoryColumn> columns = shown_columns(plan.memory);
  for (const MemoryColumn& column : columns) {
    text += fmt::format(" {:>13}", column.name);
  }
  for (std::size_t rank = 0; rank < plan.memory.size(); ++rank) {
    text += fmt::format("\n  {:>4}", rank);
    for (const MemoryColumn& column : columns) {
      text += fmt::format(" {:>13}", binary_bytes(plan.memory[rank].*column.member));
    }
  }
  text += '\n' + versions_text(plan);
  std::size_t axis_width = 8;
  for (const LedgerRow& row : plan.collectives) {
    axis_width = std::max(axis_width, row.axis.size());
  }
  text += fmt::format("\ncollectives per step\n  {:<16} {:<{}} {:>6} {:>18} {:>16}\n", "kind",
                      "axis", axis_width, "calls", "sent per rank", "sent in all");
  for (const LedgerRow& row : plan.collectives) {
    text += fmt::format("  {:<16} {:<{}} {:>6} {:>18} {:>16}\n", to_text(row.kind), row.axis,
                        axis_width, row.calls, binary_bytes(row.sent_bytes_per_rank),
                        binary_bytes(row.sent_bytes));
  }
  if (plan.collectives.empty()) {
    text += "  none\n";
  }
  text += fmt::format(
      "\nstep {:.4f} s   {:.0f} tokens/s   exposed communication {:.4f} s   bubble {:.1f} %   MFU "
      "{}\n",
      plan.step_seconds, plan.tokens_per_second, plan.exposed_communication_seconds,
      100 * plan.bubble,
      plan.mfu.has_value() ? fmt::format("{:.1f} %", 100 * *plan.mfu)
                           : "unknown (run `shardwright calibrate`)");
  for (const std::string& note : plan.notes) {
    text += fmt::format("note: {}\n", note);
  }
  return text;
}

}  // namespace sw
