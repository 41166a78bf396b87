#include "data/corpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/data/scratch.hpp"

namespace sw {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Documents = DataOptions::Documents;
constexpr std::int32_t kBos = 256;
constexpr std::int32_t kEos = 257;
constexpr std::int32_t kPad = 258;

/// The documents "ab", "c" and "def": tokens a b E c E d e f E, of which 8 are inputs with labels.
constexpr std::string_view kThree = "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n{\"text\": \"def\"}\n";

TEST(Corpus, IsolatedDocumentsInRowsOfFour) {
  const Scratch scratch;
  scratch.write("a.jsonl", kThree);
  const Corpus corpus = Corpus::load({.sequence_length = 4}, scratch.source({"a.jsonl"}));
  ASSERT_EQ(corpus.samples(), 2);
  EXPECT_EQ(read_row(corpus, 0), (Row{.tokens = {'a', 'b', kEos, 'c'},
                                      .labels = {'b', kEos, -1, kEos},
                                      .positions = {0, 1, 2, 0},
                                      .documents = {0, 0, 0, 1}}));
  // The row starts inside "c", of which only the end marker is left.
  EXPECT_EQ(read_row(corpus, 1), (Row{.tokens = {kEos, 'd', 'e', 'f'},
                                      .labels = {-1, 'e', 'f', kEos},
                                      .positions = {0, 0, 1, 2},
                                      .documents = {0, 1, 1, 1}}));
  EXPECT_EQ(corpus.valid_tokens(0), 3);
  EXPECT_EQ(corpus.valid_tokens(1), 3);
  EXPECT_EQ(corpus.valid_tokens(), 6);
}

TEST(Corpus, JoinedDocumentsInRowsOfFour) {
  const Scratch scratch;
  scratch.write("a.jsonl", kThree);
  const Corpus corpus = Corpus::load({.sequence_length = 4, .documents = Documents::Joined},
                                     scratch.source({"a.jsonl"}));
  ASSERT_EQ(corpus.samples(), 2);
  EXPECT_EQ(read_row(corpus, 0), (Row{.tokens = {'a', 'b', kEos, 'c'},
                                      .labels = {'b', kEos, 'c', kEos},
                                      .positions = {0, 1, 2, 3},
                                      .documents = {0, 0, 0, 0}}));
  EXPECT_EQ(read_row(corpus, 1), (Row{.tokens = {kEos, 'd', 'e', 'f'},
                                      .labels = {'d', 'e', 'f', kEos},
                                      .positions = {0, 1, 2, 3},
                                      .documents = {0, 0, 0, 0}}));
  EXPECT_EQ(corpus.valid_tokens(), 8);
}

TEST(Corpus, TheLastSampleIsPaddedWithMaskedLabelsInADocumentOfTheirOwn) {
  const Scratch scratch;
  scratch.write("a.jsonl", kThree);
  const Corpus isolated = Corpus::load({.sequence_length = 6}, scratch.source({"a.jsonl"}));
  ASSERT_EQ(isolated.samples(), 2);
  EXPECT_EQ(read_row(isolated, 1), (Row{.tokens = {'e', 'f', kEos, kPad, kPad, kPad},
                                        .labels = {'f', kEos, -1, -1, -1, -1},
                                        .positions = {0, 1, 2, 0, 1, 2},
                                        .documents = {0, 0, 0, 1, 1, 1}}));
  const Corpus joined = Corpus::load({.sequence_length = 6, .documents = Documents::Joined},
                                     scratch.source({"a.jsonl"}));
  EXPECT_EQ(read_row(joined, 1), read_row(isolated, 1));
}

TEST(Corpus, ALabelThatOpensADocumentInTheNextRowIsMaskedWhenIsolated) {
  const Scratch scratch;
  scratch.write("a.jsonl", kThree);
  DataOptions options{.sequence_length = 3};
  EXPECT_THAT(read_row(Corpus::load(options, scratch.source({"a.jsonl"})), 0).labels,
              ElementsAre('b', kEos, -1));
  options.documents = Documents::Joined;
  EXPECT_THAT(read_row(Corpus::load(options, scratch.source({"a.jsonl"})), 0).labels,
              ElementsAre('b', kEos, 'c'));
}

TEST(Corpus, BeginAndEndMarkersAreAsTheKeysSay) {
  const Scratch scratch;
  scratch.write("a.txt", "ab");
  const auto tokens = [&](bool bos, bool eos) {
    return read_row(Corpus::load({.sequence_length = 4, .add_bos = bos, .add_eos = eos},
                                 scratch.source({"a.txt"})),
                    0)
        .tokens;
  };
  EXPECT_THAT(tokens(false, false), ElementsAre('a', 'b', kPad, kPad));
  EXPECT_THAT(tokens(true, false), ElementsAre(kBos, 'a', 'b', kPad));
  EXPECT_THAT(tokens(false, true), ElementsAre('a', 'b', kEos, kPad));
  EXPECT_THAT(tokens(true, true), ElementsAre(kBos, 'a', 'b', kEos));
}

TEST(Corpus, LabelsInsideAPromptAreMasked) {
  const Scratch scratch;
  scratch.write("a.jsonl",
                "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n"
                "{\"prompt\": \"e\", \"completion\": \"\"}\n{\"text\": \"f\"}\n");
  // a b c d E e E f E: the last row would hold the final marker only, which is no input.
  const Corpus isolated = Corpus::load({.sequence_length = 8}, scratch.source({"a.jsonl"}));
  ASSERT_EQ(isolated.samples(), 1);
  EXPECT_THAT(read_row(isolated, 0).labels, ElementsAre(-1, 'c', 'd', kEos, -1, kEos, -1, kEos));
  EXPECT_EQ(isolated.valid_tokens(0), 5);
  const Corpus joined = Corpus::load({.sequence_length = 8, .documents = Documents::Joined},
                                     scratch.source({"a.jsonl"}));
  EXPECT_THAT(read_row(joined, 0).labels, ElementsAre(-1, 'c', 'd', kEos, -1, kEos, 'f', kEos));
}

TEST(Corpus, ABeginMarkerBelongsToThePrompt) {
  const Scratch scratch;
  scratch.write("a.jsonl", "{\"text\": \"a\"}\n{\"prompt\": \"b\", \"completion\": \"c\"}\n");
  // B a E B b c E
  const Corpus corpus =
      Corpus::load({.sequence_length = 6, .documents = Documents::Joined, .add_bos = true},
                   scratch.source({"a.jsonl"}));
  EXPECT_THAT(read_row(corpus, 0).labels, ElementsAre('a', kEos, -1, -1, 'c', kEos));
}

TEST(Corpus, DocumentsOfTwoToNineteenTargetsAlone) {  // the documents of case C001
  const Scratch scratch;
  const std::vector<std::size_t> targets = {2, 3, 5, 7, 11, 13, 17, 19};
  std::string lines;
  for (const std::size_t count : targets) {
    // 20 tokens each: a prompt, count - 1 letters and the end marker.
    lines += fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n",
                         std::string(20 - count, 'p'), std::string(count - 1, 'c'));
  }
  scratch.write("a.jsonl", lines);
  const Corpus corpus = Corpus::load({.sequence_length = 20}, scratch.source({"a.jsonl"}));
  ASSERT_EQ(corpus.samples(), 8);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    EXPECT_EQ(corpus.valid_tokens(static_cast<std::int64_t>(i)),
              static_cast<std::int64_t>(targets[i]));
  }
}

