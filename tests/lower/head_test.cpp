#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/lower/plans.hpp"

// The head over parts of the tokens.
namespace sw {
namespace {

/// Logits are by far the largest values.
CompileOptions wide_vocabulary(std::int64_t rows, std::int64_t head_chunk) {
  CompileOptions options = test::options_of(1, 1, 0);
  options.model.vocabulary = 4096;
  options.micro_batch = rows;
  options.sequence = 64;
  options.head_chunk = head_chunk;
  return options;
}

/// Numbers of tokens of the instructions called `name`, in order.
std::vector<std::int64_t> tokens_of(const Program& program, const std::string& name) {
  std::vector<std::int64_t> tokens;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.name == name && instruction.micro_batch == 0) {
      const Shape& shape = instruction.outputs.front().shape;
      tokens.push_back(shape[0] * shape[1]);
    }
  }
  return tokens;
}

double flops_of(const Program& program) {
  double flops = 0;
  for (const Instruction& instruction : program.instructions) {
    flops += instruction.flops;
  }
  return flops;
}

TEST(Head, KeepsTheLogitsOfAPartOfTheTokensAlone) {
  const Program whole = Compilation(wide_vocabulary(2, 0)).training(0);
  const Program parts = Compilation(wide_vocabulary(2, 32)).training(0);
  EXPECT_EQ(tokens_of(whole, "logits"), (std::vector<std::int64_t>{128}));
  EXPECT_EQ(tokens_of(parts, "logits"), (std::vector<std::int64_t>{32, 32, 32, 32}));
  EXPECT_EQ(tokens_of(parts, "loss.gradient"), (std::vector<std::int64_t>{32, 32, 32, 32}));
  EXPECT_EQ(tokens_of(parts, "loss.token"), (std::vector<std::int64_t>{128}));
  EXPECT_DOUBLE_EQ(flops_of(parts), flops_of(whole));
  EXPECT_EQ(memory_account(whole).activations - memory_account(parts).activations,
            (128 - 32) * 4096 * 4);
}

/// Ranges begin at multiples of 16 tokens, and the last part has what is left.
TEST(Head, CutsTokensIntoEqualPartsOfWholeCacheLines) {
  EXPECT_EQ(tokens_of(Compilation(wide_vocabulary(2, 112)).training(0), "logits"),
            (std::vector<std::int64_t>{64, 64}));
  EXPECT_EQ(tokens_of(Compilation(wide_vocabulary(3, 80)).training(0), "logits"),
            (std::vector<std::int64_t>{64, 64, 64}));
  EXPECT_EQ(tokens_of(Compilation(wide_vocabulary(2, 48)).training(0), "logits"),
            (std::vector<std::int64_t>{48, 48, 32}));
  EXPECT_EQ(tokens_of(Compilation(wide_vocabulary(1, std::int64_t{1} << 62)).training(0), "logits"),
            (std::vector<std::int64_t>{64}));
}

TEST(Head, GoesOverPartsInAnEvaluationToo) {
  const Program program = Compilation(wide_vocabulary(2, 64)).evaluation(0);
  EXPECT_EQ(tokens_of(program, "logits"), (std::vector<std::int64_t>{64, 64}));
  EXPECT_LT(memory_account(program).activations, 2 * 64 * 4096 * 4);
}

/// GPipe's last stage runs all forwards before the first backward; neither logits nor what is
/// gathered for them waits.
TEST(Head, OfAPipelineRunsWithTheBackward) {
  for (const PipelineSchedule schedule : {PipelineSchedule::GPipe, PipelineSchedule::ZeroBubble}) {
    CompileOptions options = wide_vocabulary(1, 0);
    options.parallel.layout.pp = 2;
    options.parallel.layout.tp = 2;
    options.parallel.sequence_parallel = true;
    options.parallel.pipeline = schedule;
    options.accumulation = 4;
    const Program last = Compilation(options).training(3);
    std::vector<int> order;
    std::vector<int> gathers;
    for (const Instruction& instruction : last.instructions) {
      if (instruction.name == "logits" || instruction.name == "loss.gradient") {
        order.push_back(instruction.micro_batch);
      }
      if (instruction.name == "all_gather norm") {
        gathers.push_back(static_cast<int>(order.size()));
      }
    }
    EXPECT_EQ(order, (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
    EXPECT_EQ(gathers, (std::vector<int>{0, 2, 4, 6}));  // once each, right before
    EXPECT_LT(memory_account(last).activations, 2 * 64 * 4096 / 2 * 4);
  }
}

/// Labels are read by parts, and sliced for cp once.
TEST(Head, LoadsItsLabelsOnce) {
  CompileOptions options = wide_vocabulary(2, 16);
  options.parallel.layout.cp = 2;
  const Program program = Compilation(options).training(0);
  EXPECT_EQ(std::count_if(program.instructions.begin(), program.instructions.end(),
                          [](const Instruction& instruction) {
                            return instruction.name == "slice labels" &&
                                   instruction.micro_batch == 0;
                          }),
            1);
}

}  // namespace
}  // namespace sw
