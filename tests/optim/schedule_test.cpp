#include "optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace sw {
namespace {

TEST(LearningRate, WarmsUpLinearlyAndReachesTheFullRateAtTheLastWarmUpStep) {
  OptimizerOptions options;
  options.learning_rate = 0.3;
  options.warmup_steps = 3;
  EXPECT_DOUBLE_EQ(learning_rate(options, 20, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(options, 20, 1), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(options, 20, 2), 0.3);
}

TEST(LearningRate, FallsAlongACosineFromTheFullRateToTheMinimum) {
  OptimizerOptions options;
  options.learning_rate = 1;
  options.minimum_learning_rate = 0.2;
  options.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(options, 24, 4), 1);
  EXPECT_DOUBLE_EQ(learning_rate(options, 24, 14), 0.6);  // half way: the mean of both ends
  EXPECT_DOUBLE_EQ(learning_rate(options, 24, 24), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(options, 24, 99), 0.2);
  EXPECT_NEAR(learning_rate(options, 24, 9), 0.2 + 0.4 * (1 + std::sqrt(0.5)), 1e-15);
}

TEST(LearningRate, FallsLinearlyOrStaysAsAsked) {
  OptimizerOptions options;
  options.learning_rate = 1;
  options.schedule = Schedule::Linear;
  EXPECT_DOUBLE_EQ(learning_rate(options, 10, 0), 1);
  EXPECT_DOUBLE_EQ(learning_rate(options, 10, 5), 0.5);
  options.decay_steps = 20;  // wins over the run's length
  EXPECT_DOUBLE_EQ(learning_rate(options, 10, 5), 0.75);
  options.schedule = Schedule::Constant;
  EXPECT_DOUBLE_EQ(learning_rate(options, 10, 9), 1);
}

}  // namespace
}  // namespace sw
