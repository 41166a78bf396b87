#include "data/tokenizers/tokenizer.hpp"

#include "base/error.hpp"
#include "data/tokenizers/bytes.hpp"

namespace sw {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode(text, [&](std::span<const std::int32_t> piece) {
    tokens.insert(tokens.end(), piece.begin(), piece.end());
  });
  return tokens;
}

std::unique_ptr<const Tokenizer> make_tokenizer(const std::string& choice,
                                                const std::filesystem::path& /*base*/) {
  if (choice == "bytes") {
    return std::make_unique<BytesTokenizer>();
  }
  if (choice.ends_with(".json")) {
    throw ConfigError(fmt::format(
        "data.tokenizer = \"{}\": a tokenizer.json is not in this version; use \"bytes\"", choice));
  }
  throw ConfigError(fmt::format("data.tokenizer = \"{}\" is unknown; use \"bytes\"", choice));
}

}  // namespace sw
