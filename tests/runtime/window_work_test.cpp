#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/executor.hpp"
#include "tests/program/builder.hpp"
#include "tests/runtime/ranks.hpp"

namespace sw {
namespace {

using test::Builder;
using test::RankRun;

constexpr std::int64_t kCount = 2500;

/// The end of a window on one rank: count, norm, optimizer over two ranges.
struct Window {
  Program program;
  Operand valid, count, settings, verdict, words, loss, gradient, master, momentum, variance,
      rounded;
};

Window make_window(const std::string& rule, double momentum, bool rounded,
                   DType gradients = DType::Float32) {
  Builder b;
  Window w;
  const auto state = [&](const char* name, Shape shape, DType dtype) {
    return b.tensor(name, std::move(shape), Lane::Private, true, dtype);
  };
  w.valid = state("valid", {1}, DType::Int64);
  w.count = state("count", {}, DType::Float32);
  w.settings = state("settings", {kSettings}, DType::Float64);
  w.verdict = state("verdict", {kVerdict}, DType::Float64);
  w.words = state("words", {kernels::ExactSum::kWords}, DType::UInt64);
  w.loss = state("loss", {}, DType::Float32);
  w.gradient = state("gradient", {kCount}, gradients);
  w.master = state("master", {kCount}, DType::Float32);
  w.momentum = state("momentum", {kCount}, DType::Float32);
  w.variance = state("variance", {kCount}, DType::Float32);
  w.rounded = state("rounded", {kCount}, DType::BFloat16);
  b.add("finish_count", WindowWork{WindowKind::FinishCount}, {w.valid}, {w.count});
  b.add("squares", WindowWork{WindowKind::Squares},
        {test::part(w.gradient, 0, 1024), test::part(w.gradient, 1024, kCount - 1024)}, {w.words});
  b.add("finish_norm", WindowWork{WindowKind::FinishNorm}, {w.words, w.settings, w.loss},
        {w.verdict});
  OptimizerWork work;
  work.rule = rule;
  work.momentum = momentum;
  work.states = rule == "adamw" ? 2 : momentum != 0 ? 1 : 0;
  work.rounded = rounded;
  work.weight_decay = {0.1, 0.0};
  std::vector<Operand> outputs;
  for (const auto& [start, size] : {std::pair<std::int64_t, std::int64_t>{0, 1024}, {1024, 1476}}) {
    outputs.push_back(test::part(w.master, start, size));
    if (work.states > 0) outputs.push_back(test::part(w.momentum, start, size));
    if (work.states > 1) outputs.push_back(test::part(w.variance, start, size));
    if (rounded) outputs.push_back(test::part(w.rounded, start, size));
  }
  b.add(
      "optimizer", work,
      {w.settings, w.verdict, test::part(w.gradient, 0, 1024), test::part(w.gradient, 1024, 1476)},
      outputs);
  w.program = b.finish();
  verify(w.program);
  return w;
}

class WindowRun {
 public:
  explicit WindowRun(const Window& window)
      : w(window), worlds_(make_local_worlds(1, {})), run(*worlds_[0], w.program) {
    for (std::int64_t i = 0; i < kCount; ++i) {
      if (w.gradient.dtype == DType::Float32) {
        run.data(w.gradient)[i] = 0.01F * static_cast<float>(i % 7 - 3);
      }
      run.data(w.master)[i] = 0.5F + 1e-3F * static_cast<float>(i % 11);
      run.data(w.momentum)[i] = 0;
      run.data(w.variance)[i] = 0;
    }
    *run.data<std::int64_t>(w.valid) = 12;
    *run.data(w.loss) = 2;
    settings({0.125, 0, 1});
  }
  void settings(const std::array<double, kSettings>& values) {
    std::copy(values.begin(), values.end(), run.data<double>(w.settings));
  }
  [[nodiscard]] double verdict(int i) const { return run.data<double>(w.verdict)[i]; }
  [[nodiscard]] double norm() const {
    double sum = 0;
    for (std::int64_t i = 0; i < kCount; ++i) {
      sum += static_cast<double>(run.data(w.gradient)[i]) * run.data(w.gradient)[i];
    }
    return std::sqrt(sum);
  }

  const Window& w;

 private:
  std::vector<std::unique_ptr<World>> worlds_;

