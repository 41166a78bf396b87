#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizers/splitter.hpp"

#include <pcre2.h>

#include <array>
#include <cstdint>

#include "base/error.hpp"

namespace sw {
namespace {

/// PCRE2's own \s holds U+180E, which is no white space since Unicode 6.3.
std::string with_unicode_white_space(const std::string& pattern) {
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      text.push_back(pattern[i]);
      continue;
    }
    const char letter = pattern[++i];
    if (letter == 's' || letter == 'S') {
      text += letter == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    } else {
      text.push_back('\\');
      text.push_back(letter);
    }
  }
  return text;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Expression::Code {
  explicit Code(pcre2_code* owned) : compiled(owned) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(compiled); }
  pcre2_code* compiled;
};

Expression::Expression(const std::string& pattern, std::string_view where) {
  const std::string text = with_unicode_white_space(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* compiled =
      pcre2_compile(units(text), text.size(), PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
  if (compiled == nullptr) {
    throw ConfigError(fmt::format("{}: the expression {} does not compile: {}", where, pattern,
                                  message_of(error)));
  }
  code_ = std::make_unique<Code>(compiled);
  // Where there is no compiler for this processor, matching interprets and gives the same.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
}

Expression::~Expression() = default;
Expression::Expression(Expression&& other) noexcept = default;
Expression& Expression::operator=(Expression&& other) noexcept = default;

void Expression::split(std::string_view text, const Piece& piece) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create_from_pattern(code_->compiled, nullptr), &pcre2_match_data_free);
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const int found = pcre2_match(code_->compiled, units(text), text.size(), at,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) {
      break;
    }
    if (found < 0) {
      throw DataError(fmt::format("cutting {} bytes of text with the tokenizer's expression: {}",
                                  text.size(), message_of(found)));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    if (ends[0] > done) {
      piece(text.substr(done, ends[0] - done));
    }
    piece(text.substr(ends[0], ends[1] - ends[0]));
    done = at = ends[1];
  }
  if (done < text.size()) {
    piece(text.substr(done));
  }
}

void split_by_all(const std::vector<Expression>& expressions, std::string_view text,
                  const Expression::Piece& piece) {
  const std::function<void(std::size_t, std::string_view)> cut = [&](std::size_t i,
                                                                     std::string_view part) {
    if (i == expressions.size()) {
      piece(part);
    } else {
      expressions[i].split(part, [&](std::string_view next) { cut(i + 1, next); });
    }
  };
  if (!text.empty()) {
    cut(0, text);
  }
}

}  // namespace sw
