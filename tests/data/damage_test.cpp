#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "tests/data/scratch.hpp"

/// Damaged files give a corpus or a ConfigError, and nothing else: no crash, no hang, no other
/// error. Seeds are fixed, so a failure comes back.
namespace sw {
namespace {

class Damage {
 public:
  explicit Damage(std::uint32_t seed) : random_(seed) {}

  std::string apply(std::string text) {
    const int changes = 1 + below(4);
    for (int i = 0; i < changes; ++i) {
      change(text);
    }
    return text;
  }

 private:
  int below(std::size_t limit) {
    return static_cast<int>(random_() % std::max<std::size_t>(limit, 1));
  }

  void change(std::string& text) {
    const auto at = static_cast<std::size_t>(below(text.size()));
    const auto length = static_cast<std::size_t>(below(20));
    switch (below(6)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(static_cast<std::size_t>(below(text.size())), length));
        break;
      case 3:
        text.insert(at, 1, static_cast<char>(below(256)));
        break;
      default:
        if (!text.empty()) {
          text[at] = static_cast<char>(below(256));
        }
    }
  }

  std::mt19937 random_;
};

/// Loads and reads everything; true when that was refused cleanly.
bool refused(const DataOptions& options, const CorpusSource& source) {
  try {
    const Corpus corpus = Corpus::load(options, source);
    std::int64_t valid = 0;
    for (std::int64_t sample = 0; sample < corpus.samples(); ++sample) {
      const Row row = read_row(corpus, sample);
      valid += std::ssize(row.labels) - std::ranges::count(row.labels, -1);
    }
    EXPECT_EQ(valid, corpus.valid_tokens());
    return false;
  } catch (const ConfigError&) {
    return true;
  }
}

TEST(Damage, JsonlLoadsOrIsRefusedCleanly) {
  const Scratch scratch;
  std::string content;
  for (int i = 0; i < 10; ++i) {
    content += fmt::format(
        "{{\"text\": \"Grüße \\u00e9 {}\", \"meta\": {{\"n\": [1, 2.5e3, null]}}}}\r\n"
        "{{\"prompt\": \"ask {}\", \"completion\": \"tell\"}}\n",
        i, i);
  }
  int refusals = 0;
  int skipping_refusals = 0;  // what is left may be nothing
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    scratch.write("a.jsonl", Damage(seed).apply(content));
    refusals += refused({.sequence_length = 16}, scratch.source({"a.jsonl"})) ? 1 : 0;
    skipping_refusals += refused({.sequence_length = 16, .bad_lines = DataOptions::BadLines::Skip},
                                 scratch.source({"a.jsonl"}))
                             ? 1
                             : 0;
  }
  EXPECT_GT(refusals, 300);
  EXPECT_LT(refusals, 1000);
  EXPECT_LT(skipping_refusals, refusals / 5);
}

TEST(Damage, TokenSetsLoadOrAreRefusedCleanly) {
  const Scratch scratch;
  scratch.write("a.jsonl",
                "{\"text\": \"one\"}\n{\"prompt\": \"two\", \"completion\": \"three\"}\n");
  tokenize_files({}, scratch.source({"a.jsonl"}, 0), real_files(), scratch.folder() / "a.tokens");
  const std::string whole = scratch.read("a.tokens");
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    const std::string damaged = Damage(seed).apply(whole);
    scratch.write("b.tokens", damaged);
    EXPECT_EQ(refused({.sequence_length = 4}, scratch.source({"b.tokens"})), damaged != whole)
        << "seed " << seed;
  }
}

/// As some other program might write it: checksums that fit, numbers that do not.
TEST(Damage, TokenSetsWithNonsenseUnderRightChecksumsAreRefusedCleanly) {
  const Scratch scratch;
  scratch.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n");
  tokenize_files({}, scratch.source({"a.jsonl"}, 0), real_files(), scratch.folder() / "a.tokens");
  const std::string whole = scratch.read("a.tokens");
  const auto seal = [](std::string file) {
    const auto put = [&](std::size_t at, std::uint64_t value) {
      file.replace(at, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
    };
    const auto bytes = std::as_bytes(std::span(file));
    const std::size_t tokens_at = 112 + 3 * 16;
    put(88, hash64(bytes.subspan(112, tokens_at - 112)));
    put(96, hash64(bytes.subspan(tokens_at)));
    put(104, hash64(bytes.first(104)));
    return file;
  };
  EXPECT_EQ(seal(whole), whole);
  std::mt19937 random(7);
  int refusals = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string file = whole;
    // A small number or a byte of 255 makes sizes that nearly fit, and sizes that overflow.
    const std::size_t at = 8 + random() % (file.size() - 8);
    file[at] = static_cast<char>(random() % 3 == 0 ? 255 : random() % 20);
    scratch.write("b.tokens", seal(file));
    refusals += refused({.sequence_length = 4}, scratch.source({"b.tokens"})) ? 1 : 0;
  }
  EXPECT_GT(refusals, 750);
}

}  // namespace
}  // namespace sw
