#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "lower/compile.hpp"
#include "program/versions.hpp"
#include "simulate/simulate.hpp"
#include "tests/lower/plans.hpp"

namespace sw {
namespace {

using ::testing::HasSubstr;

CompileOptions asynchronous(int pp, PipelineSchedule schedule, int micro_batches) {
  CompileOptions options = test::options_of(1, 1, 0);
  options.model.layers = 5;
  options.parallel.layout.pp = pp;
  options.parallel.pipeline = schedule;
  options.optimizer.gradient_clip = 0;
  options.accumulation = micro_batches;
  return options;
}

std::vector<Program> programs_of(const Compilation& compilation) {
  std::vector<Program> programs;
  for (int rank = 0; rank < compilation.world(); ++rank) {
    programs.push_back(compilation.training(rank));
  }
  return programs;
}

/// Of a rank's weights, and of those among them that backwards read: all but the embedding's.
std::int64_t weight_bytes(const Program& program, bool of_backwards = false) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : program.buffers) {
    const bool weights = buffer.persistent && buffer.category == Category::Parameters;
    const bool embedding = buffer.name.find("embed") != std::string::npos;
    bytes += weights && !(of_backwards && embedding) ? buffer.bytes : 0;
  }
  return bytes;
}

/// Stage s of P: micro-batch m after m - (P - 1 - s) updates; P - s versions at once, those that it
/// does not update in copies of what backwards read.
TEST(PipeDreamPrograms, KeepTheVersionsOfTheClosedForm) {
  for (const auto& [stages, micro_batches] :
       {std::pair(2, 4), std::pair(3, 5), std::pair(4, 7), std::pair(5, 7), std::pair(5, 12)}) {
    const auto schedule = PipelineSchedule::PipeDream;
    const Compilation compilation(asynchronous(stages, schedule, micro_batches));
    const std::vector<Program> programs = programs_of(compilation);
    verify(programs);  // none waits for another for ever
    const Simulation simulation = simulate(programs, Algorithm::Direct, Machine{});
    for (int stage = 0; stage < stages; ++stage) {
      const auto s = static_cast<std::size_t>(stage);
      const int behind = stages - 1 - stage;
      std::vector<VersionUse> expected;
      for (int m = 0; m < micro_batches; ++m) {
        const int version = std::max(0, m - behind);
        expected.push_back({m, version, version, m});
      }
      EXPECT_EQ(version_uses(programs[s], list_order(programs[s])), expected);
      EXPECT_EQ(version_uses(programs[s], simulation.timelines[s]), expected);
      EXPECT_EQ(most_stale(expected), behind);
      // P - s versions, or as many as a short window has.
      const int copies = std::min(behind, micro_batches - behind);
      const KeptVersions kept = kept_versions(programs[s]);
      EXPECT_EQ(kept.versions, 1 + copies);
      EXPECT_EQ(kept.stashed_bytes, copies * weight_bytes(programs[s], true));
    }
  }
}

/// All stages the same: one update behind, two versions.
TEST(PipeDream2BWPrograms, KeepTwoVersionsOnEveryStage) {
  for (int stages = 2; stages <= 5; ++stages) {
    const int micro_batches = 4 * stages;
    const Compilation compilation(
        asynchronous(stages, PipelineSchedule::PipeDream2BW, micro_batches));
    const std::vector<Program> programs = programs_of(compilation);
    verify(programs);
    for (const Program& program : programs) {
      std::vector<VersionUse> expected;
      for (int m = 0; m < micro_batches; ++m) {
        const int version = std::max(0, m / stages - 1);
        expected.push_back({m, version, version, m / stages});
      }
      EXPECT_EQ(version_uses(program, list_order(program)), expected);
      EXPECT_EQ(kept_versions(program), (KeptVersions{2, weight_bytes(program)}));
    }
  }
}

/// Over dp, n ranks: 2 (n - 1) / n of the gradients once an update; and of the window's counts of
/// tokens (8 bytes each), and an update's norm.
TEST(PipeDreamPrograms, ReduceGradientsOnceAnUpdate) {
  CompileOptions options = asynchronous(2, PipelineSchedule::PipeDream2BW, 6);
  options.parallel.layout.dp = 2;
  const Compilation compilation(options);
  const Program program = compilation.training(0);
  std::int64_t gradients = 0;
  for (const Buffer& buffer : program.buffers) {
    gradients += buffer.persistent && buffer.category == Category::Gradients ? buffer.bytes : 0;
  }
  const Ledger ledger = planned_ledger(program, Algorithm::Direct);
  const std::int64_t updates = 3;
  EXPECT_EQ(ledger.at({CollectiveKind::AllReduce, "dp"}).sent_bytes,
            updates * (gradients + 8 + 8 * kernels::ExactSum::kWords));
}