 public:
  RankRun run;
};

TEST(WindowWork, TheCountIsAtLeastOne) {
  const Window window = make_window("sgd", 0, false);
  WindowRun run(window);
  run.run.executor->run();
  EXPECT_EQ(*run.run.data(window.count), 12);
  *run.run.data<std::int64_t>(window.valid) = 0;
  run.run.executor->run();
  EXPECT_EQ(*run.run.data(window.count), 1);
}

TEST(WindowWork, TheVerdictHoldsNormScaleAndWhetherToApply) {
  const Window window = make_window("sgd", 0, false);
  WindowRun run(window);
  // The norm is exact up to the roundings of a sum of 2,500 doubles.
  const double tolerance = 1e-12 * run.norm();
  run.run.executor->run();
  EXPECT_NEAR(run.verdict(0), run.norm(), tolerance);
  EXPECT_EQ(run.verdict(1), 1) << "no clipping";
  EXPECT_EQ(run.verdict(2), 1);
  run.settings({0.125, 2 * run.norm(), 1});
  run.run.executor->run();
  EXPECT_EQ(run.verdict(1), 1) << "the norm is below the clip";
  run.settings({0.125, 0.25, 1});
  run.run.executor->run();
  EXPECT_EQ(run.verdict(1), 0.25 / run.verdict(0));
}

// Of 8 slots an expert of 4 has 2 by the mean, and of no slots none: nobody moves.
TEST(WindowWork, BiasesMoveTowardsTheMeanLoadIfTheVerdictSaysSo) {
  Builder b;
  const auto state = [&](const char* name, Shape shape, DType dtype) {
    return b.tensor(name, std::move(shape), Lane::Private, true, dtype);
  };
  const Operand verdict = state("verdict", {kVerdict}, DType::Float64);
  const Operand load = state("load", {2, 4}, DType::Int64);
  const Operand bias = state("bias", {2, 4}, DType::Float32);
  b.add("move_bias", WindowWork{WindowKind::MoveBias, 0.25}, {verdict, load, bias}, {bias});
  const Program program = b.finish();
  verify(program);
  const auto worlds = make_local_worlds(1, {});
  const RankRun run(*worlds[0], program);
  const std::vector<std::int64_t> loads = {3, 2, 0, 3, 0, 0, 0, 0};
  std::copy(loads.begin(), loads.end(), run.data<std::int64_t>(load));
  std::fill_n(run.data(bias), 8, 0.5F);
  for (const auto& [apply, expected] :
       {std::pair<double, std::vector<float>>{1, {0.25, 0.5, 0.75, 0.25, 0.5, 0.5, 0.5, 0.5}},
        {0, {0.25, 0.5, 0.75, 0.25, 0.5, 0.5, 0.5, 0.5}},
        {1, {0, 0.5, 1, 0, 0.5, 0.5, 0.5, 0.5}}}) {
    run.data<double>(verdict)[2] = apply;
    run.executor->run();
    EXPECT_EQ(std::vector<float>(run.data(bias), run.data(bias) + 8), expected);
  }
}

TEST(WindowWork, AStepThatIsNotFiniteChangesNoState) {
  const Window window = make_window("adamw", 0, true);
  for (const bool in_loss : {false, true}) {
    WindowRun run(window);
    const float infinity = std::numeric_limits<float>::infinity();
    (in_loss ? *run.run.data(window.loss) : run.run.data(window.gradient)[2000]) = infinity;
    const std::vector<float> before(run.run.data(window.master),
                                    run.run.data(window.master) + kCount);
    run.run.executor->run();
    EXPECT_EQ(run.verdict(2), 0);
    const std::vector<float> after(run.run.data(window.master),
                                   run.run.data(window.master) + kCount);
    EXPECT_EQ(after, before);
    EXPECT_EQ(run.run.data(window.variance)[0], 0);
  }
}

TEST(WindowWork, SgdDescendsTheClippedGradientWithTheDecayOfEachRange) {
  const Window window = make_window("sgd", 0, false);
  WindowRun run(window);
  run.settings({0.125, 0.25, 1});
  const std::vector<float> before(run.run.data(window.master),
                                  run.run.data(window.master) + kCount);
  run.run.executor->run();
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double w = before[static_cast<std::size_t>(i)];
    const double decay = i < 1024 ? 0.1 : 0.0;
    const double g = run.run.data(window.gradient)[i] * run.verdict(1) + decay * w;
    // A few roundings of numbers below one.
    ASSERT_NEAR(run.run.data(window.master)[i], w - 0.125 * g, 3e-7);
  }
}

/// Quarters from -3 to 3 are bfloat16 numbers, so both Programs see the same gradients.
TEST(WindowWork, GradientsMayBeBfloat16) {
  const Window numbers = make_window("adamw", 0, true);
  const Window halves = make_window("adamw", 0, true, DType::BFloat16);
  WindowRun of_numbers(numbers);
  WindowRun of_halves(halves);
  for (std::int64_t i = 0; i < kCount; ++i) {
    const float value = 0.25F * static_cast<float>(i % 25 - 12);
    of_numbers.run.data(numbers.gradient)[i] = value;
    of_halves.run.data<BFloat16>(halves.gradient)[i] = to_bfloat16(value);
  }
  of_numbers.run.executor->run();
  of_halves.run.executor->run();
  EXPECT_EQ(of_numbers.verdict(0), of_halves.verdict(0));
  for (std::int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(of_numbers.run.data(numbers.master)[i], of_halves.run.data(halves.master)[i]) << i;
  }
}

TEST(WindowWork, AdamwTakesItsFirstStepAndRoundsTheWeights) {
  const Window window = make_window("adamw", 0, true);
  WindowRun run(window);
  const std::vector<float> before(run.run.data(window.master),
                                  run.run.data(window.master) + kCount);
  run.run.executor->run();
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double w = before[static_cast<std::size_t>(i)];
    const double g = run.run.data(window.gradient)[i];
    // The first bias-corrected update is g / (|g| + epsilon).
    const double decayed = w - (i < 1024 ? 0.125 * 0.1 * w : 0);
    const double expected = decayed - 0.125 * g / (std::abs(g) + 1e-8);
    const float got = run.run.data(window.master)[i];
    ASSERT_NEAR(got, expected, 1e-6) << i;
    ASSERT_EQ(run.run.data<BFloat16>(window.rounded)[i], to_bfloat16(got));
  }
}

}  // namespace
}  // namespace sw