TEST(Corpus, ARowOfPaddingHasNoValidToken) {
  const Scratch scratch;
  scratch.write("a.txt", "abc");
  const Corpus corpus = Corpus::load({.sequence_length = 3}, scratch.source({"a.txt"}));
  EXPECT_EQ(read_row(corpus, -1), (Row{.tokens = {kPad, kPad, kPad},
                                       .labels = {-1, -1, -1},
                                       .positions = {0, 1, 2},
                                       .documents = {0, 0, 0}}));
  EXPECT_EQ(corpus.valid_tokens(-1), 0);
}

TEST(Corpus, PaddingStaysInsideTheVocabularyOfAModelWithoutIt) {
  const Scratch scratch;
  scratch.write("a.txt", "abc");
  const Corpus corpus = Corpus::load({.sequence_length = 8}, scratch.source({"a.txt"}, 258));
  EXPECT_THAT(read_row(corpus, 0).tokens, ElementsAre('a', 'b', 'c', kEos, 0, 0, 0, 0));
}

TEST(Corpus, FilesStandInOrderInOneStream) {
  const Scratch scratch;
  scratch.write("b.txt", "b");
  scratch.write("a.jsonl", "{\"text\": \"a\"}");
  scratch.write("c.txt", "c");
  const Corpus corpus = Corpus::load({.sequence_length = 6}, scratch.source({"*"}));
  EXPECT_THAT(read_row(corpus, 0).tokens, ElementsAre('a', kEos, 'b', kEos, 'c', kEos));
  EXPECT_EQ(corpus.counts().files, 3);
  EXPECT_EQ(corpus.counts().documents, 3);
  EXPECT_EQ(corpus.counts().tokens, 6);
  EXPECT_EQ(corpus.counts().bytes, 1 + 13 + 1);
}

