#pragma once

#include "data/tokenizers/tokenizer.hpp"

namespace sw {

/// The bytes of the text are its ids; BOS is 256, EOS 257, PAD 258.
class BytesTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  [[nodiscard]] std::string name() const override { return "bytes"; }
  [[nodiscard]] std::int64_t vocabulary() const override { return 259; }
  [[nodiscard]] SpecialTokens special() const override { return {256, 257, 258}; }
  void encode(std::string_view text, const Sink& sink) const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const override;
};

}  // namespace sw
