#include "data/tokenizers/byte_level_bpe.hpp"

#include <algorithm>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "data/utf8.hpp"

namespace sw {
namespace {

/// GPT-2's letters for bytes: printable Latin-1 stands for itself, the other 68 bytes for U+0100
/// on. The inverse, by code point; -1 where no byte is meant.
std::array<int, 324> bytes_of_letters() {
  std::array<int, 324> byte_of{};
  byte_of.fill(-1);
  std::size_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    byte_of.at(printable ? static_cast<std::size_t>(byte) : next++) = byte;
  }
  return byte_of;
}

/// The bytes that a token's letters stand for; nothing when it holds other letters, as some added
/// tokens do: no text can become such a token.
std::optional<std::string> to_bytes(const std::string& token) {
  static const std::array<int, 324> kByteOf = bytes_of_letters();
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const auto first = static_cast<unsigned char>(token[i]);
    std::size_t code = first;
    if (first >= 0xC0 && first < 0xE0 && i + 1 < token.size()) {
      code = (first & 0x1FU) << 6U | (static_cast<unsigned char>(token[++i]) & 0x3FU);
    } else if (first >= 0x80) {
      return std::nullopt;
    }
    if (code >= kByteOf.size() || kByteOf[code] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kByteOf[code]));
  }
  return bytes;
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32U | static_cast<std::uint32_t>(right);
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(const TokenizerFile& file, std::string_view where)
    : name_(file.name), special_(file.special), whole_words_first_(file.whole_words_first) {
  for (const std::string& pattern : file.expressions) {
    expressions_.emplace_back(pattern, where);
  }
  add_vocabulary(file, where);
  add_merges(file, where);
  add_added(file);
}

void ByteLevelBpe::add_vocabulary(const TokenizerFile& file, std::string_view where) {
  // Ids count up to a size; one id of a billion would be a mistake or an attack, and no memory.
  std::int32_t largest = -1;
  for (const auto& [token, id] : file.vocabulary) {
    largest = std::max(largest, id);
  }
  for (const auto& added : file.added) {
    largest = std::max(largest, added.id);
  }
  const std::size_t named = file.vocabulary.size() + file.added.size();
  if (std::cmp_greater(largest, 2 * named + 65536)) {
    throw ConfigError(fmt::format("{}: the largest id is {} and there are only {} tokens", where,
                                  largest, named));
  }
  bytes_of_.resize(static_cast<std::size_t>(largest) + 1);
  for (const auto& [token, id] : file.vocabulary) {
    const std::optional<std::string> bytes = to_bytes(token);
    bytes_of_[static_cast<std::size_t>(id)] = bytes.value_or(token);
    if (bytes) {
      id_of_.emplace(*bytes, id);
    }
  }
  for (std::size_t byte = 0; byte < id_of_byte_.size(); ++byte) {
    const auto found = id_of_.find(std::string(1, static_cast<char>(byte)));
    if (found == id_of_.end()) {
      throw ConfigError(fmt::format(
          "{}: model.vocab has no token for byte {}; vocabularies without one for each of the 256 "
          "bytes are not in this version",
          where, byte));
    }
    id_of_byte_.at(byte) = found->second;
  }
}

void ByteLevelBpe::add_merges(const TokenizerFile& file, std::string_view where) {
  std::int32_t rank = 0;
  for (const auto& merge : file.merges) {
    const std::string& left = merge.first;
    const std::string& right = merge.second;
    const auto id = [&](const std::string& token) {
      const auto found = id_of_.find(to_bytes(token).value_or(""));
      if (found == id_of_.end()) {
        throw ConfigError(fmt::format(
            "{}: model.merges[{}] = \"{} {}\" needs the token \"{}\", which model.vocab "
            "does not have",
            where, rank, left, right, token));
      }
      return found->second;
    };
    merges_.insert_or_assign(pair_key(id(left), id(right)), Merge{rank, id(left + right)});
    ++rank;
  }
}

