#include "report/run_report.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.hpp"

namespace sw {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class Report : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  /// Steps of 9, 1, 2, 3, … seconds and losses that fall from `steps` to 1.
  void write_metrics(int steps) const {
    std::string text;
    for (int step = 1; step <= steps; ++step) {
      text += fmt::format(
          R"({{"step":{},"loss":{},"step_seconds":{},"tokens_per_second":5.0,"skipped_steps":1}})",
          step, steps + 1 - step, step == 1 ? 9 : step - 1);
      text += "\n";
    }
    write("metrics.jsonl", text);
  }
  void write_plan() const {
    write("plan.json", R"({"world":2,"layout":{"pp":1,"dp":2,"cp":1,"tp":1,"ep":1},
                           "step_seconds":1.0})");
  }
  void write_ledger(int measured_calls, int measured_peak) const {
    write("ledger.json", fmt::format(
                             R"({{"steps":5,"collectives":[{{"kind":"all_reduce","axis":"dp",
                 "planned":{{"calls":7,"sent_bytes_per_rank":8,"sent_bytes":16}},
                 "measured":{{"calls":{},"sent_bytes_per_rank":8,"sent_bytes":16,
                             "seconds":0.5,"wait_seconds":0.25}}}}],
                 "memory":[{{"rank":0,"planned_peak":4096,"measured_peak":{}}}],
                 "process_peak":null}})",
                             measured_calls, measured_peak));
  }

  fs::path folder_ = fs::path(testing::TempDir()) / fmt::format("report-{}", ::getpid());
};

TEST_F(Report, SaysThatPlannedIsMeasuredOnlyWhereEveryIntegerIsEqual) {
  write_metrics(5);
  write_plan();
  write_ledger(7, 4096);
  EXPECT_EQ(planned_equals_measured(read_run_report(folder_)), true);
  EXPECT_THAT(to_text(read_run_report(folder_)), HasSubstr("Every planned byte"));
  write_ledger(6, 4096);
  EXPECT_EQ(planned_equals_measured(read_run_report(folder_)), false);
  EXPECT_THAT(to_text(read_run_report(folder_)), HasSubstr("DIFFER"));
  write_ledger(7, 4097);
  EXPECT_EQ(planned_equals_measured(read_run_report(folder_)), false);
}

TEST_F(Report, TheMedianStepLeavesOutTheFirst) {
  write_metrics(4);  // 9, 1, 2, 3 seconds
  EXPECT_EQ(median_step_seconds(read_run_report(folder_)), 2);
}

TEST_F(Report, OfAModelWithExpertsSaysHowEvenTheirLoadWasAndIs) {
  write_metrics(3);
  EXPECT_THAT(to_text(read_run_report(folder_)), Not(HasSubstr("experts")));
  const std::string step = R"({"step":1,"loss":2,"step_seconds":1,"tokens_per_second":5,)";
  write("metrics.jsonl", step + R"("hottest_expert":2.5,"idle_experts":3})" + "\n" + step +
                             R"("hottest_expert":1.25,"idle_experts":0})" + "\n");
  EXPECT_THAT(to_text(read_run_report(folder_)),
              HasSubstr("hottest 2.50 -> 1.25 of an even share; without a token 3 -> 0\n"));
}

TEST_F(Report, ARunThatHasNotEndedHasNoLedger) {
  write_metrics(3);
  const RunReport report = read_run_report(folder_);
  EXPECT_EQ(planned_equals_measured(report), std::nullopt);
  EXPECT_THAT(to_text(report), HasSubstr("the run has not ended"));
  EXPECT_TRUE(to_json(report).at("equal").is_null());
}

TEST_F(Report, ShowsTheLossFromTheFirstStepToTheLast) {
  write_metrics(3);
  const std::string text = to_text(read_run_report(folder_));
  EXPECT_THAT(text, HasSubstr("3.0000 -> 1.0000 in 3 steps, 1 skipped"));
  EXPECT_THAT(text, HasSubstr("█▅▁"));  // heights 1, 1/2, 0 of seven steps: 7, 4 (rounded), 0
}

TEST_F(Report, ALineThatIsBeingWrittenIsLeftOut) {
  write_metrics(3);
  std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << R"({"step":4,)";
  EXPECT_EQ(read_run_report(folder_).steps.size(), 3U);
}

TEST_F(Report, RefusesWhatIsNoRunFolder) {
  EXPECT_THROW((void)read_run_report(folder_ / "nothing"), ConfigError);
  EXPECT_THROW((void)read_run_report(folder_), ConfigError);
  write("metrics.jsonl", "{\"a\":1}\n");
  EXPECT_THROW((void)read_run_report(folder_), ConfigError);
}

}  // namespace
}  // namespace sw
