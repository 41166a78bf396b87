#include "report/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/files.hpp"

namespace sw {
namespace {

constexpr std::int64_t kLimit = std::int64_t{1} << 32;

std::optional<double> number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? std::optional(found->get<double>())
                                                   : std::nullopt;
}

ReportedStep read_step(const Json& line) {
  return {line.at("step").get<std::int64_t>(),
          number(line, "loss"),
          number(line, "validation_loss"),
          line.at("step_seconds").get<double>(),
          line.at("tokens_per_second").get<double>(),
          number(line, "hottest_expert"),
          number(line, "idle_experts")};
}

/// A last line without its newline is being written just now, or was cut by a crash.
void read_metrics(const std::filesystem::path& path, RunReport& report) {
  const std::string text = read_whole_file(path, kLimit);
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       begin = end + 1, end = text.find('\n', begin)) {
    const Json line = parse_json(std::string_view(text).substr(begin, end - begin), path.string());
    report.steps.push_back(read_step(line));
    report.skipped_steps = line.value("skipped_steps", std::int64_t{0});
  }
}

Json read_json(const std::filesystem::path& path) {
  return is_there(path) ? parse_json(read_whole_file(path, kLimit), path.string()) : Json(nullptr);
}

}  // namespace

RunReport read_run_report(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw ConfigError(fmt::format("{}: there is no such run folder", folder.string()));
  }
  if (!is_there(folder / "metrics.jsonl")) {
    throw ConfigError(
        fmt::format("{} holds no metrics.jsonl, so it is no run folder", folder.string()));
  }
  RunReport report;
  report.folder = folder.string();
  try {
    read_metrics(folder / "metrics.jsonl", report);
    report.plan = read_json(folder / "plan.json");
    report.ledger = read_json(folder / "ledger.json");
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  } catch (const Json::exception& error) {
    throw ConfigError(fmt::format("{}: a line of metrics.jsonl is not one of ours: {}",
                                  folder.string(), error.what()));
  }
  return report;
}

std::optional<bool> planned_equals_measured(const RunReport& report) {
  if (report.ledger.is_null()) {
    return std::nullopt;
  }
  const auto same = [](const Json& row) {
    return std::ranges::all_of(
        std::initializer_list<const char*>{"calls", "sent_bytes_per_rank", "sent_bytes"},
        [&](const char* key) { return row.at("planned").at(key) == row.at("measured").at(key); });
  };
  const Json& collectives = report.ledger.at("collectives");
  const Json& memory = report.ledger.at("memory");
  const Json versions = report.ledger.value("versions", Json::array());
  const auto same_versions = [](const Json& row) {
    return row.at("planned") == row.at("measured");
  };
  return std::all_of(versions.begin(), versions.end(), same_versions) &&
         std::all_of(collectives.begin(), collectives.end(), same) &&
         std::all_of(memory.begin(), memory.end(), [](const Json& row) {
           // Runs before there was offloading have no word of the host.
           return row.at("planned_peak") == row.at("measured_peak") &&
                  row.value("planned_host", Json(0)) == row.value("measured_host", Json(0));
         });
}

double median_step_seconds(const RunReport& report) {
  std::vector<double> seconds;
  for (const ReportedStep& step : report.steps) {
    if (step.loss.has_value()) {
      seconds.push_back(step.step_seconds);
    }
  }
  if (seconds.size() > 1) {
    seconds.erase(seconds.begin());
  }
  if (seconds.empty()) {
    return 0;
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace sw
