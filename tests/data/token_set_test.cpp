#include "data/token_set.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.hpp"
#include "tests/data/scratch.hpp"

namespace sw {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kHeaderBytes = 112;

/// Documents [5 6 7], with a prompt of two, and [8].
TokenSet two_documents(std::int64_t vocabulary) {
  TokenSet set({.tokenizer = "bytes", .vocabulary = vocabulary, .padding = 3, .add_eos = true});
  set.append(std::vector<std::int32_t>{5, 6});
  set.end_prompt();
  set.append(std::vector<std::int32_t>{7});
  set.end_document();
  set.append(std::vector<std::int32_t>{8});
  set.end_document();
  return set;
}

std::vector<std::int32_t> all_tokens(const TokenSet& set) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(set.tokens()));
  set.copy(0, tokens);
  return tokens;
}

std::string refusal(const std::filesystem::path& path) {
  return message_of<ConfigError>([&] { (void)TokenSet::open(path, Verify::Everything); });
}

TEST(TokenSet, ComesBackFromItsFileWithTwoOrFourBytesAToken) {
  for (const std::int64_t vocabulary : {9L, 65536L, 65537L, 200000L}) {
    const Scratch scratch;
    const TokenSet made = two_documents(vocabulary);
    made.write(real_files(), scratch.folder() / "a.tokens");
    const TokenSet read = TokenSet::open(scratch.folder() / "a.tokens", Verify::Everything);
    EXPECT_EQ(read.recipe(), made.recipe());
    EXPECT_THAT(all_tokens(read), ElementsAre(5, 6, 7, 8));
    EXPECT_THAT(read.documents(), ElementsAre(DocumentRecord{3, 2}, DocumentRecord{4, 3}));
    EXPECT_EQ(read.checksum(), made.checksum());
    const std::size_t bytes_per_token = vocabulary <= 65536 ? 2 : 4;
    EXPECT_EQ(scratch.read("a.tokens").size(), kHeaderBytes + 2 * 16 + 4 * bytes_per_token);
    EXPECT_FALSE(std::filesystem::exists(scratch.folder() / "a.tokens.tmp"));
  }
}

TEST(TokenSet, LargestIdsSurvive) {
  for (const std::int32_t largest : {65535, 65536, 200000}) {
    const Scratch scratch;
    TokenSet set({.tokenizer = "bytes", .vocabulary = largest + 1});
    set.append(std::vector<std::int32_t>{largest, 0});
    set.end_document();
    set.write(real_files(), scratch.folder() / "a");
    const TokenSet read = TokenSet::open(scratch.folder() / "a", Verify::Everything);
    EXPECT_THAT(all_tokens(read), ElementsAre(largest, 0));
    EXPECT_EQ(read.first_beyond(largest), 0);
    EXPECT_EQ(read.first_beyond(largest, 1), std::nullopt);
    EXPECT_EQ(read.first_beyond(largest + 1), std::nullopt);
  }
}

TEST(TokenSet, TheFileIsLaidOutAsDocumented) {
  const Scratch scratch;
  two_documents(300).write(real_files(), scratch.folder() / "a");
  const std::string file = scratch.read("a");
  const auto number = [&](std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, file.data() + at, bytes);
    return value;
  };
  EXPECT_EQ(file.substr(0, 8), "SWTOKENS");
  EXPECT_EQ(number(8, 4), 1U);     // version
  EXPECT_EQ(number(12, 4), 2U);    // bytes per token
  EXPECT_EQ(number(16, 8), 300U);  // vocabulary
  EXPECT_EQ(number(24, 8), 4U);    // tokens
  EXPECT_EQ(number(32, 8), 2U);    // documents
  EXPECT_EQ(number(40, 4), 2U);    // flags: EOS
  EXPECT_EQ(number(44, 4), 3U);    // padding
  EXPECT_STREQ(file.data() + 48, "bytes");
  EXPECT_EQ(number(112, 8), 3U);  // first document: end
  EXPECT_EQ(number(120, 8), 2U);  // first document: first label
  EXPECT_EQ(number(144, 2), 5U);  // first token
}