TEST(Corpus, TokenSetsBetweenTextGiveTheSameSamplesAsTheTextAlone) {
  const Scratch scratch;
  scratch.write("1.txt", "first");
  scratch.write("2.jsonl", kThree);
  scratch.write("3.txt", "last one");
  const DataOptions options{.sequence_length = 5};
  const auto set = scratch.folder() / "2.tokens";
  const CorpusCounts counts =
      tokenize_files(options, scratch.source({"2.jsonl"}, 0), real_files(), set);
  EXPECT_EQ(counts.documents, 3);
  EXPECT_EQ(counts.tokens, 9);
  const Corpus text = Corpus::load(options, scratch.source({"1.txt", "2.jsonl", "3.txt"}));
  const Corpus mixed = Corpus::load(options, scratch.source({"1.txt", "2.tokens", "3.txt"}));
  ASSERT_EQ(text.samples(), mixed.samples());
  for (std::int64_t sample = 0; sample < text.samples(); ++sample) {
    EXPECT_EQ(read_row(text, sample), read_row(mixed, sample));
    EXPECT_EQ(text.valid_tokens(sample), mixed.valid_tokens(sample));
  }
  EXPECT_EQ(text.counts().documents, mixed.counts().documents);
}

TEST(Corpus, RanksMapWhatTheirLauncherTokenized) {
  const Scratch scratch;
  scratch.write("1.txt", "first");
  scratch.write("2.jsonl", kThree);
  scratch.write("3.txt", "last one");
  const DataOptions options{.sequence_length = 5};
  tokenize_files(options, scratch.source({"2.jsonl"}, 0), real_files(),
                 scratch.folder() / "2.tokens");
  const Corpus launcher = Corpus::load(options, scratch.source({"1.txt", "2.tokens", "3.txt"}));
  CorpusSource source = scratch.source({});
  source.patterns =
      launcher.write_token_sets(real_files(), scratch.folder() / "run" / "data", "train");
  source.base = "/";
  source.verify = Verify::Structure;
  EXPECT_THAT(source.patterns,
              ElementsAre((scratch.folder() / "run/data/train-0.tokens").string(),
                          (scratch.folder() / "2.tokens").string(),
                          (scratch.folder() / "run/data/train-2.tokens").string()));
  const Corpus rank = Corpus::load(options, source);
  EXPECT_EQ(rank.fingerprint(), launcher.fingerprint());
  ASSERT_EQ(rank.samples(), launcher.samples());
  for (std::int64_t sample = 0; sample < rank.samples(); ++sample) {
    EXPECT_EQ(read_row(rank, sample), read_row(launcher, sample));
  }
}

TEST(Corpus, TheFingerprintTellsTextsAndDocumentsApart) {
  const auto fingerprint = [](std::string_view content) {
    const Scratch scratch;
    scratch.write("a.jsonl", content);
    return Corpus::load({.sequence_length = 4}, scratch.source({"a.jsonl"})).fingerprint();
  };
  EXPECT_EQ(fingerprint("{\"text\": \"ab\"}"), fingerprint("\n{ \"text\" : \"ab\" }\n"));
  EXPECT_NE(fingerprint("{\"text\": \"ab\"}"), fingerprint("{\"text\": \"ac\"}"));
  EXPECT_NE(fingerprint("{\"text\": \"ab\"}"),
            fingerprint("{\"prompt\": \"a\", \"completion\": \"b\"}"));
}

TEST(Corpus, ATokenSetMadeInAnotherWayIsRefusedWithBoth) {
  const Scratch scratch;
  scratch.write("a.txt", "abc");
  tokenize_files({}, scratch.source({"a.txt"}, 0), real_files(), scratch.folder() / "a.tokens");
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { (void)Corpus::load({.add_bos = true}, scratch.source({"a.tokens"})); }),
              AllOf(HasSubstr("a.tokens: was made with tokenizer bytes, add_bos = false"),
                    HasSubstr("the run file says tokenizer bytes, add_bos = true")));
}

TEST(Corpus, IdsBeyondTheVocabularyAreRefusedWithFilePositionAndBothNumbers) {
  const Scratch scratch;
  scratch.write("a.txt", "abc");
  scratch.write("b.txt", "xy\u00e9");
  tokenize_files({}, scratch.source({"b.txt"}, 0), real_files(), scratch.folder() / "b.tokens");
  const auto refusal = [&](const std::string& name, std::int64_t vocabulary) {
    return message_of<ConfigError>([&] {
      (void)Corpus::load({}, scratch.source({"a.txt", name}, vocabulary));
    });
  };
  EXPECT_THAT(refusal("b.txt", 257), AllOf(HasSubstr("/a.txt: the token at position 3 is 257"),
                                           HasSubstr("vocabulary of 257")));
  DataOptions options{.add_eos = false};
  for (const char* name : {"b.txt", "b.tokens"}) {
    options.add_eos = std::string_view(name) == "b.tokens";
    const std::string message =
        message_of<ConfigError>([&] { (void)Corpus::load(options, scratch.source({name}, 0xC3)); });
    EXPECT_THAT(message, AllOf(HasSubstr(fmt::format("/{}: the token at position 2 is 195", name)),
                               HasSubstr("vocabulary of 195")));
  }
}

