#include "checkpoint/reader.hpp"

#include <gmock/gmock.h>

#include "tests/checkpoint/recording_files.hpp"
#include "tests/checkpoint/saving.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;
using sw::testing::data_error_of;
using sw::testing::read_file;
using sw::testing::RecordingFiles;
using sw::testing::salted_pieces;
using sw::testing::save_once;
using sw::testing::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReaderTest : public sw::testing::ScratchTest {
 protected:
  void save(std::int64_t step, const std::string& run = "run") {
    RecordingFiles files;
    save_once(files,
              {.folder = folder_, .run = run, .session = "session", .keep = 0, .background = false},
              {.step = step}, salted_pieces(2, static_cast<std::uint8_t>(step)));
  }
  fs::path checkpoint(std::int64_t step) { return folder_ / fmt::format("step-{:06}", step); }
  std::optional<fs::path> newest(const std::optional<std::string>& run = std::nullopt) {
    notes_.clear();
    return find_newest(
        folder_, [&](const std::string& note) { notes_.push_back(note); }, run);
  }
  void flip(const fs::path& path, std::size_t at) {
    std::string content = read_file(path);
    content.at(at) = static_cast<char>(content.at(at) ^ 1);
    write_file(path, content);
  }
  void replace(const fs::path& path, const std::string& old_text, const std::string& new_text) {
    std::string content = read_file(path);
    content.replace(content.find(old_text), old_text.size(), new_text);
    write_file(path, content);
  }

  std::vector<std::string> notes_;
};

// Case C025.
TEST_F(ReaderTest, TensorsThatAreMissingUnknownOrOfAnotherShapeAreAllNamed) {
  save(1);
  const CheckpointReader reader(checkpoint(1));
  const StateTensor weight{"w", "weight", DType::Float32, {5, 3}};
  const StateTensor momentum{"w", "momentum", DType::Float32, {5, 3}};
  EXPECT_NO_THROW(reader.require(std::vector{momentum, weight}));
  const StateTensor variance{"w", "variance", DType::Float32, {5, 3}};
  const StateTensor wrong_shape{"w", "momentum", DType::Float32, {3, 5}};
  const StateTensor wrong_type{"w", "momentum", DType::BFloat16, {5, 3}};
  EXPECT_THAT(data_error_of([&] {
                reader.require(std::vector{weight, momentum, variance});
              }),
              HasSubstr("missing: variance of 'w' (float32 [5, 3])"));
  EXPECT_THAT(data_error_of([&] { reader.require(std::vector{weight}); }),
              HasSubstr("not known to this run: momentum of 'w'"));
  EXPECT_THAT(data_error_of([&] {
                reader.require(std::vector{weight, wrong_shape});
              }),
              HasSubstr("stored as float32 [5, 3]: momentum of 'w' (float32 [3, 5])"));
  EXPECT_THAT(data_error_of([&] {
                reader.require(std::vector{weight, wrong_type});
              }),
              HasSubstr("(bfloat16 [5, 3])"));
  std::vector<std::byte> out(60);
  EXPECT_THAT(data_error_of([&] {
                reader.read("w", "variance", whole_range({5, 3}), out);
              }),
              HasSubstr("has no variance of a tensor 'w'"));
}

TEST_F(ReaderTest, OfManyTensorsThatDoNotFitAFewOfEachKindAreNamedAndTheOthersCounted) {
  save(1);
  std::vector<StateTensor> expected;
  for (int layer = 0; layer < 100; ++layer) {
    expected.push_back({fmt::format("layer {}", layer), "weight", DType::Float32, {5, 3}});
  }
  const std::string error =
      data_error_of([&] { CheckpointReader(checkpoint(1)).require(expected); });
  EXPECT_THAT(error, AllOf(HasSubstr("missing: weight of 'layer 2'"), HasSubstr("are 97 more"),
                           HasSubstr("not known to this run: weight of 'w'"),
                           ::testing::Not(HasSubstr("'layer 3'"))));
}

TEST_F(ReaderTest, ANameChangedInAMarkIsRefused) {
  save(1);
  replace(checkpoint(1) / "rank-00001.json", "momentum", "momentun");
  EXPECT_THAT(data_error_of([&] { (void)CheckpointReader(checkpoint(1)); }),
              AllOf(HasSubstr("rank-00001.json"), HasSubstr("checksum")));
}