TEST(TokenSet, EveryTruncationIsRefusedWithBothSizes) {
  const Scratch scratch;
  two_documents(300).write(real_files(), scratch.folder() / "whole");
  const std::string whole = scratch.read("whole");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string message = refusal(scratch.write("cut", whole.substr(0, size)));
    EXPECT_THAT(message, HasSubstr("/cut: "));
    EXPECT_THAT(message, HasSubstr(std::to_string(size)));
    EXPECT_THAT(message,
                HasSubstr(std::to_string(size < kHeaderBytes ? kHeaderBytes : whole.size())));
  }
  EXPECT_THAT(refusal(scratch.write("long", whole + "x")), HasSubstr(std::to_string(whole.size())));
}

TEST(TokenSet, EveryFlippedBitIsRefused) {
  const Scratch scratch;
  two_documents(300).write(real_files(), scratch.folder() / "whole");
  const std::string whole = scratch.read("whole");
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1U << (bit % 8)));
    EXPECT_THAT(refusal(scratch.write("damaged", damaged)), HasSubstr("/damaged: ")) << bit;
  }
}

TEST(TokenSet, IdsBeyondItsOwnVocabularyAreRefusedWithPlaceAndNumbers) {
  const Scratch scratch;
  two_documents(8).write(real_files(), scratch.folder() / "a");
  EXPECT_THAT(refusal(scratch.folder() / "a"),
              HasSubstr("the token at position 3 is beyond the set's own vocabulary of 8"));
}

TEST(TokenSet, StructureAloneDoesNotReadTheTokens) {
  const Scratch scratch;
  two_documents(300).write(real_files(), scratch.folder() / "a");
  std::string damaged = scratch.read("a");
  damaged.back() = 1;
  const auto path = scratch.write("a", damaged);
  EXPECT_EQ(TokenSet::open(path, Verify::Structure).tokens(), 4);
  EXPECT_THAT(refusal(path), HasSubstr("the tokens are damaged"));
}

/// Files on a disk that is full after some bytes.
class FullDisk final : public Files {
 public:
  explicit FullDisk(std::size_t room) : room_(room) {}
  std::unique_ptr<OutputFile> create(const std::filesystem::path& path) override {
    return std::make_unique<File>(real_files().create(path), room_);
  }
  std::unique_ptr<OutputFile> append(const std::filesystem::path& path) override {
    return real_files().append(path);
  }
  void create_directories(const std::filesystem::path& path) override {
    real_files().create_directories(path);
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    real_files().rename(from, to);
  }
  void remove_all(const std::filesystem::path& path) override { real_files().remove_all(path); }
  void sync_directory(const std::filesystem::path& path) override {
    real_files().sync_directory(path);
  }

 private:
  class File final : public OutputFile {
   public:
    File(std::unique_ptr<OutputFile> file, std::size_t& room)
        : file_(std::move(file)), room_(room) {}
    void write(std::span<const std::byte> bytes) override {
      if (bytes.size() > room_) {
        throw DataError("could not write: No space left on device");
      }
      room_ -= bytes.size();
      file_->write(bytes);
    }
    void sync() override { file_->sync(); }
    void close() override { file_->close(); }

   private:
    std::unique_ptr<OutputFile> file_;
    std::size_t& room_;
  };
  std::size_t room_;
};

TEST(TokenSet, AFullDiskLeavesTheOldFileAndNothingElse) {
  for (const std::size_t room : {0, 112, 144}) {
    const Scratch scratch;
    scratch.write("a.tokens", "the old one");
    FullDisk disk(room);
    EXPECT_THAT(message_of<DataError>(
                    [&] { two_documents(300).write(disk, scratch.folder() / "a.tokens"); }),
                HasSubstr("No space left"));
    EXPECT_EQ(scratch.read("a.tokens"), "the old one");
    EXPECT_FALSE(std::filesystem::exists(scratch.folder() / "a.tokens.tmp"));
  }
}

}  // namespace
}  // namespace sw
