#include "program/versions.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "program/lifetime.hpp"

namespace sw {
namespace {

/// Weights as kernels read them: those of the State, and copies of earlier versions.
bool holds_weights(const Program& program, const Operand& operand) {
  return operand.buffer >= 0 &&
         program.buffers[static_cast<std::size_t>(operand.buffer)].category == Category::Parameters;
}

bool is_stash(const Program& program, BufferId buffer) {
  const Buffer& of = program.buffers[static_cast<std::size_t>(buffer)];
  return of.category == Category::Parameters && !of.persistent;
}

/// Follows the versions of a Program's buffers of weights through a run.
class Versions {
 public:
  Versions(const Program& program, const Timeline& timeline)
      : program_(program), starts_(timeline.size()) {
    for (const TimelineEntry& entry : timeline) {
      const auto i = static_cast<std::size_t>(entry.instruction);
      starts_[i] = entry.start;
      const Instruction& instruction = program.instructions[i];
      for (const Operand& output : instruction.outputs) {
        if (!holds_weights(program, output)) {
          continue;
        }
        if (is_stash(program, output.buffer)) {
          copies_[output.buffer] = entry.instruction;
        } else {  // an update of one rank's part, or the gathering of all parts
          double& end = updates_[output.buffer][instruction.micro_batch];
          end = std::max(end, entry.end);
        }
      }
    }
    std::set<int> last;
    for (const auto& [buffer, by_micro_batch] : updates_) {
      for (const auto& [micro_batch, end] : by_micro_batch) {
        last.insert(micro_batch);
      }
    }
    last_micro_batches_.assign(last.begin(), last.end());
  }

  std::vector<VersionUse> run() {
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      if (instruction.phase == Phase::Window) {
        continue;
      }
      for (const Operand& input : instruction.inputs) {
        if (const auto version = version_of(input, starts_[i])) {
          note(instruction, *version);
        }
      }
    }
    std::vector<VersionUse> result;
    for (const auto& [micro_batch, versions] : used_) {
      const auto update =
          std::lower_bound(last_micro_batches_.begin(), last_micro_batches_.end(), micro_batch);
      const int forward = versions[0].value_or(versions[1].value_or(0));
      result.push_back({micro_batch, forward, versions[1].value_or(forward),
                        static_cast<int>(update - last_micro_batches_.begin())});
    }
    return result;
  }

 private:
  /// None for what is no weight, or one that is never updated.
  [[nodiscard]] std::optional<int> version_of(const Operand& operand, double time) const {
    if (!holds_weights(program_, operand)) {
      return std::nullopt;
    }
    BufferId buffer = operand.buffer;
    if (is_stash(program_, buffer)) {
      const InstructionId copy = copies_.at(buffer);
      time = starts_[static_cast<std::size_t>(copy)];
      buffer = program_.instructions[static_cast<std::size_t>(copy)].inputs.front().buffer;
    }
    const auto updates = updates_.find(buffer);
    if (updates == updates_.end()) {
      return std::nullopt;
    }
    return static_cast<int>(std::count_if(updates->second.begin(), updates->second.end(),
                                          [&](const auto& made) { return made.second <= time; }));
  }

  void note(const Instruction& instruction, int version) {
    std::optional<int>& noted =
        used_[instruction.micro_batch][instruction.phase == Phase::Forward ? 0 : 1];
    SW_CHECK(
        noted.value_or(version) == version,
        "rank {}: micro-batch {} reads version {} of the weights in '{}' and version {} before",
        program_.rank, instruction.micro_batch, version, instruction.name, *noted);
    noted = version;
  }

  const Program& program_;
  std::vector<double> starts_;
  std::map<BufferId, InstructionId> copies_;
  std::map<BufferId, std::map<int, double>> updates_;  ///< by the micro-batch after which, its end
  std::vector<int> last_micro_batches_;                ///< of each update
  std::map<int, std::array<std::optional<int>, 2>> used_;
};

}  // namespace

std::vector<VersionUse> version_uses(const Program& program, const Timeline& timeline) {
  return updates_of(program) > 1 ? Versions(program, timeline).run() : std::vector<VersionUse>{};
}

Timeline list_order(const Program& program) {
  Timeline timeline;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const auto start = static_cast<double>(i);
    timeline.push_back({static_cast<InstructionId>(i), start, start + 1});
  }
  return timeline;
}

Json to_json(const std::vector<VersionUse>& uses) {
  Json rows = Json::array();
  for (const VersionUse& use : uses) {
    rows.push_back({use.forward, use.backward, use.update});
  }
  return rows;
}

int most_stale(const std::vector<VersionUse>& uses) {
  int most = 0;
  for (const VersionUse& use : uses) {
    most = std::max(most, use.staleness());
  }
  return most;
}

KeptVersions kept_versions(const Program& program) {
  KeptVersions kept;
  std::vector<BufferId> stashes;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (is_stash(program, static_cast<BufferId>(b))) {
      stashes.push_back(static_cast<BufferId>(b));
    }
  }
  if (stashes.empty()) {
    return kept;
  }
  const Lifetimes lifetimes(program, Order(program));
  std::map<BufferId, BufferId> weights_of;
  for (const Instruction& instruction : program.instructions) {
    for (const Operand& output : instruction.outputs) {
      if (output.buffer >= 0 && is_stash(program, output.buffer)) {
        weights_of[output.buffer] = instruction.inputs.front().buffer;
      }
    }
  }
  for (const BufferId now : stashes) {
    std::int64_t bytes = 0;
    int copies = 0;
    for (const BufferId other : stashes) {
      const InstructionId begin = lifetimes.first(now);
      if (lifetimes.first(other) <= begin && begin <= lifetimes.last(other)) {
        bytes += program.buffers[static_cast<std::size_t>(other)].bytes;
        copies += weights_of.at(other) == weights_of.at(now) ? 1 : 0;
      }
    }
    kept.versions = std::max(kept.versions, 1 + copies);
    kept.stashed_bytes = std::max(kept.stashed_bytes, bytes);
  }
  return kept;
}

}  // namespace sw
