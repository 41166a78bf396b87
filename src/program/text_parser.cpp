#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "program/program.hpp"
#include "program/text_line.hpp"

namespace sw {
namespace {

template <typename Variant, std::size_t... kIndex>
Variant alternative(std::size_t wanted, std::index_sequence<kIndex...>) {
  Variant result;
  (void)((wanted == kIndex ? (result.template emplace<kIndex>(), true) : false) || ...);
  return result;
}
/// A Variant that holds its `wanted`-th alternative.
template <typename Variant>
Variant alternative(std::size_t wanted) {
  return alternative<Variant>(wanted, std::make_index_sequence<std::variant_size_v<Variant>>{});
}

class Parser {
 public:
  Program parse(std::string_view text) {
    program_.streams.clear();
    std::int64_t number = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      text::Line line(text.substr(0, end), ++number);
      if (!line.at_end()) parse_line(line);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!begun_) throw ConfigError("program text: expected a line 'program …' and found none");
    return std::move(program_);
  }

 private:
  /// What the operand lines that follow belong to.
  enum class Block : std::uint8_t { None, Batch, Host, Instruction };

  void parse_line(text::Line& line) {
    const std::string_view word = line.peek();
    if (begun_ == (word == "program")) {
      line.fail(begun_ ? "one line 'program …' only" : "a line 'program …' first");
    }
    if (!parse_top(word, line) && !parse_operand(word, line) && !parse_work(word, line)) {
      line.fail(
          "program, note, stream, group, buffer, batch, host, instruction, or a line that belongs "
          "to the one above");
    }
    line.expect_end();
  }

  bool parse_top(std::string_view word, text::Line& line) {
    const Block block = std::exchange(block_, Block::None);
    if (word == "program") {
      take(line, program_);
      begun_ = true;
    } else if (word == "note" || word == "stream") {
      line.take_word();
      (word == "note" ? program_.notes : program_.streams).push_back(line.take_text());
    } else if (word == "group") {
      take(line, program_.groups.emplace_back());
    } else if (word == "buffer") {
      take(line, program_.buffers.emplace_back());
    } else if (word == "batch") {
      line.take_word();
      program_.batches.emplace_back();
      block_ = Block::Batch;
    } else if (word == "host") {
      line.take_word();
      block_ = Block::Host;
    } else if (word == "instruction") {
      take(line, program_.instructions.emplace_back());
      block_ = Block::Instruction;
      has_work_ = false;
    } else {
      block_ = block;
      return false;
    }
    return true;
  }

  bool parse_operand(std::string_view word, text::Line& line) {
    Operand* target = nullptr;
    const auto find = [&](std::string_view name, Operand& operand) {
      if (name == word) target = &operand;
    };
    if (block_ == Block::Batch) text::operands(program_.batches.back(), find);
    if (block_ == Block::Host) text::operands(program_.host, find);
    if (block_ == Block::Instruction) {
      Instruction& instruction = program_.instructions.back();
      if (word == "input") target = &instruction.inputs.emplace_back();
      if (word == "output") target = &instruction.outputs.emplace_back();
      if (word == "scratch") target = &instruction.scratch;
      if (word == "rounds") target = &instruction.rounds;
    }
    if (target == nullptr) return false;
    take(line, *target);
    return true;
  }

  bool parse_work(std::string_view word, text::Line& line) {
    const auto* at = std::find(std::begin(text::kWorkWords), std::end(text::kWorkWords), word);
    if (block_ != Block::Instruction || at == std::end(text::kWorkWords)) return false;
    if (std::exchange(has_work_, true)) line.fail("one line of work for each instruction");
    Work& work = program_.instructions.back().work;
    work = alternative<Work>(static_cast<std::size_t>(at - std::begin(text::kWorkWords)));
    if (auto* kernel = std::get_if<KernelWork>(&work)) {
      parse_kernel(line, *kernel);
    } else {
      std::visit([&](auto& kind) { take(line, kind); }, work);
    }
    return true;
  }

  void parse_kernel(text::Line& line, KernelWork& kernel) {
    line.take_word();
    line("op", kernel.op, {});
    line("accumulate", kernel.accumulate, {});
    const auto& words = text::kParameterWords;
    const auto* at = std::find(std::begin(words), std::end(words), line.peek());
    if (at == std::end(words)) line.fail("the kind of the kernel's parameters");
    kernel.parameters =
        alternative<kernels::Parameters>(static_cast<std::size_t>(at - std::begin(words)));
    std::visit([&](auto& parameters) { take(line, parameters); }, kernel.parameters);
  }

  /// The line's first word, then the fields of `data`.
  template <typename Struct>
  void take(text::Line& line, Struct& data) {
    line.take_word();
    if constexpr (!std::is_same_v<Struct, KernelWork>) text::fields(line, data);
  }

  Program program_;
  Block block_ = Block::None;
  bool begun_ = false;
  bool has_work_ = false;
};

}  // namespace

Program program_from_text(std::string_view text) { return Parser().parse(text); }

}  // namespace sw