TEST_F(ReaderTest, AnEditedManifestIsRefused) {
  save(1);
  replace(checkpoint(1) / "checkpoint.json", "\"consumed_samples\": 0", "\"consumed_samples\": 8");
  EXPECT_THAT(data_error_of([&] { (void)CheckpointReader(checkpoint(1)); }),
              HasSubstr("does not match its own checksum"));
}

TEST_F(ReaderTest, AVersionOfTheFormatFromTheFutureIsRefusedByNumber) {
  save(1);
  replace(checkpoint(1) / "checkpoint.json", "\"version\": 1", "\"version\": 2");
  EXPECT_THAT(data_error_of([&] { (void)CheckpointReader(checkpoint(1)); }),
              HasSubstr("version: is 2, but this program reads version 1"));
}

TEST_F(ReaderTest, EveryFlippedByteOfEveryFileIsFound) {
  save(1);
  for (const std::string& name : sw::testing::names_in(checkpoint(1))) {
    const fs::path path = checkpoint(1) / name;
    const std::string good = read_file(path);
    for (std::size_t at = 0; at < good.size(); at += 1 + good.size() / 64) {
      flip(path, at);
      EXPECT_THAT(data_error_of([&] { verify_checkpoint(checkpoint(1)); }),
                  AllOf(HasSubstr("step-000001"), ::testing::Not(HasSubstr("no error"))))
          << name << ", byte " << at;
      flip(path, at);
    }
  }
  EXPECT_NO_THROW(verify_checkpoint(checkpoint(1)));
}

TEST_F(ReaderTest, EveryTruncatedOrMissingFileIsFound) {
  save(1);
  for (const std::string& name : sw::testing::names_in(checkpoint(1))) {
    const fs::path path = checkpoint(1) / name;
    const std::string good = read_file(path);
    for (const std::size_t left : {std::size_t{0}, good.size() / 2, good.size() - 2}) {
      fs::resize_file(path, left);
      EXPECT_THAT(data_error_of([&] { (void)CheckpointReader(checkpoint(1)); }), HasSubstr(name));
      write_file(path, good);
    }
    fs::remove(path);
    EXPECT_THAT(data_error_of([&] { (void)CheckpointReader(checkpoint(1)); }), HasSubstr(name));
    write_file(path, good);
  }
  EXPECT_NO_THROW(verify_checkpoint(checkpoint(1)));
}

TEST_F(ReaderTest, FindNewestPassesOverWhatDoesNotVerifyAndSaysWhy) {
  for (const std::int64_t step : {8, 9, 10, 11}) {
    save(step);
  }
  EXPECT_EQ(newest(), checkpoint(11));
  EXPECT_THAT(notes_, IsEmpty());
  flip(checkpoint(11) / "rank-00000.safetensors", 200);
  fs::remove(checkpoint(10) / "checkpoint.json");
  fs::create_directory(folder_ / ".step-000012.dead-1.tmp");
  EXPECT_EQ(newest(), checkpoint(9));
  EXPECT_THAT(notes_,
              ElementsAre(HasSubstr(".step-000012.dead-1.tmp passed over: its writer did"),
                          AllOf(HasSubstr("step-000011 passed over"), HasSubstr("damaged")),
                          AllOf(HasSubstr("step-000010 passed over"), HasSubstr("No such file"))));
}

TEST_F(ReaderTest, FindNewestOfARunPassesOverOtherRuns) {
  save(1);
  save(5000, "another");
  EXPECT_EQ(newest("run"), checkpoint(1));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("belongs to run another")));
  EXPECT_EQ(newest(), checkpoint(5000));
}

TEST_F(ReaderTest, NoFolderOrAnEmptyOneHoldsNoNewest) {
  EXPECT_EQ(newest(), std::nullopt);
  EXPECT_EQ(find_newest(folder_ / "missing", [](const std::string&) {}), std::nullopt);
}

TEST_F(ReaderTest, APartOutsideTheStoredShapeIsRefused) {
  save(1);
  const CheckpointReader reader(checkpoint(1));
  std::vector<std::byte> out(4);
  EXPECT_THAT(data_error_of([&] {
                reader.read("w", "weight", {{{5, 6}, {0, 1}}, {0, 1}}, out);
              }),
              HasSubstr("outside a size of 5"));
}

}  // namespace
}  // namespace sw