void ByteLevelBpe::add_added(const TokenizerFile& file) {
  for (const auto& added : file.added) {
    const auto first = static_cast<unsigned char>(added.content.front());
    added_.at(first).push_back({added.content, added.id});
    bytes_of_[static_cast<std::size_t>(added.id)] = added.special ? "" : added.content;
  }
  for (std::vector<Added>& same_start : added_) {
    std::ranges::stable_sort(same_start, std::greater<>(),
                             [](const Added& added) { return added.content.size(); });
  }
}

const ByteLevelBpe::Added* ByteLevelBpe::added_at(std::string_view text) const {
  for (const Added& added : added_[static_cast<unsigned char>(text.front())]) {
    if (text.starts_with(added.content)) {
      return &added;
    }
  }
  return nullptr;
}

void ByteLevelBpe::encode(std::string_view text, const Sink& sink) const {
  const std::size_t invalid = first_invalid_utf8(text);
  if (invalid < text.size()) {
    throw DataError(fmt::format("byte {} of the text is not valid UTF-8: `{}`", invalid,
                                excerpt(text.substr(invalid))));
  }
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Added* added = added_at(text.substr(at));
    if (added == nullptr) {
      ++at;
      continue;
    }
    encode_between(text.substr(done, at - done), sink);
    sink(std::span(&added->id, 1));
    at += added->content.size();
    done = at;
  }
  encode_between(text.substr(done), sink);
}

void ByteLevelBpe::encode_between(std::string_view text, const Sink& sink) const {
  constexpr std::size_t kBlock = 4096;
  std::vector<std::int32_t> ids;
  split_by_all(expressions_, text, [&](std::string_view word) {
    encode_word(word, ids);
    if (ids.size() >= kBlock) {
      sink(ids);
      ids.clear();
    }
  });
  if (!ids.empty()) {
    sink(ids);
  }
}

const ByteLevelBpe::Merge* ByteLevelBpe::merge_of(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

/// Merges the pair of the lowest rank, the leftmost first, until none is left. A heap of pairs and
/// a linked list of symbols: a word of n bytes costs n log n, so a megabyte without a space is no
/// trap.
void ByteLevelBpe::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (whole_words_first_) {
    if (const auto found = id_of_.find(std::string(word)); found != id_of_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  struct Symbol {
    std::int32_t id;
    std::int32_t before, after;  ///< neighbours, -1 at the ends
  };
  constexpr std::int32_t kGone = -1;
  const auto size = static_cast<std::int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (std::int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
    symbols[static_cast<std::size_t>(i)] = {id_of_byte_[byte], i - 1, i + 1 < size ? i + 1 : -1};
  }
  const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };

  // Rank, place of the left symbol, id of the merged one.
  using Candidate = std::tuple<std::int32_t, std::int32_t, std::int32_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](std::int32_t left) {
    if (left < 0 || at(left).after < 0) {
      return;
    }
    if (const Merge* merge = merge_of(at(left).id, at(at(left).after).id)) {
      candidates.emplace(merge->rank, left, merge->id);
    }
  };
  for (std::int32_t i = 0; i < size; ++i) {
    consider(i);
  }
  while (!candidates.empty()) {
    const auto [rank, left, id] = candidates.top();
    candidates.pop();
    const std::int32_t right = at(left).id == kGone ? -1 : at(left).after;
    const Merge* merge = right < 0 ? nullptr : merge_of(at(left).id, at(right).id);
    if (merge == nullptr || merge->rank != rank) {
      continue;  // one of the two has been merged since
    }
    at(left).id = id;
    at(left).after = at(right).after;
    if (at(left).after >= 0) {
      at(at(left).after).before = left;
    }
    at(right).id = kGone;
    consider(at(left).before);
    consider(left);
  }
  for (std::int32_t i = size > 0 ? 0 : -1; i >= 0; i = at(i).after) {
    ids.push_back(at(i).id);
  }
}

std::string ByteLevelBpe::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    const bool known = token >= 0 && token < vocabulary();
    text += known ? bytes_of_[static_cast<std::size_t>(token)] : "\uFFFD";
  }
  return text;
}

}  // namespace sw
