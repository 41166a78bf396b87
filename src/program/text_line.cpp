#include "program/text_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"

namespace sw::text {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

int hexadecimal(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void Line::fail(std::string_view expected) const {
  std::string found = "the end of the line";
  if (!at_end()) {
    found = "'";
    for (const char c : text_.substr(at_, 16)) {
      found += c >= ' ' && c <= '~' ? std::string(1, c) : std::string("?");
    }
    found += "'";
  }
  throw ConfigError(fmt::format("program text, line {}, column {}: expected {} and found {}",
                                number_, at_ + 1, expected, found));
}

void Line::skip_blanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  if (at_ < text_.size() && text_[at_] == '#') at_ = text_.size();
}

std::string_view Line::peek() const {
  std::size_t end = at_;
  while (end < text_.size() && is_word(text_[end])) ++end;
  return text_.substr(at_, end - at_);
}

std::string_view Line::take_word() {
  const std::string_view word = peek();
  if (word.empty()) fail("a word");
  at_ += word.size();
  skip_blanks();
  return word;
}

void Line::expect_end() const {
  if (!at_end()) fail("the end of the line");
}

std::string Line::take_text() {
  if (!at_mark('"')) fail("a text in quotes");
  std::string result;
  for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    if (text_[at_] != '\\') {
      result += text_[at_];
      continue;
    }
    const std::string_view rest = text_.substr(at_ + 1, 3);
    if (!rest.empty() && (rest[0] == '"' || rest[0] == '\\')) {
      result += rest[0];
      at_ += 1;
    } else if (rest.size() == 3 && rest[0] == 'x' && hexadecimal(rest[1]) >= 0 &&
               hexadecimal(rest[2]) >= 0) {
      result += static_cast<char>(hexadecimal(rest[1]) * 16 + hexadecimal(rest[2]));
      at_ += 3;
    } else {
      fail("\\\", \\\\ or \\x and two hexadecimal digits");
    }
  }
  if (at_end()) fail("a quote that ends the text");
  ++at_;
  skip_blanks();
  return result;
}

void Line::read(bool& value) {
  constexpr std::string_view kWords[] = {"false", "true"};
  value = take_one_of(kWords) == 1;
}

template <typename Number>
Number Line::take_number(std::string_view what) {
  Number number{};
  const auto [end, error] =
      std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
  if (error == std::errc::result_out_of_range) fail(fmt::format("{} that fits", what));
  if (error != std::errc{}) fail(what);
  at_ = static_cast<std::size_t>(end - text_.data());
  skip_blanks();
  return number;
}

void Line::read(int& value) { value = take_number<int>("a whole number"); }
void Line::read(std::int64_t& value) { value = take_number<std::int64_t>("a whole number"); }
void Line::read(double& value) { value = take_number<double>("a number"); }

std::size_t Line::take_one_of(std::span<const std::string_view> words) {
  const auto at = std::find(words.begin(), words.end(), peek());
  if (at == words.end()) fail(fmt::format("one of {}", fmt::join(words, ", ")));
  take_word();
  return static_cast<std::size_t>(at - words.begin());
}

void Line::take_mark(char mark) {
  if (!at_mark(mark)) fail(fmt::format("'{}'", mark));
  ++at_;
  skip_blanks();
}

}  // namespace sw::text
