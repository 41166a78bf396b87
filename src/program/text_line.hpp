#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "program/text_fields.hpp"

namespace sw::text {

/// One line of a Program's text, read from left to right: words, quoted texts, numbers, lists. What
/// follows a `#` is a comment.
class Line {
 public:
  Line(std::string_view text, std::int64_t number) : text_(text), number_(number) { skip_blanks(); }

  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  /// The word that stands next, without passing it; "" if none does.
  [[nodiscard]] std::string_view peek() const;
  std::string_view take_word();
  void expect_end() const;

  std::string take_text();
  /// A field of the struct being read, see text_fields.hpp; keeps `standard` if the line goes on
  /// with something else.
  template <typename Value>
  void operator()(std::string_view name, Value& field,
                  const std::type_identity_t<Value>& standard) {
    field = standard;
    if (peek() != name) return;
    take_word();
    read(field);
  }

  /// Throws ConfigError with line and column.
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  void read(std::string& value) { value = take_text(); }
  void read(bool& value);
  void read(int& value);
  void read(std::int64_t& value);
  void read(double& value);
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void read(Enum& value) { value = static_cast<Enum>(take_one_of(Words<Enum>::kWords)); }
  template <typename Element>
  void read(std::vector<Element>& list) {
    list.clear();
    take_mark('[');
    while (!at_mark(']')) {
      if (!list.empty()) take_mark(',');
      Element element{};
      read(element);
      list.push_back(element);
    }
    take_mark(']');
  }
  std::size_t take_one_of(std::span<const std::string_view> words);
  template <typename Number>
  Number take_number(std::string_view what);
  [[nodiscard]] bool at_mark(char mark) const { return !at_end() && text_[at_] == mark; }
  void take_mark(char mark);
  void skip_blanks();

  std::string_view text_;
  std::int64_t number_;
  std::size_t at_ = 0;
};

}  // namespace sw::text
