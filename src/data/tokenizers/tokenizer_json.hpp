#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizers/tokenizer.hpp"

namespace sw {

/// What a Hugging Face tokenizer.json says, as far as it is read: byte-level BPE as of GPT-2 and
/// Llama 3.
struct TokenizerFile {
  struct Added {
    std::string content;
    std::int32_t id = 0;
    bool special = false;  ///< decodes to nothing
  };
  std::string name;                                              ///< of this content
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;  ///< in byte-level letters
  std::vector<std::pair<std::string, std::string>> merges;       ///< first merges first
  std::vector<std::string> expressions;                          ///< that cut text, in turn
  bool whole_words_first = false;  ///< `ignore_merges`: a piece in the vocabulary is one token
  std::vector<Added> added;        ///< found in the text before anything is cut
  SpecialTokens special;
};

/// ConfigError naming what is missing, damaged, or not in this version. BOS, EOS and PAD are those
/// of a tokenizer_config.json beside the file, else added tokens with one of the usual names.
[[nodiscard]] TokenizerFile read_tokenizer_json(const std::filesystem::path& path);

}  // namespace sw
