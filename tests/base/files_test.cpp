#include "base/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/error.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
    return "no error";
  } catch (const DataError& error) {
    return error.what();
  }
}

class FilesTest : public ::testing::Test {
 protected:
  FilesTest() {
    std::string name = (fs::temp_directory_path() / "sw-files-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~FilesTest() override { fs::remove_all(folder_); }

  void write(const fs::path& path, std::string_view text) {
    const auto file = real_files().create(path);
    file->write(bytes_of(text));
    file->close();
  }
  static std::string read(const fs::path& path) { return read_whole_file(path, 1 << 20); }

  fs::path folder_;
};

TEST_F(FilesTest, CreateTruncatesAndAppendAdds) {
  write(folder_ / "a", "first, longer");
  write(folder_ / "a", "second");
  EXPECT_EQ(read(folder_ / "a"), "second");
  const auto file = real_files().append(folder_ / "a");
  file->write(bytes_of(" and third"));
  file->sync();
  file->close();
  EXPECT_EQ(read(folder_ / "a"), "second and third");
}

TEST_F(FilesTest, WriteWholeFileReplacesAndLeavesNothingBeside) {
  write_whole_file(real_files(), folder_ / "a", "old");
  write_whole_file(real_files(), folder_ / "a", "new");
  EXPECT_EQ(read(folder_ / "a"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FilesTest, ReadWholeFileRefusesAFileAboveTheLimit) {
  write(folder_ / "a", "12345");
  EXPECT_EQ(read_whole_file(folder_ / "a", 5), "12345");
  EXPECT_THAT(error_of([&] { (void)read_whole_file(folder_ / "a", 4); }),
              AllOf(HasSubstr((folder_ / "a").string()), HasSubstr("5 bytes"), HasSubstr("4")));
}

TEST_F(FilesTest, ErrorsNameThePathTheActionAndTheReason) {
  const fs::path missing = folder_ / "missing" / "file";
  EXPECT_THAT(error_of([&] { (void)read_whole_file(missing, 1); }),
              AllOf(HasSubstr(missing.string()), HasSubstr("No such file or directory")));
  EXPECT_THAT(error_of([&] { (void)MappedFile(missing); }), HasSubstr(missing.string()));
  EXPECT_THAT(error_of([&] { (void)real_files().create(missing); }),
              AllOf(HasSubstr("create"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { real_files().rename(missing, folder_ / "b"); }),
              AllOf(HasSubstr(missing.string()), HasSubstr((folder_ / "b").string())));
  EXPECT_THAT(error_of([&] { real_files().sync_directory(missing); }), HasSubstr("directory"));
  EXPECT_THAT(error_of([&] { (void)read_whole_file(folder_, 1); }), HasSubstr("regular file"));
  write(folder_ / "a", "");
  EXPECT_THAT(error_of([&] { real_files().create_directories(folder_ / "a" / "b"); }),
              HasSubstr("create the directory"));
}

TEST_F(FilesTest, AFullDiskNamesTheBytes) {
  if (!fs::exists("/dev/full")) {
    GTEST_SKIP() << "needs /dev/full";
  }
  const auto file = real_files().create("/dev/full");
  EXPECT_THAT(error_of([&] { file->write(bytes_of("hello")); }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("5 bytes"), HasSubstr("No space left")));
}

TEST_F(FilesTest, AMappedFileShowsTheBytesAndSurvivesAMove) {
  write(folder_ / "a", "hello");
  write(folder_ / "empty", "");
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
  MappedFile first(folder_ / "a");
  MappedFile second = std::move(first);
  ASSERT_EQ(second.bytes().size(), 5U);
  EXPECT_EQ(std::memcmp(second.bytes().data(), "hello", 5), 0);
  second = MappedFile(folder_ / "empty");
  EXPECT_TRUE(second.bytes().empty());
}

}  // namespace
}  // namespace sw
