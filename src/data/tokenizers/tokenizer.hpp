#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sw {

/// Ids of the tokens that stand for no text.
struct SpecialTokens {
  std::optional<std::int32_t> begin;    ///< BOS
  std::optional<std::int32_t> end;      ///< EOS
  std::optional<std::int32_t> padding;  ///< PAD
};

/// Text to token ids and back. Adds no special tokens by itself. Const and safe to share between
/// threads.
class Tokenizer {
 public:
  using Sink = std::function<void(std::span<const std::int32_t>)>;

  virtual ~Tokenizer() = default;
  /// Says which tokenizer made a token set: equal names give equal ids. At most 39 bytes.
  [[nodiscard]] virtual std::string name() const = 0;
  /// One more than the largest id.
  [[nodiscard]] virtual std::int64_t vocabulary() const = 0;
  [[nodiscard]] virtual SpecialTokens special() const = 0;
  /// Hands the ids of `text` to `sink`, in order and in pieces, so that a long text needs no
  /// second copy.
  virtual void encode(std::string_view text, const Sink& sink) const = 0;
  /// Special tokens give nothing and ids beyond the vocabulary U+FFFD. The bytes need not be valid
  /// UTF-8: a model may have stopped inside a character.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
};

/// "bytes", or a path to a tokenizer.json relative to `base`. ConfigError for anything else.
[[nodiscard]] std::unique_ptr<const Tokenizer> make_tokenizer(const std::string& choice,
                                                              const std::filesystem::path& base);

/// The same choice for a process that works in another folder: the path made absolute.
[[nodiscard]] std::string resolved_tokenizer(const std::string& choice,
                                             const std::filesystem::path& base);

}  // namespace sw
