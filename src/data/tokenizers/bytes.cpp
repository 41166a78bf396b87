#include "data/tokenizers/bytes.hpp"

#include <algorithm>
#include <array>

namespace sw {

void BytesTokenizer::encode(std::string_view text, const Sink& sink) const {
  std::array<std::int32_t, 4096> block{};
  while (!text.empty()) {
    const std::size_t count = std::min(text.size(), block.size());
    std::ranges::transform(text.substr(0, count), block.begin(),
                           [](char byte) { return static_cast<unsigned char>(byte); });
    sink(std::span(block).first(count));
    text.remove_prefix(count);
  }
}

std::string BytesTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < 256) {
      text.push_back(static_cast<char>(token));
    } else if (token < 0 || token >= vocabulary()) {
      text += "\uFFFD";
    }
  }
  return text;
}

}  // namespace sw
