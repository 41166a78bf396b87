#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/tokenizers/tokenizer.hpp"
#include "tests/data/scratch.hpp"

namespace sw {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(BytesTokenizer, IdsAreTheBytesOfTheText) {
  const auto tokenizer = make_tokenizer("bytes", ".");
  EXPECT_THAT(tokenizer->encode("Aé"), ElementsAre(0x41, 0xC3, 0xA9));
  EXPECT_EQ(tokenizer->vocabulary(), 259);
  EXPECT_EQ(tokenizer->special().begin, 256);
  EXPECT_EQ(tokenizer->special().end, 257);
  EXPECT_EQ(tokenizer->special().padding, 258);
}

TEST(BytesTokenizer, DecodingGivesBackEveryByteOfALongText) {
  const auto tokenizer = make_tokenizer("bytes", ".");
  std::string text(100000, '\0');
  std::iota(text.begin(), text.end(), '\0');
  const auto tokens = tokenizer->encode(text);
  EXPECT_EQ(tokens.size(), text.size());
  EXPECT_EQ(tokenizer->decode(tokens), text);
}

TEST(BytesTokenizer, DecodingLeavesOutSpecialTokensAndMarksUnknownOnes) {
  const auto tokenizer = make_tokenizer("bytes", ".");
  const std::vector<std::int32_t> tokens = {256, 'h', 'i', 257, 258, 259, -1};
  EXPECT_EQ(tokenizer->decode(tokens), "hi\uFFFD\uFFFD");
}

TEST(MakeTokenizer, RefusesWhatItDoesNotKnowByName) {
  EXPECT_THAT(message_of<ConfigError>([] { (void)make_tokenizer("gpt2", "."); }),
              HasSubstr("data.tokenizer = \"gpt2\" is unknown"));
}

TEST(ResolvedTokenizer, MakesPathsAbsoluteAndLeavesNamesAlone) {
  EXPECT_EQ(resolved_tokenizer("bytes", "/run"), "bytes");
  EXPECT_EQ(resolved_tokenizer("../tok/tokenizer.json", "/run"), "/tok/tokenizer.json");
  EXPECT_EQ(resolved_tokenizer("/tok/tokenizer.json", "/run"), "/tok/tokenizer.json");
}

}  // namespace
}  // namespace sw
