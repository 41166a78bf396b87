#include "data/corpus.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/patterns.hpp"
#include "data/tokenize.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

std::string plus_markers(const TokenSetRecipe& recipe) {
  return fmt::format("tokenizer {}, add_bos = {}, add_eos = {}", recipe.tokenizer, recipe.add_bos,
                     recipe.add_eos);
}

/// A mapped set whose tokens were made as the run file asks.
TokenSet open_matching(const fs::path& path, const TokenSetRecipe& expected,
                       const CorpusSource& source) {
  TokenSet set = TokenSet::open(path, source.verify);
  if (set.recipe() != expected) {
    throw ConfigError(fmt::format(
        "{}: was made with {}, but the run file says {}; change its [data] keys or make the set "
        "again with `shardwright tokenize`",
        path.string(), plus_markers(set.recipe()), plus_markers(expected)));
  }
  // With Verify::Everything every id is known to be in the set's own vocabulary.
  if (source.verify == Verify::Everything && set.recipe().vocabulary > source.vocabulary) {
    check_vocabulary(set, 0, source.vocabulary, path);
  }
  return set;
}

[[noreturn]] void refuse_too_small(const CorpusSource& source, const CorpusCounts& counts) {
  const std::string found = fmt::format(
      "{} file(s), {} byte(s), {} document(s), {} empty document(s), {} blank line(s), {} bad "
      "line(s) left out",
      counts.files, counts.bytes, counts.documents, counts.empty_documents, counts.blank_lines,
      counts.bad_lines);
  if (counts.tokens == 0) {
    throw ConfigError(
        fmt::format("{}: the dataset is empty: 0 tokens in {}; name files that hold "
                    "text",
                    source.key, found));
  }
  throw ConfigError(fmt::format(
      "{}: the dataset is empty: {} token(s) in {}, and the smallest sample needs 2, an "
      "input and its label; add text",
      source.key, counts.tokens, found));
}

}  // namespace

Corpus Corpus::load(const DataOptions& options, const CorpusSource& source) {
  SW_CHECK(options.sequence_length >= 1, "sequence length {}", options.sequence_length);
  const auto tokenizer = make_tokenizer(options.tokenizer, source.base);
  const TokenSetRecipe recipe = recipe_of(options, *tokenizer);
  Corpus corpus(options);
  corpus.vocabulary_ = source.vocabulary;
  // Padding is masked and seen by nobody, so a model without a PAD row can use any id.
  const bool has_padding = recipe.padding >= 0 && recipe.padding < source.vocabulary;
  corpus.padding_ = has_padding ? recipe.padding : 0;

  TokenSetBuilder builder(options, *tokenizer, source.vocabulary);
  const auto flush = [&] {
    if (!builder.empty()) {
      corpus.add(builder.take(), {});
    }
  };
  for (const fs::path& file : files_matching(source.key, source.patterns, source.base)) {
    const FileKind kind = kind_of(file);
    if (kind != FileKind::TokenSet) {
      builder.add(file, kind, corpus.counts_);
      continue;
    }
    flush();
    TokenSet set = open_matching(file, recipe, source);
    corpus.counts_.files += 1;
    corpus.counts_.bytes += static_cast<std::int64_t>(fs::file_size(file));
    corpus.counts_.documents += static_cast<std::int64_t>(set.documents().size());
    corpus.add(std::move(set), file);
  }
  flush();
  corpus.counts_.tokens = corpus.tokens_;
  if (corpus.tokens_ < 2) {
    refuse_too_small(source, corpus.counts_);
  }
  // The last token is a label only, so it opens no sample of its own.
  const std::int64_t inputs = corpus.tokens_ - 1;
  corpus.samples_ = (inputs + options.sequence_length - 1) / options.sequence_length;
  return corpus;
}

void Corpus::add(TokenSet set, fs::path path) {
  if (set.tokens() > 0) {
    const std::int64_t count = set.tokens();
    segments_.push_back({std::move(set), std::move(path), tokens_});
    tokens_ += count;
  }
}

void Corpus::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  auto segment = std::ranges::upper_bound(segments_, begin, {}, &Segment::end);
  while (!out.empty()) {
    const auto count = std::min(static_cast<std::int64_t>(out.size()), segment->end() - begin);
    segment->set.copy(begin - segment->begin, out.first(static_cast<std::size_t>(count)));
    out = out.subspan(static_cast<std::size_t>(count));
    begin += count;
    ++segment;
  }
}

/// Calls `function` with the extent of each document that has tokens in [begin, end), in order.
template <typename Function>
void Corpus::for_each_document(std::int64_t begin, std::int64_t end,
                               const Function& function) const {
  auto segment = std::ranges::upper_bound(segments_, begin, {}, &Segment::end);
  for (; segment != segments_.end() && segment->begin < end; ++segment) {
    const auto records = segment->set.documents();
    const auto local =
        static_cast<std::uint64_t>(std::max<std::int64_t>(begin - segment->begin, 0));
    auto record = std::ranges::upper_bound(records, local, {}, &DocumentRecord::end);
    std::int64_t start = segment->begin;
    if (record != records.begin()) {
      start += static_cast<std::int64_t>(std::prev(record)->end);
    }
    for (; record != records.end() && start < end; ++record) {
      const auto stop = segment->begin + static_cast<std::int64_t>(record->end);
      function(
          Extent{start, stop, segment->begin + static_cast<std::int64_t>(record->first_target)});
      start = stop;
    }
  }
}

