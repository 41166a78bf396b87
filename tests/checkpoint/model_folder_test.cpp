#include "checkpoint/model_folder.hpp"

#include <gmock/gmock.h>

#include "base/json.hpp"
#include "tests/checkpoint/scratch.hpp"

// Case C063 and the folder rules of the interface.
namespace sw {
namespace {

namespace fs = std::filesystem;
using sw::testing::bytes_of;
using sw::testing::data_error_of;
using sw::testing::read_file;
using sw::testing::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ModelFolderTest : public sw::testing::ScratchTest {
 protected:
  /// A file of one-byte tensors, each holding its own name's first letter.
  void write_tensors(const std::string& file, const std::vector<std::string>& names) {
    std::vector<TensorDeclaration> declared;
    for (const std::string& name : names) {
      declared.push_back({name, DType::UInt8, {1}});
    }
    SafetensorsWriter writer(real_files(), folder_ / file, declared);
    for (const std::string& name : names) {
      writer.write(name, bytes_of(name).first(1));
    }
    writer.finish();
  }
  void write_index(const Json& weight_map) {
    write_file(folder_ / "model.safetensors.index.json",
               Json{{"metadata", {{"total_size", 4}}}, {"weight_map", weight_map}}.dump());
  }
  void write_good_shards() {
    write_tensors(kFirst, {"a", "b"});
    write_tensors(kSecond, {"c", "d"});
    write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}, {"d", kSecond}});
  }
  std::string error() {
    return data_error_of([&] { (void)ModelFolder(folder_); });
  }

  static constexpr auto kFirst = "model-00001-of-00002.safetensors";
  static constexpr auto kSecond = "model-00002-of-00002.safetensors";
};

TEST_F(ModelFolderTest, ReadsOneFileOrShards) {
  write_tensors("model.safetensors", {"a", "b"});
  EXPECT_EQ(ModelFolder(folder_).tensors().size(), 2U);
  fs::remove(folder_ / "model.safetensors");
  write_good_shards();
  const ModelFolder folder(folder_);
  EXPECT_EQ(folder.tensors().size(), 4U);
  for (const auto& [name, view] : folder.tensors()) {
    EXPECT_EQ(text_of(view.bytes), name);
  }
}

TEST_F(ModelFolderTest, AMissingShardIsNamed) {
  write_good_shards();
  fs::remove(folder_ / kSecond);
  EXPECT_THAT(error(), AllOf(HasSubstr("not there"), HasSubstr(kSecond)));
}

TEST_F(ModelFolderTest, AnEntryThatPointsToTheWrongShardIsNamed) {
  write_good_shards();
  write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}, {"d", kFirst}});
  EXPECT_THAT(error(), AllOf(HasSubstr("'d' is not in model-00001"),
                             HasSubstr("'d' is in model-00002-of-00002.safetensors, but the")));
}

TEST_F(ModelFolderTest, ATensorThatTheIndexLacksIsNamed) {
  write_good_shards();
  write_index({{"a", kFirst}, {"c", kSecond}, {"d", kSecond}});
  EXPECT_THAT(error(), HasSubstr("'b' in model-00001-of-00002.safetensors is not in the index"));
}

TEST_F(ModelFolderTest, AnEntryThatNoShardHoldsIsNamed) {
  write_good_shards();
  write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}, {"d", kSecond}, {"e", kSecond}});
  EXPECT_THAT(error(), HasSubstr("'e' is not in model-00002-of-00002.safetensors"));
}

TEST_F(ModelFolderTest, TheSameTensorInTwoShardsIsNamed) {
  write_good_shards();
  write_tensors(kSecond, {"b", "c", "d"});
  EXPECT_THAT(error(), HasSubstr("'b' is in model-00002-of-00002.safetensors, but the index"));
}

TEST_F(ModelFolderTest, ASingleFileBesideShardsIsRefused) {
  write_good_shards();
  write_tensors("model.safetensors", {"a", "b", "c", "d"});
  EXPECT_THAT(error(), AllOf(HasSubstr("holds both model.safetensors and model.safetensors.index"),
                             HasSubstr("remove the one")));
  fs::remove(folder_ / "model.safetensors.index.json");
  EXPECT_THAT(error(), HasSubstr("holds both model.safetensors and model-00001-of-00002"));
}

TEST_F(ModelFolderTest, AShardOfAnotherSetBesideTheIndexIsRefused) {
  write_good_shards();
  write_tensors("model-00003-of-00003.safetensors", {"x"});
  EXPECT_THAT(error(), HasSubstr("does not name model-00003-of-00003.safetensors"));
}

