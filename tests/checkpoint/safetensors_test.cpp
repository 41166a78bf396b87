#include "checkpoint/safetensors.hpp"

#include <gmock/gmock.h>

#include "tests/checkpoint/scratch.hpp"

namespace sw {
namespace {

using sw::testing::bytes_of;
using sw::testing::data_error_of;
using sw::testing::read_file;
using sw::testing::write_file;
using ::testing::HasSubstr;

class SafetensorsTest : public sw::testing::ScratchTest {};

std::string characters_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Written by hand from the format's description.
std::string file_by_hand(std::string header, std::string_view data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size() & 0xffU);
  file[1] = static_cast<char>(header.size() >> 8U);
  return file + header + std::string(data);
}

TEST_F(SafetensorsTest, WritesTheBytesThatTheFormatDescribes) {
  SafetensorsWriter writer(
      real_files(), folder_ / "a",
      {{"x", DType::Float32, {2, 1}}, {"empty", DType::Int64, {0, 3}}, {"y", DType::UInt8, {3}}},
      {{"format", "pt"}});
  writer.write("x", bytes_of("abc"));
  writer.write("x", bytes_of("defgh"));
  writer.write("y", bytes_of("xyz"));
  const auto finished = writer.finish();
  const std::string expected =
      file_by_hand(R"({"__metadata__":{"format":"pt"},)"
                   R"("x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                   R"("empty":{"dtype":"I64","shape":[0,3],"data_offsets":[8,8]},)"
                   R"("y":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
                   "abcdefghxyz");
  EXPECT_EQ(read_file(folder_ / "a"), expected);
  EXPECT_EQ(finished.bytes, static_cast<std::int64_t>(expected.size()));
  EXPECT_EQ(finished.digest, hash128(bytes_of(expected)));
}

TEST_F(SafetensorsTest, ReadsEveryTypeScalarsAndEmptyTensors) {
  const std::vector<std::pair<std::string, DType>> types{
      {"F64", DType::Float64},   {"F32", DType::Float32}, {"F16", DType::Float16},
      {"BF16", DType::BFloat16}, {"I64", DType::Int64},   {"I32", DType::Int32},
      {"U64", DType::UInt64},    {"U8", DType::UInt8},    {"BOOL", DType::UInt8}};
  for (const auto& [name, dtype] : types) {
    const auto size = static_cast<std::size_t>(size_of(dtype));
    const std::string data(size * 2, 'v');
    write_file(folder_ / "a",
               file_by_hand(
                   fmt::format(R"({{"scalar":{{"dtype":"{0}","shape":[],"data_offsets":[0,{1}]}},)"
                               R"("one":{{"dtype":"{0}","shape":[1,1],"data_offsets":[{1},{2}]}},)"
                               R"("none":{{"dtype":"{0}","shape":[0],"data_offsets":[{2},{2}]}}}})",
                               name, size, size * 2),
                   data));
    const SafetensorsReader reader(folder_ / "a");
    EXPECT_EQ(reader.tensors().at("scalar").dtype, dtype) << name;
    EXPECT_EQ(reader.tensors().at("scalar").shape, Shape{}) << name;
    EXPECT_EQ(reader.tensors().at("scalar").bytes.size(), size) << name;
    EXPECT_EQ(reader.tensors().at("one").shape, (Shape{1, 1})) << name;
    EXPECT_TRUE(reader.tensors().at("none").bytes.empty()) << name;
  }
}

// Case C059.
TEST_F(SafetensorsTest, ScalarsAreKeptToTheByteWhenSavedAgain) {
  const std::string original =
      file_by_hand(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"BF16","shape":[],"data_offsets":[4,6]},)"
                   R"("c":{"dtype":"I64","shape":[],"data_offsets":[6,14]},)"
                   R"("d":{"dtype":"F32","shape":[2],"data_offsets":[14,22]}})",
                   "0123456789abcdefghijkl");
  write_file(folder_ / "a", original);
  const SafetensorsReader reader(folder_ / "a");
  std::vector<TensorDeclaration> declared;
  for (const auto& [name, view] : reader.tensors()) {
    declared.push_back({name, view.dtype, view.shape});
  }
  SafetensorsWriter writer(real_files(), folder_ / "b", declared);
  for (const auto& [name, view] : reader.tensors()) {
    writer.write(name, view.bytes);
  }
  writer.finish();
  EXPECT_EQ(read_file(folder_ / "b"), original);
}

TEST_F(SafetensorsTest, ViewsPointIntoTheFileAndSurviveAMove) {
  write_file(folder_ / "a",
             file_by_hand(R"({"x":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})", "hello"));
  SafetensorsReader first(folder_ / "a");
  const std::byte* address = first.tensors().at("x").bytes.data();
  const SafetensorsReader second = std::move(first);
  EXPECT_EQ(second.tensors().at("x").bytes.data(), address);
  EXPECT_EQ(characters_of(second.tensors().at("x").bytes), "hello");
}

TEST_F(SafetensorsTest, AFileWithoutTensorsIsAFile) {
  SafetensorsWriter writer(real_files(), folder_ / "a", {});
  writer.finish();
  EXPECT_TRUE(SafetensorsReader(folder_ / "a").tensors().empty());
}

TEST_F(SafetensorsTest, NamesThatNeedEscapingComeBack) {
  const std::string name = "a \"quoted\"\n\\ näme \x01";
  SafetensorsWriter writer(real_files(), folder_ / "a", {{name, DType::UInt8, {1}}});
  writer.write(name, bytes_of("x"));
  writer.finish();
  EXPECT_EQ(SafetensorsReader(folder_ / "a").tensors().begin()->first, name);
}

// Case C066: what the reader refuses is never written.
TEST_F(SafetensorsTest, AHeaderLongerThanReadersAcceptIsRefusedBeforeAFileExists) {
  EXPECT_THAT(data_error_of([&] {
                SafetensorsWriter(real_files(), folder_ / "a", {},
                                  {{"note", std::string(kMaxSafetensorsHeader, 'x')}});
              }),
              HasSubstr("more than the 100000000 that readers accept"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
}

TEST_F(SafetensorsTest, ANameGivenTwiceIsRefused) {
  EXPECT_THAT(data_error_of([&] {
                SafetensorsWriter(real_files(), folder_ / "a",
                                  {{"x", DType::UInt8, {1}}, {"x", DType::UInt8, {1}}});
              }),
              HasSubstr("'x' is given twice"));
}

TEST_F(SafetensorsTest, BytesOutOfOrderOrMissingAreABug) {
  SafetensorsWriter writer(real_files(), folder_ / "a",
                           {{"x", DType::UInt8, {2}}, {"y", DType::UInt8, {1}}});
  EXPECT_THROW(writer.write("y", bytes_of("1")), InternalError);
  EXPECT_THROW(writer.write("x", bytes_of("123")), InternalError);
  writer.write("x", bytes_of("12"));
  EXPECT_THROW(writer.finish(), InternalError);
  writer.write("y", bytes_of("3"));
  EXPECT_THROW(writer.write("y", bytes_of("4")), InternalError);
  writer.finish();
}

}  // namespace
}  // namespace sw