TEST(Corpus, ARankThatMapsAChangedFileNamesTheSample) {
  const Scratch scratch;
  scratch.write("a.txt", "abcdef");
  tokenize_files({}, scratch.source({"a.txt"}, 0), real_files(), scratch.folder() / "a.tokens");
  std::string damaged = scratch.read("a.tokens");
  damaged[damaged.size() - 3] = 2;  // 'f' becomes 'f' + 512
  scratch.write("a.tokens", damaged);
  CorpusSource source = scratch.source({"a.tokens"});
  source.verify = Verify::Structure;
  const Corpus corpus = Corpus::load({.sequence_length = 3}, source);
  EXPECT_EQ(read_row(corpus, 0).tokens[0], 'a');
  EXPECT_THAT(message_of<DataError>([&] { read_row(corpus, 1); }),
              AllOf(HasSubstr("sample 1 holds token 614"), HasSubstr("vocabulary of 259")));
}

TEST(Corpus, FilesWithoutTextAreAnEmptyDataset) {  // cases C015 and C017
  const Scratch scratch;
  scratch.write("a.jsonl", "{\"text\": \"\"}\n{\"text\": \" \\n\"}\n\n");
  scratch.write("b.txt", "");
  const std::string message = message_of<ConfigError>([&] {
    (void)Corpus::load({}, scratch.source({"a.jsonl", "b.txt"}));
  });
  EXPECT_THAT(message, HasSubstr("data.train: the dataset is empty: 0 tokens in 2 file(s)"));
  EXPECT_THAT(message, HasSubstr("3 empty document(s), 1 blank line(s)"));
}

TEST(Corpus, OneTokenIsNoSample) {
  const Scratch scratch;
  scratch.write("a.txt", "a");
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { (void)Corpus::load({.add_eos = false}, scratch.source({"a.txt"})); }),
              HasSubstr("1 token(s)"));
  EXPECT_EQ(Corpus::load({.sequence_length = 1}, scratch.source({"a.txt"})).samples(), 1);
}

TEST(Corpus, AMissingFileIsAConfigErrorAndSoIsAnUnreadableOne) {
  const Scratch scratch;
  EXPECT_THAT(
      message_of<ConfigError>([&] { (void)Corpus::load({}, scratch.source({"nothing.txt"})); }),
      HasSubstr("\"nothing.txt\" matches no file"));
  std::filesystem::create_symlink("/nonexistent/x", scratch.folder() / "broken.txt");
  EXPECT_THAT(message_of<ConfigError>([&] { (void)Corpus::load({}, scratch.source({"*.txt"})); }),
              HasSubstr("broken.txt"));
}

TEST(TokenizeFiles, RefusesTokenSetsAndNothing) {
  const Scratch scratch;
  scratch.write("a.txt", "abc");
  scratch.write("empty.txt", "\n");
  const auto out = scratch.folder() / "a.tokens";
  const auto source = [&](const char* name) { return scratch.source({name}, 0); };
  tokenize_files({}, source("a.txt"), real_files(), out);
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { tokenize_files({}, source("a.tokens"), real_files(), "b.tokens"); }),
              HasSubstr("is a token set already"));
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { tokenize_files({}, source("empty.txt"), real_files(), "b.tokens"); }),
              HasSubstr("the dataset is empty"));
  EXPECT_FALSE(std::filesystem::exists("b.tokens"));
}

TEST(DataOptions, ContradictionsAreRefusedByKey) {
  const auto refusal = [](const DataOptions& options) {
    return message_of<ConfigError>([&] { check(options); });
  };
  check({.train = {"a"}});
  EXPECT_THAT(refusal({}), HasSubstr("data.train names no files"));
  EXPECT_THAT(refusal({.train = {"a"}, .sequence_length = 0}),
              HasSubstr("data.sequence_length = 0"));
  EXPECT_THAT(refusal({.train = {"a"}, .validation_every = 5}),
              HasSubstr("data.validation_every = 5 but data.validation names no files"));
  EXPECT_THAT(refusal({.train = {"a"}, .max_bad_lines = -1}), HasSubstr("data.max_bad_lines = -1"));
}

}  // namespace
}  // namespace sw
