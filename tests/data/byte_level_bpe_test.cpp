#include "data/tokenizers/byte_level_bpe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.hpp"
#include "tests/data/scratch.hpp"

/// Held to what Hugging Face's `tokenizers` gives: tests/fixtures/data/make_tokenizers.py.
namespace sw {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kFixtures =
    std::filesystem::path(SW_SOURCE_DIR) / "tests" / "fixtures" / "data";

std::string content_of(const std::filesystem::path& path) { return read_whole_file(path, 1 << 20); }

class AgainstTokenizers : public testing::TestWithParam<const char*> {};

TEST_P(AgainstTokenizers, EveryTextGivesTheSameIdsAndComesBackTheSame) {
  const auto folder = kFixtures / GetParam();
  const auto tokenizer = make_tokenizer("tokenizer.json", folder);
  const Json cases = parse_json(content_of(folder / "expected.json"), "expected.json");
  EXPECT_GT(cases.size(), 20U);
  for (const Json& each : cases) {
    const auto text = each.at("text").get<std::string>();
    const auto ids = each.at("ids").get<std::vector<std::int32_t>>();
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids), each.at("decoded").get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, AgainstTokenizers, testing::Values("gpt2", "llama3"));

TEST(ByteLevelBpe, KnowsItsSpecialTokensByTheirUsualNames) {
  const auto gpt2 = make_tokenizer("gpt2/tokenizer.json", kFixtures);
  EXPECT_EQ(gpt2->special().begin, 0);
  EXPECT_EQ(gpt2->special().end, 0);
  EXPECT_EQ(gpt2->special().padding, std::nullopt);
  EXPECT_EQ(gpt2->vocabulary(), 420);
  const auto llama3 = make_tokenizer("llama3/tokenizer.json", kFixtures);
  EXPECT_EQ(llama3->special().begin, 0);
  EXPECT_EQ(llama3->special().end, 1);
  EXPECT_EQ(llama3->vocabulary(), 422);  // two tokens were added behind the 420
  EXPECT_NE(gpt2->name(), llama3->name());
}

TEST(ByteLevelBpe, AConfigurationBesideTheFileNamesTheSpecialTokens) {
  const Scratch scratch;
  scratch.write("tokenizer.json", content_of(kFixtures / "llama3" / "tokenizer.json"));
  scratch.write("tokenizer_config.json",
                R"({"eos_token": {"content": "<tool>"}, "pad_token": "a", "bos_token": null})");
  const auto tokenizer = make_tokenizer("tokenizer.json", scratch.folder());
  EXPECT_EQ(tokenizer->special().begin, std::nullopt);
  EXPECT_EQ(tokenizer->special().end, 420);
  EXPECT_EQ(tokenizer->special().padding, 66);
  scratch.write("tokenizer_config.json", R"({"eos_token": "<nothing>"})");
  EXPECT_THAT(
      message_of<ConfigError>([&] { (void)make_tokenizer("tokenizer.json", scratch.folder()); }),
      HasSubstr("eos_token = \"<nothing>\" is no token of tokenizer.json"));
}

TEST(ByteLevelBpe, ALongWordWithoutASpaceTakesNoLongTime) {
  const auto tokenizer = make_tokenizer("gpt2/tokenizer.json", kFixtures);
  std::string word;
  for (std::size_t i = 0; i < 1000000; ++i) {
    word.push_back("abc"[i * i % 7 % 3]);
  }
  const auto ids = tokenizer->encode(word);
  EXPECT_EQ(tokenizer->decode(ids), word);
  EXPECT_LT(ids.size(), word.size());
}

TEST(ByteLevelBpe, TextThatIsNotUtf8IsRefusedWithItsPlace) {
  const auto tokenizer = make_tokenizer("gpt2/tokenizer.json", kFixtures);
  EXPECT_THAT(message_of<DataError>([&] { (void)tokenizer->encode("abc\xFF"); }),
              HasSubstr("byte 3 of the text is not valid UTF-8"));
}

TEST(ByteLevelBpe, ACorpusIsMadeWithItsMarkers) {
  const Scratch scratch;
  scratch.write("tokenizer.json", content_of(kFixtures / "llama3" / "tokenizer.json"));
  scratch.write("a.txt", "it's");  // expected.json begins this text with 'i' 74, 't' 85, "'s" 315
  const Corpus corpus =
      Corpus::load({.tokenizer = "tokenizer.json", .sequence_length = 6, .add_bos = true},
                   scratch.source({"a.txt"}, 422));
  EXPECT_THAT(read_row(corpus, 0).tokens, ElementsAre(0, 74, 85, 315, 1, 0));
}

/// What a file says instead, and what the refusal must hold.
struct Change {
  std::string from, to, reason;
};

TEST(ByteLevelBpe, WhatIsNotInThisVersionIsRefusedByNameAndDamageByPlace) {
  const std::string whole = content_of(kFixtures / "llama3" / "tokenizer.json");
  const std::vector<Change> changes = {
      {R"("type":"BPE")", R"("type":"Unigram")", "model.type = \"Unigram\" is not in this version"},
      {R"("normalizer":null)", R"("normalizer":{"type":"NFC"})", "normalizer = {\"type\":\"NFC\"}"},
      {R"("byte_fallback":false)", R"("byte_fallback":true)", "model.byte_fallback = true"},
      {R"("dropout":null)", R"("dropout":0.1)", "model.dropout = 0.1"},
      {R"("behavior":"Isolated")", R"("behavior":"Removed")", "behavior = \"Removed\""},
      {R"("type":"Split")", R"("type":"Metaspace")", "pretokenizers[0].type = \"Metaspace\""},
      {R"("add_prefix_space":false)", R"("add_prefix_space":true)", "add_prefix_space = true"},
      {R"("lstrip":false)", R"("lstrip":true)", "added_tokens[0].lstrip = true"},
      {R"("!":2,)", "", "no token for byte 33"},
      {R"("!":2,)", R"("!":-2,)", "model.vocab.! = -2 is no token id"},
      {R"("!":2,)", R"("!":2000000000,)", "the largest id is 2000000000"},
      {R"("!":2,)", R"("!":2,"!":2,)", "the key '!' stands twice"},
      {R"("merges":[)", R"("merges":[["!","?"],)", "needs the token \"!?\""},
      {R"("merges":[)", R"("merges":["!",)", "model.merges[0] does not hold two tokens"},
      {R"((?i:'s)", R"((?i:'s()", "does not compile"},
      {R"("version":"1.0")", R"("version":"1.0)", "not valid JSON"},
  };
  for (const Change& change : changes) {
    const Scratch scratch;
    std::string text = whole;
    const std::size_t at = text.find(change.from);
    ASSERT_NE(at, std::string::npos) << change.from;
    scratch.write("tokenizer.json", text.replace(at, change.from.size(), change.to));
    EXPECT_THAT(
        message_of<ConfigError>([&] { (void)make_tokenizer("tokenizer.json", scratch.folder()); }),
        HasSubstr(change.reason));
  }
  EXPECT_THAT(message_of<ConfigError>([] { (void)make_tokenizer("none.json", kFixtures); }),
              HasSubstr("none.json"));
}

}  // namespace
}  // namespace sw
