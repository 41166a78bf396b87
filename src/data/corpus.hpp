#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/shape.hpp"
#include "data/documents.hpp"
#include "data/options.hpp"
#include "data/token_set.hpp"

namespace sw {

/// Which files, and for whom.
struct CorpusSource {
  std::string key = "data.train";  ///< what errors call it
  std::vector<std::string> patterns;
  std::filesystem::path base;   ///< folder of the run file
  std::int64_t vocabulary = 0;  ///< of the model; every id is smaller
  Verify verify = Verify::Everything;
};

/// The documents of some files as one token stream, cut into samples of `sequence_length` as
/// interface.md says under "Samples". Const, and safe to share between threads.
class Corpus {
 public:
  /// Tokenizes text and JSONL in memory and maps token sets. ConfigError for whatever is wrong with
  /// the files; a corpus that loads has at least one sample (of which no label may be valid).
  [[nodiscard]] static Corpus load(const DataOptions& options, const CorpusSource& source);

  [[nodiscard]] std::int64_t samples() const { return samples_; }
  [[nodiscard]] std::int64_t sequence_length() const { return sequence_length_; }

  /// One row: S tokens, labels (-1: masked), positions within the document, and document ids that
  /// count from 0 in each row. Sample -1 is a row of nothing but padding. DataError when an id has
  /// come to lie beyond the vocabulary since the file was verified.
  void read(std::int64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> labels,
            std::span<std::int32_t> positions, std::span<std::int32_t> documents) const;

  /// Labels of one sample that are not masked; 0 for sample -1. Reads no token.
  [[nodiscard]] std::int64_t valid_tokens(std::int64_t sample) const;
  /// Of all samples.
  [[nodiscard]] std::int64_t valid_tokens() const;

  [[nodiscard]] const CorpusCounts& counts() const { return counts_; }
  /// Equal for equal token streams and documents: to tell whether a resumed run still has its data.
  [[nodiscard]] std::uint64_t fingerprint() const;

  /// Writes what is in memory as token sets `folder/name-0.tokens`, … and returns the absolute
  /// paths that, as patterns, give the same corpus again: what a launcher hands its ranks, so that
  /// they map what it tokenized. Token sets that were mapped are named where they lie.
  [[nodiscard]] std::vector<std::string> write_token_sets(Files& files,
                                                          const std::filesystem::path& folder,
                                                          const std::string& name) const;

 private:
  /// A token set's place in the stream.
  struct Segment {
    TokenSet set;
    std::filesystem::path path;  ///< empty: in memory
    std::int64_t begin = 0;
    [[nodiscard]] std::int64_t end() const { return begin + set.tokens(); }
  };
  /// A document's place in the stream.
  struct Extent {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t first_target = 0;
  };

  explicit Corpus(const DataOptions& options)
      : isolated_(options.documents == DataOptions::Documents::Isolated),
        sequence_length_(options.sequence_length) {}
  void add(TokenSet set, std::filesystem::path path);
  void copy(std::int64_t begin, std::span<std::int32_t> out) const;
  template <typename Function>
  void for_each_document(std::int64_t begin, std::int64_t end, const Function& function) const;
  /// Tokens of a document in [begin, end) that are labels which count.
  [[nodiscard]] Range targets_of(const Extent& document, std::int64_t begin,
                                 std::int64_t end) const;
  [[nodiscard]] std::int64_t valid_labels(std::int64_t begin, std::int64_t end) const;
  void check_ids(std::int64_t sample, std::span<const std::int32_t> tokens) const;

  bool isolated_;
  std::int64_t sequence_length_;
  std::int64_t vocabulary_ = 0;
  std::int32_t padding_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t samples_ = 0;
  std::vector<Segment> segments_;
  CorpusCounts counts_;
};

/// What the `tokenize` command does: text and JSONL files to one token set. The counts are for its
/// report.
CorpusCounts tokenize_files(const DataOptions& options, const CorpusSource& source, Files& files,
                            const std::filesystem::path& out);

}  // namespace sw
