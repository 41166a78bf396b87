#pragma once

#include <filesystem>

#include "data/documents.hpp"
#include "data/token_set.hpp"
#include "data/tokenizers/tokenizer.hpp"

namespace sw {

/// Documents of text and JSONL files to a token set in memory, with BOS and EOS as the keys say.
class TokenSetBuilder {
 public:
  /// Ids of `vocabulary` and more are refused, naming the file; 0 refuses none. ConfigError when
  /// the keys ask for a special token that the tokenizer lacks.
  TokenSetBuilder(const DataOptions& options, const Tokenizer& tokenizer, std::int64_t vocabulary);

  void add(const std::filesystem::path& file, FileKind kind, CorpusCounts& counts);
  [[nodiscard]] bool empty() const { return set_.documents().empty(); }
  /// The documents so far; starts again with none.
  [[nodiscard]] TokenSet take();

 private:
  void add(const Document& document);

  const DataOptions& options_;
  const Tokenizer& tokenizer_;
  std::int64_t vocabulary_;
  TokenSet set_;
};

/// How this tokenizer and these keys make tokens.
[[nodiscard]] TokenSetRecipe recipe_of(const DataOptions& options, const Tokenizer& tokenizer);

/// ConfigError when an id of `set` from token `begin` on is beyond a model's vocabulary; 0 refuses
/// none.
void check_vocabulary(const TokenSet& set, std::int64_t begin, std::int64_t vocabulary,
                      const std::filesystem::path& file);

}  // namespace sw
