#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "base/json.hpp"
#include "data/corpus.hpp"
#include "tests/data/scratch.hpp"

namespace sw {
namespace {

/// A document as the file will hold it.
struct Line {
  std::string prompt, text;
};

/// One token of the stream with all that is known of it.
struct Token {
  std::int32_t id;
  std::int32_t document;
  bool in_prompt;
};

/// The stream token by token, with nothing clever.
std::vector<Token> stream_of(const std::vector<Line>& lines, const DataOptions& options) {
  std::vector<Token> stream;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto document = static_cast<std::int32_t>(i);
    const bool has_prompt = !lines[i].prompt.empty();
    if (options.add_bos) {
      stream.push_back({256, document, has_prompt});
    }
    for (const char letter : lines[i].prompt) {
      stream.push_back({letter, document, true});
    }
    for (const char letter : lines[i].text) {
      stream.push_back({letter, document, false});
    }
    if (options.add_eos) {
      stream.push_back({257, document, false});
    }
  }
  return stream;
}

/// interface.md, "Samples", element by element.
Row row_of(const std::vector<Token>& stream, std::size_t begin, const DataOptions& options) {
  const bool isolated = options.documents == DataOptions::Documents::Isolated;
  Row row;
  std::int32_t padding = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.sequence_length); ++i) {
    const std::size_t at = begin + i;
    if (at >= stream.size()) {
      row.tokens.push_back(258);
      row.labels.push_back(-1);
      row.positions.push_back(padding++);
      row.documents.push_back(i == 0 || padding > 1
                                  ? row.documents.empty() ? 0 : row.documents.back()
                                  : row.documents.back() + 1);
      continue;
    }
    const bool same = i > 0 && stream[at].document == stream[at - 1].document;
    row.tokens.push_back(stream[at].id);
    if (i == 0) {
      row.positions.push_back(0);
      row.documents.push_back(0);
    } else if (same || !isolated) {
      row.positions.push_back(row.positions.back() + 1);
      row.documents.push_back(row.documents.back());
    } else {
      row.positions.push_back(0);
      row.documents.push_back(row.documents.back() + 1);
    }
    const bool labelled = at + 1 < stream.size() && !stream[at + 1].in_prompt &&
                          (!isolated || stream[at + 1].document == stream[at].document);
    row.labels.push_back(labelled ? stream[at + 1].id : -1);
  }
  return row;
}

std::vector<Line> some_lines() {
  const auto text = rc::gen::container<std::string>(rc::gen::inRange('a', 'z'));
  std::vector<Line> lines;
  const auto pairs =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<std::pair<std::string, std::string>>>(
          rc::gen::pair(text, rc::gen::nonEmpty(text))));
  for (const auto& [prompt, completion] : pairs) {
    lines.push_back({*rc::gen::element(std::string(), prompt), completion});
  }
  return lines;
}

std::string json_of(const Line& line) {
  const Json object = line.prompt.empty()
                          ? Json{{"text", line.text}}
                          : Json{{"prompt", line.prompt}, {"completion", line.text}};
  return object.dump() + "\n";
}

/// Writes the lines to up to four files, each as JSONL or as a token set.
std::vector<std::string> write_somehow(const Scratch& scratch, const std::vector<Line>& lines,
                                       const DataOptions& options) {
  std::vector<std::string> contents(4);
  std::size_t file = 0;
  for (const Line& line : lines) {
    file = std::min<std::size_t>(file + static_cast<std::size_t>(*rc::gen::inRange(0, 2)), 3);
    contents[file] += json_of(line);
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    const std::string name = std::to_string(i);
    scratch.write(name + ".jsonl", contents[i]);
    if (contents[i].empty() || *rc::gen::arbitrary<bool>()) {
      names.push_back(name + ".jsonl");
    } else {
      names.push_back(name + ".tokens");
      tokenize_files(options, scratch.source({name + ".jsonl"}, 0), real_files(),
                     scratch.folder() / names.back());
    }
  }
  return names;
}

RC_GTEST_PROP(Corpus, EverySampleIsWhatTheDefinitionSaysHoweverTheFilesAreCut, ()) {
  const Scratch scratch;
  const DataOptions options{
      .sequence_length = *rc::gen::inRange(1, 12),
      .documents =
          *rc::gen::element(DataOptions::Documents::Isolated, DataOptions::Documents::Joined),
      .add_bos = *rc::gen::arbitrary<bool>(),
      .add_eos = *rc::gen::arbitrary<bool>(),
  };
  const std::vector<Line> lines = some_lines();
  const std::vector<Token> stream = stream_of(lines, options);
  RC_PRE(stream.size() >= 2U);
  const Corpus corpus =
      Corpus::load(options, scratch.source(write_somehow(scratch, lines, options)));

  const auto length = static_cast<std::size_t>(options.sequence_length);
  std::int64_t samples = 0;
  std::int64_t valid = 0;
  for (std::size_t begin = 0; begin + 1 < stream.size(); begin += length) {
    const Row expected = row_of(stream, begin, options);
    RC_ASSERT(read_row(corpus, samples) == expected);
    const auto labels = static_cast<std::int64_t>(length) - std::ranges::count(expected.labels, -1);
    RC_ASSERT(corpus.valid_tokens(samples) == labels);
    valid += labels;
    ++samples;
  }
  RC_ASSERT(corpus.samples() == samples);
  RC_ASSERT(corpus.valid_tokens() == valid);
}

}  // namespace
}  // namespace sw
