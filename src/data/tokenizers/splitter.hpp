#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sw {

/// A regular expression over UTF-8 (PCRE2) that cuts text. `\s` is Unicode's White_Space, as in the
/// expressions that tokenizer files hold. Safe to share between threads.
class Expression {
 public:
  /// ConfigError, naming `where`, for what does not compile.
  Expression(const std::string& pattern, std::string_view where);
  ~Expression();
  Expression(Expression&& other) noexcept;
  Expression& operator=(Expression&& other) noexcept;

  using Piece = std::function<void(std::string_view)>;
  /// Each match and each stretch between matches, in order; none is empty. The text must be valid
  /// UTF-8. DataError when the expression needs too many steps.
  void split(std::string_view text, const Piece& piece) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

/// Cuts by each expression in turn: the pieces of the first are cut by the second, and so on.
void split_by_all(const std::vector<Expression>& expressions, std::string_view text,
                  const Expression::Piece& piece);

}  // namespace sw
