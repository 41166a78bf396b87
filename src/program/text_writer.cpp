#include <fmt/format.h>

#include "program/program.hpp"
#include "program/text_fields.hpp"

namespace sw {
namespace {

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string value(const std::string& text) { return in_quotes(text); }
std::string value(bool flag) { return flag ? "true" : "false"; }
/// The shortest text that reads back as the same number.
template <typename Number>
requires std::is_arithmetic_v<Number> std::string value(Number number) {
  return fmt::format("{}", number);
}
template <typename Enum>
requires std::is_enum_v<Enum> std::string value(Enum element) {
  return std::string(text::Words<Enum>::kWords[static_cast<std::size_t>(element)]);
}
template <typename Element>
std::string value(const std::vector<Element>& list) {
  std::string result = "[";
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) result += ", ";
    result += value(static_cast<Element>(list[i]));
  }
  return result + "]";
}

template <typename Value>
bool same(const Value& a, const Value& b) {
  return a == b;
}
/// An empty list is the only standard. (g++ 12 warns of the null pointer that == would compare.)
template <typename Element>
bool same(const std::vector<Element>& list, const std::vector<Element>&) {
  return list.empty();
}

class Writer {
 public:
  explicit Writer(Program program) : program_(std::move(program)) {}

  std::string write() {
    line("program", program_);
    for (const std::string& note : program_.notes) {
      out_ += fmt::format("note {}\n", in_quotes(note));
    }
    for (std::size_t i = 0; i < program_.streams.size(); ++i) {
      out_ += fmt::format("stream {}  # {}\n", in_quotes(program_.streams[i]), i);
    }
    for (std::size_t i = 0; i < program_.groups.size(); ++i) {
      line("group", program_.groups[i], fmt::format("{}", i));
    }
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
      line("buffer", program_.buffers[i], fmt::format("{}", i));
    }
    for (BatchSlot& batch : program_.batches) block("batch", batch);
    block("host", program_.host);
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      write_instruction(program_.instructions[i], i);
    }
    return std::move(out_);
  }

  /// A field, when it is not standard.
  template <typename Value>
  void operator()(std::string_view name, Value& field,
                  const std::type_identity_t<Value>& standard) {
    if (!same(field, standard)) out_ += fmt::format(" {} {}", name, value(field));
  }

 private:
  template <typename Struct>
  void line(std::string_view word, Struct& data, const std::string& comment = "") {
    out_ += word;
    text::fields(*this, data);
    if (!comment.empty()) out_ += "  # " + comment;
    out_ += "\n";
  }

  template <typename Slot>
  void block(std::string_view word, Slot& slot) {
    if (slot == Slot{}) {
      if (word == "batch") out_ += "batch\n";
      return;
    }
    out_ += fmt::format("{}\n", word);
    text::operands(slot, [&](std::string_view name, Operand& operand) {
      write_operand(name, operand, Operand{});
    });
  }

  void write_instruction(Instruction& instruction, std::size_t id) {
    out_ += "\n";
    line("instruction", instruction, fmt::format("{}", id));
    out_ += fmt::format("  {}", text::kWorkWords[instruction.work.index()]);
    std::visit([&](auto& work) { write_work(work); }, instruction.work);
    out_ += "\n";
    for (Operand& operand : instruction.inputs) write_operand("input", operand);
    for (Operand& operand : instruction.outputs) write_operand("output", operand);
    write_operand("scratch", instruction.scratch, Operand{});
    write_operand("rounds", instruction.rounds, Operand{});
  }

  template <typename Kind>
  void write_work(Kind& work) {
    if constexpr (std::is_same_v<Kind, KernelWork>) {
      (*this)("op", work.op, {});
      (*this)("accumulate", work.accumulate, {});
      out_ += fmt::format(" {}", text::kParameterWords[work.parameters.index()]);
      std::visit([&](auto& parameters) { text::fields(*this, parameters); }, work.parameters);
    } else {
      text::fields(*this, work);
    }
  }

  void write_operand(std::string_view word, Operand& operand, const Operand& standard) {
    if (!(operand == standard)) write_operand(word, operand);
  }
  void write_operand(std::string_view word, Operand& operand) {
    const auto buffer = static_cast<std::size_t>(operand.buffer);
    out_ += "  ";
    line(word, operand,
         operand.buffer >= 0 && buffer < program_.buffers.size()
             ? in_quotes(program_.buffers[buffer].name)
             : "");
  }

  Program program_;
  std::string out_;
};

}  // namespace

std::string to_text(const Program& program) { return Writer(program).write(); }

}  // namespace sw
