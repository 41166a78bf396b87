#pragma once

#include <vector>

#include "program/program.hpp"

/// When buffers live; the memory map and the verifier ask the same rule.
namespace sw {

class Lifetimes {
 public:
  Lifetimes(const Program& program, const Order& order);

  /// Whether an instruction, or the host, touches the buffer at all.
  [[nodiscard]] bool used(BufferId buffer) const { return first(buffer) <= last(buffer); }
  /// Whether every user of `a` has always ended when the first user of `b` starts.
  [[nodiscard]] bool precedes(BufferId a, BufferId b) const;
  /// Whether both hold something at the same time in some run that `Order` allows.
  [[nodiscard]] bool overlap(BufferId a, BufferId b) const {
    return !precedes(a, b) && !precedes(b, a);
  }
  /// First and last user in list order. The host is -1 before the step and the number of
  /// instructions after it; a persistent buffer has both.
  [[nodiscard]] InstructionId first(BufferId buffer) const {
    return first_[static_cast<std::size_t>(buffer)];
  }
  [[nodiscard]] InstructionId last(BufferId buffer) const {
    return last_[static_cast<std::size_t>(buffer)];
  }

 private:
  void use(const Program& program, const Order& order, BufferId buffer, InstructionId id);
  void start_before_all(BufferId buffer);
  void end_after_all(BufferId buffer, InstructionId end);

  std::size_t streams_;
  std::vector<InstructionId> first_;
  std::vector<InstructionId> last_;
  /// [buffer][stream]: the last user on the stream, -1 if none.
  std::vector<InstructionId> last_user_;
  /// [buffer][stream]: the last instruction of the stream that has ended before any user starts; -1
  /// if none, -2 if the host writes the buffer before the step.
  std::vector<InstructionId> ended_before_;
};

}  // namespace sw
