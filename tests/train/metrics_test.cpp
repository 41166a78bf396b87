#include "train/metrics.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/json.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

class Metrics : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove(path_); }

  void write(std::int64_t keep_until, std::vector<std::int64_t> steps) const {
    StepFile file(real_files(), path_, keep_until);
    for (const std::int64_t step : steps) {
      StepMetrics line;
      line.step = step;
      file.add(to_json_line(line));
    }
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      found.push_back(parse_json(line, "metrics").at("step").get<std::int64_t>());
    }
    return found;
  }

  fs::path path_ = fs::path(::testing::TempDir()) / fmt::format("metrics-{}.jsonl", ::getpid());
};

TEST_F(Metrics, ResumingDropsTheLinesAfterTheCheckpoint) {
  write(0, {1, 2, 3, 4, 5});
  write(3, {4, 5, 6});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Metrics, ALineThatACrashCutIsDropped) {
  write(0, {1, 2});
  std::ofstream(path_, std::ios::app) << R"({"step":3,"lo)";
  write(2, {3});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_F(Metrics, StartingAnewDropsEverything) {
  write(0, {1, 2});
  write(0, {1});
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1}));
}

// Two layers of 4 experts: 8 slots, of which an even share is 2, and 12, of which it is 3.
TEST(ExpertLoad, SaysWhoGotMostOfALayerAndWhoNothing) {
  const std::vector<std::int64_t> load = {5, 0, 3, 0, 6, 0, 2, 4};
  const ExpertLoad expected{{11, 0, 5, 4}, 2.5, 3, 1.25, {}};  // of two ranks 5 and 3, and 6 and 6
  EXPECT_EQ(expert_load(load, 4, 2), expected);
  EXPECT_EQ(expert_load(load, 4, 1).hottest_rank, 1);
  EXPECT_EQ(expert_load(load, 4, 4).hottest_rank, 2.5);
  const std::vector<std::int64_t> nothing = {0, 0};
  EXPECT_EQ(expert_load(nothing, 2, 2), (ExpertLoad{{0, 0}, 0, 2, 0, {}}));
  StepMetrics line;
  EXPECT_FALSE(parse_json(to_json_line(line), "line").contains("expert_load"));
  line.experts = expected;
  const Json json = parse_json(to_json_line(line), "line");
  EXPECT_EQ(json.at("expert_load"), Json({11, 0, 5, 4}));
  EXPECT_EQ(json.at("hottest_expert"), Json(2.5));
  EXPECT_EQ(json.at("idle_experts"), Json(3));
  EXPECT_EQ(json.at("hottest_rank"), Json(1.25));
}

TEST_F(Metrics, WhatIsNotKnownIsNull) {
  StepMetrics metrics;
  metrics.skipped = "no valid token";
  const Json line = parse_json(to_json_line(metrics), "line");
  EXPECT_TRUE(line.at("loss").is_null());
  EXPECT_TRUE(line.at("mfu").is_null());
  EXPECT_TRUE(line.at("gradient_norm").is_null());
  EXPECT_EQ(line.at("skipped"), "no valid token");
  EXPECT_FALSE(line.contains("validation_loss"));
}

}  // namespace
}  // namespace sw
