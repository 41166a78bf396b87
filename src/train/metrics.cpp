#include "train/metrics.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"

namespace sw {
namespace {

Json number(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string duration(double seconds) {
  const auto whole = std::llround(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

/// The lines of steps up to `keep_until`, as they are.
std::string kept_lines(const std::filesystem::path& path, std::int64_t keep_until) {
  if (keep_until == 0 || !is_there(path)) {
    return {};
  }
  constexpr std::int64_t kLimit = std::int64_t{1} << 32;
  const std::string all = read_whole_file(path, kLimit);
  std::string kept;
  std::size_t begin = 0;
  for (std::size_t end = all.find('\n'); end != std::string::npos;
       begin = end + 1, end = all.find('\n', begin)) {
    const std::string line = all.substr(begin, end - begin);
    const Json json = parse_json(line, path.string());
    if (json.value("step", std::int64_t{0}) <= keep_until) {
      kept += line + "\n";
    }
  }
  return kept;
}

/// The largest sum of `parts` equal runs of a layer's loads, of what an even one would be; 0 if
/// nothing was chosen.
double hottest_part(std::span<const std::int64_t> load, std::size_t parts) {
  const std::size_t experts = load.size() / parts;
  std::int64_t all = 0;
  std::int64_t most = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    const auto run = load.subspan(part * experts, experts);
    const std::int64_t here = std::accumulate(run.begin(), run.end(), std::int64_t{0});
    most = std::max(most, here);
    all += here;
  }
  return all == 0
             ? 0
             : static_cast<double>(most) / static_cast<double>(all) * static_cast<double>(parts);
}

}  // namespace

std::string to_json_line(const StepMetrics& metrics) {
  Json line;
  line["step"] = metrics.step;
  line["loss"] = number(metrics.loss);
  if (metrics.balance_loss.has_value()) {
    line["balance_loss"] = *metrics.balance_loss;
  }
  if (metrics.z_loss.has_value()) {
    line["z_loss"] = *metrics.z_loss;
  }
  if (metrics.experts.has_value()) {
    line["expert_load"] = metrics.experts->slots;
    line["hottest_expert"] = metrics.experts->hottest;
    line["idle_experts"] = metrics.experts->idle;
    line["hottest_rank"] = metrics.experts->hottest_rank;
    if (metrics.experts->dropped.has_value()) {
      line["dropped_slots"] = *metrics.experts->dropped;
    }
  }
  line["tokens"] = metrics.tokens;
  line["valid_tokens"] = metrics.valid_tokens;
  line["samples"] = metrics.samples;
  line["unique_samples"] = metrics.unique_samples;
  line["consumed_samples"] = metrics.consumed_samples;
  line["skipped_steps"] = metrics.skipped_steps;
  if (!metrics.skipped.empty()) {
    line["skipped"] = metrics.skipped;
  }
  line["learning_rate"] = metrics.learning_rate;
  line["gradient_norm"] = number(metrics.gradient_norm);
  line["step_seconds"] = metrics.step_seconds;
  line["tokens_per_second"] = metrics.tokens_per_second;
  line["mfu"] = number(metrics.mfu);
  line["communication_seconds"] = metrics.communication_seconds;
  line["exposed_communication_seconds"] = metrics.exposed_communication_seconds;
  line["wait_seconds"] = metrics.wait_seconds;
  line["slowest_rank"] = metrics.slowest_rank;
  line["peak_bytes"] = metrics.peak_bytes;
  if (!metrics.staleness.empty()) {
    line["staleness"] = metrics.staleness;
  }
  if (metrics.validation_loss.has_value()) {
    line["validation_loss"] = *metrics.validation_loss;
    line["validation_tokens"] = metrics.validation_tokens;
  }
  return line.dump();
}

ExpertLoad expert_load(std::span<const std::int64_t> load, std::int64_t experts, int ranks) {
  const auto width = static_cast<std::size_t>(experts);
  ExpertLoad result;
  result.slots.assign(width, 0);
  for (std::size_t layer = 0; layer < load.size(); layer += width) {
    const auto of_layer = load.subspan(layer, width);
    std::transform(of_layer.begin(), of_layer.end(), result.slots.begin(), result.slots.begin(),
                   std::plus<>());
    result.hottest = std::max(result.hottest, hottest_part(of_layer, width));
    result.hottest_rank =
        std::max(result.hottest_rank, hottest_part(of_layer, static_cast<std::size_t>(ranks)));
    result.idle += std::count(of_layer.begin(), of_layer.end(), 0);
  }
  return result;
}

StepFile::StepFile(Files& files, const std::filesystem::path& path, std::int64_t keep_until) {
  write_whole_file(files, path, kept_lines(path, keep_until));
  file_ = files.append(path);
}

void StepFile::add(const std::string& line) {
  const std::string whole = line + "\n";
  file_->write(std::as_bytes(std::span(whole)));
}

Progress::Progress(std::int64_t first_step, std::int64_t last_step)
    : first_(first_step),
      last_(last_step),
      terminal_(::isatty(STDERR_FILENO) != 0),
      started_(now()) {}

void Progress::show(const StepMetrics& metrics) {
  const double elapsed = now() - started_;
  const auto done = static_cast<double>(metrics.step - first_);
  const double left = done > 0 ? elapsed / done * static_cast<double>(last_ - metrics.step) : 0;
  const std::string loss = metrics.loss.has_value() ? fmt::format("{:.4f}", *metrics.loss) : "-";
  std::string text = fmt::format("step {}/{}  loss {}  {:.0f} tokens/s  {} left", metrics.step,
                                 last_, loss, metrics.tokens_per_second, duration(left));
  if (metrics.validation_loss.has_value()) {
    text += fmt::format("  validation {:.4f}", *metrics.validation_loss);
  }
  if (!metrics.skipped.empty()) {
    text += fmt::format("  skipped: {}", metrics.skipped);
  }
  if (!terminal_) {
    fmt::print(stderr, "{}\n", text);
    return;
  }
  constexpr int kWidth = 24;
  const auto filled = static_cast<int>(
      static_cast<double>(kWidth) * static_cast<double>(metrics.step) / static_cast<double>(last_));
  fmt::print(stderr, "\r\033[K[{:-<{}}] {}", std::string(static_cast<std::size_t>(filled), '#'),
             kWidth, text);
  std::fflush(stderr);
}

void Progress::finish() {
  if (terminal_) {
    fmt::print(stderr, "\n");
  }
}

}  // namespace sw
