#include "data/tokenizers/tokenizer.hpp"

#include "base/error.hpp"
#include "data/tokenizers/byte_level_bpe.hpp"
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
                                                const std::filesystem::path& base) {
  if (choice == "bytes") {
    return std::make_unique<BytesTokenizer>();
  }
  if (choice.ends_with(".json")) {
    const std::filesystem::path path = base / choice;
    return std::make_unique<ByteLevelBpe>(read_tokenizer_json(path), path.string());
  }
  throw ConfigError(
      fmt::format("data.tokenizer = \"{}\" is unknown; use \"bytes\" or the path of a "
                  "tokenizer.json",
                  choice));
}

std::string resolved_tokenizer(const std::string& choice, const std::filesystem::path& base) {
  if (!choice.ends_with(".json")) {
    return choice;
  }
  return std::filesystem::absolute(base / choice).lexically_normal().string();
}

}  // namespace sw