void Corpus::read(std::int64_t sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> labels, std::span<std::int32_t> positions,
                  std::span<std::int32_t> documents) const {
  const auto length = static_cast<std::size_t>(sequence_length_);
  SW_CHECK(sample >= -1 && sample < samples_, "sample {} of {}", sample, samples_);
  SW_CHECK(tokens.size() == length && labels.size() == length && positions.size() == length &&
               documents.size() == length,
           "rows of {}, {}, {} and {} for a sequence length of {}", tokens.size(), labels.size(),
           positions.size(), documents.size(), length);
  const std::int64_t begin = sample < 0 ? tokens_ : sample * sequence_length_;
  const std::int64_t end = std::min(begin + sequence_length_, tokens_);
  const auto used = static_cast<std::size_t>(end - begin);

  copy(begin, tokens.first(used));
  check_ids(sample, tokens.first(used));
  std::ranges::fill(tokens.subspan(used), padding_);
  std::ranges::fill(labels, -1);

  std::int32_t after = -1;  // the token after this row, which neighbours share
  if (used > 0 && end < tokens_) {
    copy(end, std::span(&after, 1));
    check_ids(sample, std::span(&after, 1));
  }
  std::int32_t id = -1;
  // One token further than the row: the last label may open a document.
  for_each_document(begin, std::min(end + 1, tokens_), [&](const Extent& document) {
    ++id;
    const std::int64_t from = std::max(document.begin, begin);
    const std::int64_t to = std::min(document.end, end);
    for (std::int64_t at = from; at < to; ++at) {
      const auto i = static_cast<std::size_t>(at - begin);
      documents[i] = isolated_ ? id : 0;
      positions[i] = static_cast<std::int32_t>(isolated_ ? at - from : at - begin);
    }
    const Range targets = targets_of(document, begin + 1, end + 1);
    for (std::int64_t at = targets.begin; at < targets.end; ++at) {
      const auto i = static_cast<std::size_t>(at - begin - 1);
      labels[i] = i + 1 < used ? tokens[i + 1] : after;
    }
  });
  const std::int32_t last = used > 0 ? documents[used - 1] : -1;
  std::ranges::fill(documents.subspan(used), last + 1);
  std::iota(positions.begin() + static_cast<std::ptrdiff_t>(used), positions.end(), 0);
}

Range Corpus::targets_of(const Extent& document, std::int64_t begin, std::int64_t end) const {
  const std::int64_t first =
      isolated_ ? std::max(document.first_target, document.begin + 1) : document.first_target;
  const std::int64_t from = std::max(first, begin);
  return {from, std::max(from, std::min(document.end, end))};
}

std::int64_t Corpus::valid_labels(std::int64_t begin, std::int64_t end) const {
  std::int64_t count = 0;
  for_each_document(begin, std::min(end, tokens_), [&](const Extent& document) {
    count += targets_of(document, begin, end).size();
  });
  return count;
}

std::int64_t Corpus::valid_tokens(std::int64_t sample) const {
  SW_CHECK(sample >= -1 && sample < samples_, "sample {} of {}", sample, samples_);
  const std::int64_t begin = sample * sequence_length_ + 1;
  return sample < 0 ? 0 : valid_labels(begin, begin + sequence_length_);
}

std::int64_t Corpus::valid_tokens() const { return valid_labels(1, tokens_); }

void Corpus::check_ids(std::int64_t sample, std::span<const std::int32_t> tokens) const {
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= vocabulary_) {
      throw DataError(
          fmt::format("sample {} holds token {}, beyond the model's vocabulary of {}; its file has "
                      "changed since it was verified",
                      sample, id, vocabulary_));
    }
  }
}

std::uint64_t Corpus::fingerprint() const {
  std::vector<std::uint64_t> checksums;
  for (const Segment& segment : segments_) {
    checksums.push_back(segment.set.checksum());
  }
  return hash64(std::as_bytes(std::span(checksums)));
}

std::vector<std::string> Corpus::write_token_sets(Files& files, const fs::path& folder,
                                                  const std::string& name) const {
  files.create_directories(folder);
  std::vector<std::string> paths;
  for (const Segment& segment : segments_) {
    fs::path path = segment.path;
    if (path.empty()) {
      path = folder / fmt::format("{}-{}{}", name, paths.size(), kTokenSetExtension);
      segment.set.write(files, path);
    }
    paths.push_back(fs::absolute(path).lexically_normal().string());
  }
  return paths;
}

CorpusCounts tokenize_files(const DataOptions& options, const CorpusSource& source, Files& files,
                            const fs::path& out) {
  const auto tokenizer = make_tokenizer(options.tokenizer, source.base);
  TokenSetBuilder builder(options, *tokenizer, source.vocabulary);
  CorpusCounts counts;
  for (const fs::path& file : files_matching(source.key, source.patterns, source.base)) {
    const FileKind kind = kind_of(file);
    if (kind == FileKind::TokenSet) {
      throw ConfigError(fmt::format("{}: is a token set already", file.string()));
    }
    builder.add(file, kind, counts);
  }
  const TokenSet set = builder.take();
  counts.tokens = set.tokens();
  if (counts.tokens == 0) {
    refuse_too_small(source, counts);
  }
  set.write(files, out);
  return counts;
}

}  // namespace sw