/// What is reported is read off the instructions: a backward that reads the newest weights shows.
TEST(VersionUses, AreNotWhatTheRuleSaysButWhatKernelsRead) {
  const Compilation compilation(asynchronous(2, PipelineSchedule::PipeDream, 4));
  Program program = compilation.training(0);
  const auto is_weight = [&](const Operand& operand) {
    return operand.buffer >= 0 &&
           program.buffers[static_cast<std::size_t>(operand.buffer)].category ==
               Category::Parameters;
  };
  std::map<BufferId, BufferId> copied_from;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.name.starts_with("stash")) {
      copied_from[instruction.outputs[0].buffer] = instruction.inputs[0].buffer;
    }
  }
  for (Instruction& instruction : program.instructions) {
    for (Operand& input : instruction.inputs) {
      if (is_weight(input) && copied_from.contains(input.buffer)) {
        input.buffer = copied_from.at(input.buffer);
      }
    }
  }
  const std::vector<VersionUse> found = version_uses(program, list_order(program));
  EXPECT_EQ(found,
            (std::vector<VersionUse>{{0, 0, 0, 0}, {1, 0, 1, 1}, {2, 1, 2, 2}, {3, 2, 3, 3}}));
  // And one that mixes them is a bug.
  for (Instruction& instruction : program.instructions) {
    const auto weight =
        std::find_if(instruction.inputs.begin(), instruction.inputs.end(), is_weight);
    if (instruction.micro_batch == 2 && instruction.phase == Phase::Backward &&
        weight != instruction.inputs.end()) {
      for (const auto& [copy, weights] : copied_from) {
        if (weights == weight->buffer) {
          weight->buffer = copy;
          break;
        }
      }
      break;
    }
  }
  EXPECT_THROW((void)version_uses(program, list_order(program)), InternalError);
}

TEST(Asynchronous, SynchronousProgramsHaveOneVersion) {
  const Compilation compilation(asynchronous(2, PipelineSchedule::OneForwardOneBackward, 4));
  const Program program = compilation.training(0);
  EXPECT_TRUE(version_uses(program, list_order(program)).empty());
  EXPECT_EQ(kept_versions(program), KeptVersions{});
  EXPECT_EQ(compilation.updates_per_window(), 1);
}

std::string refusal(const std::function<void(CompileOptions&)>& change,
                    PipelineSchedule schedule = PipelineSchedule::PipeDream) {
  CompileOptions options = asynchronous(2, schedule, 4);
  change(options);
  try {
    const Compilation compilation(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Asynchronous, RefusesWhatItCannotHonour) {
  EXPECT_EQ(refusal([](CompileOptions&) {}), "accepted");
  EXPECT_EQ(refusal([](CompileOptions&) {}, PipelineSchedule::PipeDream2BW), "accepted");
  EXPECT_THAT(refusal([](CompileOptions& o) { o.parallel.layout.pp = 1; }),
              HasSubstr("parallel.pp of at least 2"));
  EXPECT_THAT(refusal([](CompileOptions& o) { o.optimizer.gradient_clip = 1; }),
              HasSubstr("optimizer.gradient_clip = 1"));
  EXPECT_THAT(refusal([](CompileOptions& o) { o.model.tied = true; }), HasSubstr("tied embedding"));
  EXPECT_THAT(refusal([](CompileOptions& o) {
                o.parallel.layout.dp = 2;
                o.parallel.zero = 2;
              }),
              HasSubstr("parallel.zero = 2"));
  EXPECT_THAT(refusal([](CompileOptions& o) { o.parallel.offload = Offload::Optimizer; }),
              HasSubstr("parallel.offload"));
  EXPECT_THAT(
      refusal([](CompileOptions& o) { o.parallel.reduce_gradients = ReduceGradients::MicroBatch; }),
      HasSubstr("parallel.reduce_gradients"));
  EXPECT_THAT(refusal([](CompileOptions& o) { o.accumulation = 1; }), HasSubstr("at least 2"));
  EXPECT_THAT(
      refusal([](CompileOptions& o) { o.accumulation = 5; }, PipelineSchedule::PipeDream2BW),
      HasSubstr("a multiple of 2 and at least 4"));
}

}  // namespace
}  // namespace sw
