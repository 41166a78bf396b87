#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/splitter.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "data/tokenizers/tokenizer_json.hpp"

namespace sw {

/// Byte pair encoding over the bytes of UTF-8 text (Sennrich et al. 2016, arXiv:1508.07909; on
/// bytes: Radford et al. 2019), as Hugging Face's `tokenizers` does it. Gives the ids that library
/// gives with add_special_tokens = false.
class ByteLevelBpe final : public Tokenizer {
 public:
  /// `where` is the file's name for errors (ConfigError).
  ByteLevelBpe(const TokenizerFile& file, std::string_view where);

  using Tokenizer::encode;
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::int64_t vocabulary() const override {
    return static_cast<std::int64_t>(bytes_of_.size());
  }
  [[nodiscard]] SpecialTokens special() const override { return special_; }
  /// DataError for text that is not valid UTF-8.
  void encode(std::string_view text, const Sink& sink) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const override;

 private:
  struct Merge {
    std::int32_t rank = 0;  ///< lower ones first
    std::int32_t id = 0;
  };
  struct Added {
    std::string content;
    std::int32_t id = 0;
  };

  void add_vocabulary(const TokenizerFile& file, std::string_view where);
  void add_merges(const TokenizerFile& file, std::string_view where);
  void add_added(const TokenizerFile& file);
  void encode_between(std::string_view text, const Sink& sink) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  [[nodiscard]] const Merge* merge_of(std::int32_t left, std::int32_t right) const;
  [[nodiscard]] const Added* added_at(std::string_view text) const;

  std::string name_;
  SpecialTokens special_;
  std::vector<Expression> expressions_;
  bool whole_words_first_;
  std::vector<std::string> bytes_of_;                    ///< by id; what it decodes to
  std::unordered_map<std::string, std::int32_t> id_of_;  ///< by bytes
  std::array<std::int32_t, 256> id_of_byte_{};
  std::unordered_map<std::uint64_t, Merge> merges_;  ///< by left and right id
  std::array<std::vector<Added>, 256> added_;        ///< by first byte, longest first
};

}  // namespace sw
