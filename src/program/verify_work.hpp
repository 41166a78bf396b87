#pragma once

#include <fmt/format.h>

#include "base/error.hpp"
#include "program/program.hpp"

namespace sw {

/// Throws InternalError naming rank and instruction when a condition does not hold.
class InstructionCheck {
 public:
  InstructionCheck(const Program& program, InstructionId id) : program_(program), id_(id) {}

  template <typename... Arguments>
  void operator()(bool holds, fmt::format_string<Arguments...> text,
                  Arguments&&... arguments) const {
    if (!holds) fail(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const;

  const Program& program_;
  InstructionId id_;
};

/// "instruction 12 'layers.2.attention' of rank 3"
[[nodiscard]] std::string place_of(const Program& program, InstructionId id);

/// Operand counts, types, shapes and lanes that the instruction's kind of work asks for.
void verify_work(const Program& program, InstructionId id);

}  // namespace sw
