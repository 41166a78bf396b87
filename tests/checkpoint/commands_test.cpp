#include "checkpoint/commands.hpp"

#include <gmock/gmock.h>

#include "tests/checkpoint/recording_files.hpp"
#include "tests/checkpoint/saving.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;
using sw::testing::data_error_of;
using sw::testing::names_in;
using sw::testing::RankPieces;
using sw::testing::RecordingFiles;
using sw::testing::salted_pieces;
using sw::testing::save_once;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommandsTest : public sw::testing::ScratchTest {
 protected:
  void save(std::int64_t step, const RankPieces& pieces) {
    RecordingFiles files;
    save_once(files, {.folder = checkpoints_, .run = "run", .session = "session", .keep = 0},
              {.step = step, .consumed_samples = step * 32}, pieces);
  }
  fs::path checkpoints_ = folder_ / "checkpoints";
};

TEST_F(CommandsTest, InspectGivesTheShapeOfTheInterface) {
  save(50, salted_pieces(2, 1));
  const Json json = inspect_path(checkpoints_ / "step-000050").json;
  EXPECT_EQ(json["step"], 50);
  EXPECT_EQ(json["samples"], 1600);
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(checkpoints_ / "step-000050")) {
    bytes += static_cast<std::int64_t>(entry.file_size());
  }
  EXPECT_EQ(json["bytes"], bytes);
  ASSERT_EQ(json["tensors"].size(), 2U);
  EXPECT_EQ(json["tensors"][0]["name"], "momentum/w");
  EXPECT_EQ(json["tensors"][1]["name"], "w");
  EXPECT_EQ(json["tensors"][1]["dtype"], "float32");
  EXPECT_EQ(json["tensors"][1]["shape"], Json({5, 3}));
}

TEST_F(CommandsTest, TheDigestsOfTwoLayoutsAreEqualAndOfOtherValuesAreNot) {
  save(1, salted_pieces(1, 7));
  save(2, salted_pieces(3, 7));
  save(3, salted_pieces(3, 8));
  const auto digests = [&](const char* name) {
    Json list = Json::array();
    const Json json = inspect_path(checkpoints_ / name).json;
    for (const Json& tensor : json["tensors"]) {
      list.push_back(tensor["digest"]);
    }
    return list;
  };
  EXPECT_EQ(digests("step-000001"), digests("step-000002"));
  EXPECT_NE(digests("step-000001")[0], digests("step-000003")[0]);
}

TEST_F(CommandsTest, AnEmptyFolderHoldsZeroCheckpointsAndIsNoError) {
  for (const CommandResult& result : {inspect_path(folder_), verify_path(folder_)}) {
    EXPECT_TRUE(result.good);
    EXPECT_THAT(result.text, HasSubstr("0 checkpoints"));
    EXPECT_EQ(result.json["checkpoints"], Json::array());
  }
  EXPECT_EQ(prune_path(real_files(), folder_, 3).json["left"], 0);
  EXPECT_THROW((void)inspect_path(folder_ / "missing"), ConfigError);
}

TEST_F(CommandsTest, VerifyNamesTheDamageAndGoesOn) {
  save(1, salted_pieces(1, 1));
  save(2, salted_pieces(1, 1));
  const fs::path data = checkpoints_ / "step-000001" / "rank-00000.safetensors";
  std::string content = sw::testing::read_file(data);
  content.back() = static_cast<char>(content.back() ^ 1);
  sw::testing::write_file(data, content);
  const CommandResult result = verify_path(folder_);  // the folder of the run
  EXPECT_FALSE(result.good);
  EXPECT_EQ(result.json["ok"], false);
  EXPECT_EQ(result.json["checkpoints"][0]["ok"], false);
  EXPECT_EQ(result.json["checkpoints"][1]["ok"], true);
  EXPECT_THAT(result.text, HasSubstr("damaged: " + data.string()));
}

TEST_F(CommandsTest, PruneKeepsTheNewestOfTheFolder) {
  for (const std::int64_t step : {1, 2, 3, 10}) {
    save(step, salted_pieces(1, 1));
  }
  const CommandResult result = prune_path(real_files(), checkpoints_, 2);
  EXPECT_THAT(names_in(checkpoints_), ElementsAre("step-000003", "step-000010"));
  EXPECT_EQ(result.json["removed"].size(), 2U);
  EXPECT_EQ(result.json["left"], 2);
  EXPECT_THROW((void)prune_path(real_files(), checkpoints_, 0), ConfigError);
  EXPECT_THROW((void)prune_path(real_files(), checkpoints_ / "step-000003", 1), ConfigError);
}

TEST_F(CommandsTest, ConvertRefusesWhatIsNeitherACheckpointNorAModel) {
  EXPECT_THAT(data_error_of([&] { (void)convert_path(real_files(), folder_, folder_ / "out"); }),
              HasSubstr("neither a checkpoint"));
}

}  // namespace
}  // namespace sw
