#include <gmock/gmock.h>

#include "checkpoint/folder.hpp"
#include "tests/checkpoint/recording_files.hpp"
#include "tests/checkpoint/saving.hpp"

// Case C055.
namespace sw {
namespace {

namespace fs = std::filesystem;
using sw::testing::names_in;
using sw::testing::RecordingFiles;
using sw::testing::salted_pieces;
using sw::testing::save_once;
using ::testing::ElementsAre;

class RetentionTest : public sw::testing::ScratchTest {
 protected:
  void save(std::int64_t step, std::int64_t keep, std::optional<std::int64_t> best = std::nullopt,
            const std::string& run = "run") {
    RecordingFiles files;
    save_once(
        files,
        {.folder = folder_, .run = run, .session = "session", .keep = keep, .background = false},
        {.step = step}, salted_pieces(1, 1), best);
  }
};

TEST_F(RetentionTest, KeepsTheNewestAndTheBestAndNeverTouchesAnotherRun) {
  save(5000, 2, std::nullopt, "older run");
  save(900, 2);
  save(1000, 2, 900);
  save(1100, 2, 900);
  EXPECT_THAT(names_in(folder_),
              ElementsAre("step-000900", "step-001000", "step-001100", "step-005000"));
  save(1200, 2);
  EXPECT_THAT(names_in(folder_), ElementsAre("step-001100", "step-001200", "step-005000"));
}

TEST_F(RetentionTest, CountsByNumberAndNotByText) {
  for (const std::int64_t step : {999'998, 999'999, 1'000'000}) {
    save(step, 1);
  }
  EXPECT_THAT(names_in(folder_), ElementsAre("step-1000000"));
}

TEST_F(RetentionTest, ZeroKeepsAllAndOneKeepsTheOneJustWritten) {
  for (const std::int64_t step : {1, 2, 3}) {
    save(step, 0);
  }
  EXPECT_EQ(names_in(folder_).size(), 3U);
  save(4, 1);
  EXPECT_THAT(names_in(folder_), ElementsAre("step-000004"));
}

TEST_F(RetentionTest, AfterResumingFromAnEarlierStepTheNewFutureCounts) {
  for (const std::int64_t step : {900, 1000, 1100}) {
    save(step, 0);
  }
  save(950, 1);  // 1000 and 1100 belong to a future that was given up
  EXPECT_THAT(names_in(folder_), ElementsAre("step-000950", "step-001000", "step-001100"));
  save(1000, 2);
  EXPECT_THAT(names_in(folder_), ElementsAre("step-000950", "step-001000", "step-001100"));
  save(1200, 2);
  EXPECT_THAT(names_in(folder_), ElementsAre("step-001100", "step-001200"));
}

TEST_F(RetentionTest, AnIncompleteCheckpointIsNotCountedAsKept) {
  for (const std::int64_t step : {1, 2, 3}) {
    save(step, 0);
  }
  fs::resize_file(folder_ / "step-000003" / "rank-00000.safetensors", 10);
  save(4, 2);
  EXPECT_THAT(names_in(folder_), ElementsAre("step-000002", "step-000003", "step-000004"));
}

TEST_F(RetentionTest, AFolderWhoseManifestCannotBeReadIsNotOurs) {
  save(1, 0);
  sw::testing::write_file(folder_ / "step-000001" / "checkpoint.json", "{}");
  fs::create_directory(folder_ / "step-000002");
  save(3, 1);
  EXPECT_THAT(names_in(folder_), ElementsAre("step-000001", "step-000002", "step-000003"));
}

TEST_F(RetentionTest, OnlyOurOwnNamesAreListed) {
  for (const auto* name :
       {"step-000010", "step-000009", "step-1000000", "step-10", "step-", "step--00001",
        "step-000001x", "xstep-000001", "step-99999999999999999999"}) {
    fs::create_directory(folder_ / name);
  }
  sw::testing::write_file(folder_ / "step-000005", "a file");
  std::vector<std::int64_t> steps;
  for (const ListedCheckpoint& checkpoint : list_folder(folder_).checkpoints) {
    steps.push_back(checkpoint.step);
  }
  EXPECT_THAT(steps, ElementsAre(9, 10, 1'000'000));
}

}  // namespace
}  // namespace sw
