#include "tests/program/random_program.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/program/builder.hpp"

namespace sw::test {
namespace {

constexpr int kChunk = 24;  // elements; 96 bytes, so that offsets are not all multiples of 64

class Generator {
 public:
  explicit Generator(Choices choices) : choices_(std::move(choices)), builder_(0, 1, streams()) {}

  Program make() {
    const int persistent = 1 + choices_.below(3);
    const int transient = 1 + choices_.below(12);
    for (int i = 0; i < persistent + transient; ++i) {
      const int chunks = 1 + choices_.below(4);
      tensors_.push_back(builder_.tensor(fmt::format("b{}", i), {chunks * kChunk},
                                         choices_.coin() ? Lane::Window : Lane::Private,
                                         i < persistent));
      written_.emplace_back(static_cast<std::size_t>(chunks), i < persistent);
    }
    while (!choices_.exhausted()) add_instruction();
    for (std::size_t i = 0; i < tensors_.size(); ++i) use(i);
    return builder_.program();
  }

 private:
  std::vector<std::string> streams() {
    std::vector<std::string> names = {"compute"};
    for (int i = choices_.below(4); i > 0; --i) names.push_back(fmt::format("stream{}", i));
    return names;
  }

  Operand chunk(std::size_t tensor, std::size_t index) {
    return part(tensors_[tensor], static_cast<std::int64_t>(index) * kChunk, kChunk);
  }
  std::size_t pick(std::size_t count) {
    return static_cast<std::size_t>(choices_.below(static_cast<int>(count)));
  }
  /// Some chunk that has been written.
  Operand readable() {
    std::vector<Operand> list;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      for (std::size_t c = 0; c < written_[t].size(); ++c) {
        if (written_[t][c]) list.push_back(chunk(t, c));
      }
    }
    return list[pick(list.size())];
  }

  void add_instruction() {
    const StreamId stream = choices_.below(static_cast<int>(builder_.program().streams.size()));
    const std::size_t tensor = pick(tensors_.size());
    const std::size_t index = pick(written_[tensor].size());
    const Operand output = chunk(tensor, index);
    const int kind = choices_.below(8);
    if (kind == 0) {
      builder_.zero(output, stream);
    } else if (kind <= 2) {
      const Operand input = readable();
      if (input == output) return;
      builder_.add("copy", SliceWork{0, 0}, {input}, {output}, stream);
    } else {
      builder_.kernel("add", {readable(), readable()}, output, stream);
    }
    written_[tensor][index] = true;
  }

  /// No buffer without a user.
  void use(std::size_t tensor) {
    if (written_[tensor][0]) return;
    builder_.zero(chunk(tensor, 0));
    written_[tensor][0] = true;
  }

  Choices choices_;
  Builder builder_;
  std::vector<Operand> tensors_;
  std::vector<std::vector<bool>> written_;  ///< [tensor][chunk]
};

}  // namespace

Program random_program(Choices choices) { return Generator(std::move(choices)).make(); }

std::vector<std::vector<float>> run_plainly(const Program& program,
                                            std::vector<std::vector<float>> state) {
  const std::size_t persistent = state.size();
  for (std::size_t b = persistent; b < program.buffers.size(); ++b) {
    state.emplace_back(static_cast<std::size_t>(program.buffers[b].bytes / 4), -1e30F);
  }
  const auto at = [&](const Operand& operand) {
    return state[static_cast<std::size_t>(operand.buffer)].data() + operand.offset / 4;
  };
  for (const Instruction& instruction : program.instructions) {
    std::vector<float> sum(static_cast<std::size_t>(elements(instruction.outputs[0].shape)), 0.0F);
    for (const Operand& input : instruction.inputs) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += at(input)[i];
    }
    std::copy(sum.begin(), sum.end(), at(instruction.outputs[0]));
  }
  state.resize(persistent);
  return state;
}

}  // namespace sw::test