TEST_F(ModelFolderTest, AFolderWithoutSafetensorsIsRefused) {
  write_file(folder_ / "pytorch_model.bin", "x");
  EXPECT_THAT(error(), HasSubstr("holds neither model.safetensors nor"));
}

TEST_F(ModelFolderTest, NamesInTheIndexCannotLeaveTheFolder) {
  write_tensors("inside.safetensors", {"a"});
  const std::string outside = (folder_ / "inside.safetensors").string();
  for (const std::string& name :
       {std::string("../x/inside.safetensors"), outside, std::string("sub/../../x"),
        std::string(".."), std::string(), std::string("inside.safetensors\0x", 20)}) {
    write_index({{"a", name}});
    EXPECT_THAT(error(), HasSubstr("not inside the folder")) << name;
  }
}

TEST_F(ModelFolderTest, LinksInsideTheFolderAreFollowed) {
  fs::create_directory(folder_ / "blobs");
  write_tensors("blobs/0123", {"a"});
  fs::create_symlink("blobs/0123", folder_ / "model.safetensors");
  EXPECT_EQ(text_of(ModelFolder(folder_).tensors().at("a").bytes), "a");
}

TEST_F(ModelFolderTest, ADamagedIndexIsRefused) {
  write_tensors("s.safetensors", {"a"});
  const fs::path index = folder_ / "model.safetensors.index.json";
  write_file(index, "[]");
  EXPECT_THAT(error(), HasSubstr("has no object 'weight_map'"));
  write_file(index, R"({"weight_map":{"a":1}})");
  EXPECT_THAT(error(), HasSubstr("'a' is not a file name"));
  write_file(index, R"({"weight_map":{"a":"s.safetensors","a":"s.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("twice"));
}

class ModelFolderWriterTest : public ModelFolderTest {
 protected:
  const std::vector<TensorDeclaration> tensors_{{"a", DType::UInt8, {3}},
                                                {"b", DType::UInt8, {4}},
                                                {"none", DType::UInt8, {0}},
                                                {"big", DType::UInt8, {9}},
                                                {"c", DType::UInt8, {1}}};
  void fill(ModelFolderWriter& writer) {
    writer.write("a", bytes_of("aaa"));
    writer.write("b", bytes_of("b"));
    writer.write("b", bytes_of("bbb"));
    writer.write("big", bytes_of("123456789"));
    writer.write("c", bytes_of("c"));
    writer.finish();
  }
  std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(ModelFolderWriterTest, WritesOneFileWhileItFits) {
  ModelFolderWriter writer(real_files(), folder_ / "out", "{}", tensors_, 17);
  EXPECT_FALSE(fs::exists(folder_ / "out")) << "half of a folder must not be seen";
  fill(writer);
  EXPECT_THAT(names_in(folder_ / "out"),
              ::testing::ElementsAre("config.json", "model.safetensors"));
  const SafetensorsReader reader(folder_ / "out" / "model.safetensors");
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(read_file(folder_ / "out" / "config.json"), "{}");
}

TEST_F(ModelFolderWriterTest, WritesShardsAndTheirIndexAboveTheLimit) {
  ModelFolderWriter writer(real_files(), folder_ / "out", "{}", tensors_, 7);
  fill(writer);
  EXPECT_THAT(
      names_in(folder_ / "out"),
      ::testing::ElementsAre("config.json", "model-00001-of-00003.safetensors",
                             "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                             "model.safetensors.index.json"));
  const ModelFolder folder(folder_ / "out");
  EXPECT_EQ(folder.tensors().size(), tensors_.size());
  EXPECT_EQ(text_of(folder.tensors().at("b").bytes), "bbbb");
  EXPECT_EQ(text_of(folder.tensors().at("big").bytes), "123456789");
  const Json index = Json::parse(read_file(folder_ / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 17);
}

TEST_F(ModelFolderWriterTest, AFolderThatIsNotEmptyIsRefusedAndUntouched) {
  fs::create_directory(folder_ / "out");
  write_file(folder_ / "out" / "mine", "x");
  EXPECT_THROW(ModelFolderWriter(real_files(), folder_ / "out", "{}", tensors_), ConfigError);
  EXPECT_THAT(names_in(folder_ / "out"), ::testing::ElementsAre("mine"));
}

TEST_F(ModelFolderWriterTest, WhatWasNotFinishedLeavesNothing) {
  {
    ModelFolderWriter writer(real_files(), folder_ / "out", "{}", tensors_);
    writer.write("a", bytes_of("aaa"));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace sw
