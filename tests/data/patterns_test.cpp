#include "data/patterns.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/data/scratch.hpp"

namespace sw {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names(const Scratch& scratch, const std::vector<std::string>& patterns) {
  std::vector<std::string> found;
  for (const auto& file : files_matching("data.train", patterns, scratch.folder())) {
    found.push_back(file.lexically_relative(scratch.folder()).string());
  }
  return found;
}

std::string refusal(const Scratch& scratch, const std::vector<std::string>& patterns) {
  return message_of<ConfigError>([&] { (void)names(scratch, patterns); });
}

TEST(Patterns, KeepTheirOrderAndSortTheirMatchesByByte) {
  const Scratch scratch;
  for (const char* name : {"b.txt", "a.txt", "B.txt", "a10.txt", "a9.txt", "z/x.txt"}) {
    scratch.write(name, "x");
  }
  EXPECT_THAT(names(scratch, {"z/*", "*.txt"}),
              ElementsAre("z/x.txt", "B.txt", "a.txt", "a10.txt", "a9.txt", "b.txt"));
  EXPECT_THAT(names(scratch, {"*/*.txt", "[ab].txt", "a?.txt"}),
              ElementsAre("z/x.txt", "a.txt", "b.txt", "a9.txt"));
}

TEST(Patterns, AnAbsolutePathStandsForItself) {
  const Scratch scratch;
  scratch.write("a.txt", "x");
  EXPECT_THAT(names(scratch, {(scratch.folder() / "a.txt").string()}), ElementsAre("a.txt"));
  EXPECT_THAT(names(scratch, {(scratch.folder() / "*.txt").string()}), ElementsAre("a.txt"));
}

TEST(Patterns, AFileWhoseNameLooksLikeAPatternIsFound) {
  const Scratch scratch;
  scratch.write("a[1]*.txt", "x");
  EXPECT_THAT(names(scratch, {"a[1]*.txt"}), ElementsAre("a[1]*.txt"));
}

TEST(Patterns, AFolderWhoseNameLooksLikeAPatternIsNoPattern) {
  const Scratch scratch;
  scratch.write("run[1]/a.txt", "x");
  const auto found = files_matching("data.train", {"*.txt"}, scratch.folder() / "run[1]");
  EXPECT_EQ(found.size(), 1U);
}

TEST(Patterns, OneThatMatchesNothingIsRefusedWithKeyPatternAndFolder) {
  const Scratch scratch;
  scratch.write("a.txt", "x");
  const std::string message = refusal(scratch, {"a.txt", "corpus/*.jsonl"});
  EXPECT_THAT(message, HasSubstr("data.train"));
  EXPECT_THAT(message, HasSubstr("\"corpus/*.jsonl\" matches no file"));
  EXPECT_THAT(message, HasSubstr(scratch.folder().string()));
}

TEST(Patterns, AFolderIsRefusedWithThePatternThatNamesItsFiles) {
  const Scratch scratch;
  scratch.write("corpus/a.txt", "x");
  EXPECT_THAT(refusal(scratch, {"corpus"}), HasSubstr("as in \"corpus/*\""));
}

TEST(Patterns, AFileNamedTwiceIsRefusedWithBothPatterns) {
  const Scratch scratch;
  scratch.write("a.txt", "x");
  scratch.write("b.txt", "x");
  const std::string message = refusal(scratch, {"*.txt", "./a.txt"});
  EXPECT_THAT(message, HasSubstr("named twice, by \"*.txt\" and by \"./a.txt\""));
}

TEST(Patterns, RecursionIsRefusedByName) {
  const Scratch scratch;
  EXPECT_THAT(refusal(scratch, {"**/*.txt"}), HasSubstr("'**'"));
}

}  // namespace
}  // namespace sw
