#include <algorithm>

#include "base/error.hpp"
#include "program/accesses.hpp"
#include "program/program.hpp"

namespace sw {
namespace {

std::size_t at(InstructionId id) { return static_cast<std::size_t>(id); }

/// Vector clocks, one instruction after the other.
class Clocks {
 public:
  explicit Clocks(std::size_t streams) : streams_(streams), newest_(streams, -1) {}

  /// Starts the clock of the next instruction; it has followed its stream's previous one.
  void begin(StreamId stream) {
    stream_.push_back(stream);
    clock_.resize(clock_.size() + streams_, -1);
    const InstructionId previous = newest_[at(stream)];
    if (previous >= 0) follow(previous);
    newest_[at(stream)] = static_cast<InstructionId>(stream_.size()) - 1;
  }
  /// Whether `id` has ended before the instruction begun last.
  [[nodiscard]] bool has_ended(InstructionId id) const {
    return clock_[(stream_.size() - 1) * streams_ + at(stream_[at(id)])] >= id;
  }
  /// The instruction begun last waits for `id`.
  void follow(InstructionId id) {
    InstructionId* mine = clock_.data() + (stream_.size() - 1) * streams_;
    const InstructionId* other = clock_.data() + at(id) * streams_;
    for (std::size_t s = 0; s < streams_; ++s) mine[s] = std::max(mine[s], other[s]);
    InstructionId& own = mine[at(stream_[at(id)])];
    own = std::max(own, id);
  }
  [[nodiscard]] std::vector<InstructionId> take() { return std::move(clock_); }

 private:
  std::size_t streams_;
  std::vector<StreamId> stream_;
  std::vector<InstructionId> newest_;
  std::vector<InstructionId> clock_;
};

void check_edges(const Program& program, InstructionId id) {
  const Instruction& instruction = program.instructions[at(id)];
  SW_CHECK(instruction.stream >= 0 && at(instruction.stream) < program.streams.size(),
           "instruction {} '{}' is on stream {} of {}", id, instruction.name, instruction.stream,
           program.streams.size());
  for (const InstructionId edge : instruction.after) {
    SW_CHECK(edge >= 0 && edge < id,
             "instruction {} '{}' has an edge from {}: edges must lead from earlier instructions",
             id, instruction.name, edge);
  }
}

}  // namespace

Order::Order(const Program& program) : streams_(program.streams.size()) {
  Clocks clocks(streams_);
  std::vector<InstructionId> newest(streams_, -1);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const auto id = static_cast<InstructionId>(i);
    check_edges(program, id);
    const Instruction& instruction = program.instructions[i];
    clocks.begin(instruction.stream);
    for (const InstructionId edge : instruction.after) clocks.follow(edge);
    stream_.push_back(instruction.stream);
    previous_.push_back(newest[at(instruction.stream)]);
    after_.push_back(instruction.after);
    newest[at(instruction.stream)] = id;
  }
  clock_ = clocks.take();
}

InstructionId Order::previous(InstructionId id) const { return previous_[at(id)]; }

std::vector<InstructionId> Order::predecessors(InstructionId id) const {
  std::vector<InstructionId> list = after_[at(id)];
  if (previous(id) >= 0) list.push_back(previous(id));
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

bool Order::before(InstructionId a, InstructionId b) const {
  return last_before(b, stream_[at(a)]) >= a;
}

InstructionId Order::last_before(InstructionId id, StreamId stream) const {
  return clock_[at(id) * streams_ + at(stream)];
}

void add_data_edges(Program& program) {
  Clocks clocks(program.streams.size());
  History history(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const auto id = static_cast<InstructionId>(i);
    check_edges(program, id);
    Instruction& instruction = program.instructions[i];
    clocks.begin(instruction.stream);
    for (const InstructionId edge : instruction.after) clocks.follow(edge);
    // Latest first: a later instruction may imply an earlier one, never the other way round.
    std::vector<InstructionId> conflicts = history.conflicts(id);
    std::reverse(conflicts.begin(), conflicts.end());
    for (const InstructionId conflict : conflicts) {
      if (clocks.has_ended(conflict)) continue;
      clocks.follow(conflict);
      instruction.after.push_back(conflict);
    }
    std::sort(instruction.after.begin(), instruction.after.end());
    history.record(id);
  }
}

}  // namespace sw
