#pragma once

#include <string>
#include <utility>
#include <vector>

#include "program/program.hpp"

namespace sw::test {

/// Makes small Programs by hand.
class Builder {
 public:
  explicit Builder(int rank = 0, int world = 1, std::vector<std::string> streams = {"compute"}) {
    program_.name = "test";
    program_.rank = rank;
    program_.world = world;
    program_.streams = std::move(streams);
  }

  /// A buffer with one tensor in it. Persistent ones must come first.
  Operand tensor(const std::string& name, Shape shape, Lane lane = Lane::Private,
                 bool persistent = false, DType dtype = DType::Float32) {
    const Operand operand{static_cast<BufferId>(program_.buffers.size()), 0, dtype,
                          std::move(shape)};
    program_.buffers.push_back({.name = name,
                                .lane = lane,
                                .category = Category::Activations,
                                .persistent = persistent,
                                .bytes = bytes_of(operand)});
    return operand;
  }
  Operand state(const std::string& name, Shape shape, Lane lane = Lane::Private) {
    return tensor(name, std::move(shape), lane, true);
  }

  GroupId group(const std::string& axis, StreamId stream, std::vector<int> members) {
    program_.groups.push_back({axis, stream, std::move(members)});
    return static_cast<GroupId>(program_.groups.size()) - 1;
  }

  InstructionId add(const std::string& name, Work work, std::vector<Operand> inputs,
                    std::vector<Operand> outputs, StreamId stream = 0) {
    Instruction instruction;
    instruction.name = name;
    instruction.stream = stream;
    instruction.work = std::move(work);
    instruction.inputs = std::move(inputs);
    instruction.outputs = std::move(outputs);
    program_.instructions.push_back(std::move(instruction));
    return static_cast<InstructionId>(program_.instructions.size()) - 1;
  }
  void set_scratch(InstructionId instruction, const Operand& scratch) {
    program_.instructions[static_cast<std::size_t>(instruction)].scratch = scratch;
  }
  InstructionId zero(const Operand& output, StreamId stream = 0) {
    return add("zero", ZeroWork{}, {}, {output}, stream);
  }
  InstructionId kernel(const std::string& op, std::vector<Operand> inputs, Operand output,
                       StreamId stream = 0) {
    return add(op, KernelWork{op, {}, {false}}, std::move(inputs), {std::move(output)}, stream);
  }
  /// all_reduce, reduce_scatter, all_gather or broadcast of one segment.
  InstructionId collective(CollectiveKind kind, GroupId group, const Operand& input,
                           const Operand& output, int dim = -1, int peer = -1) {
    CollectiveWork work;
    work.kind = kind;
    work.group = group;
    work.dims = {dim};
    work.peer = peer;
    return add(std::string(to_text(kind)), work, {input}, {output}, stream_of(group));
  }
  InstructionId send(GroupId group, int peer, const Operand& input) {
    return add("send", transfer(CollectiveKind::Send, group, peer), {input}, {}, stream_of(group));
  }
  InstructionId receive(GroupId group, int peer, const Operand& output) {
    return add("receive", transfer(CollectiveKind::Receive, group, peer), {}, {output},
               stream_of(group));
  }

  Program& program() { return program_; }
  /// With edges and memory map.
  Program finish() {
    add_data_edges(program_);
    map_memory(program_);
    return program_;
  }

 private:
  [[nodiscard]] StreamId stream_of(GroupId group) const {
    return program_.groups[static_cast<std::size_t>(group)].stream;
  }
  static CollectiveWork transfer(CollectiveKind kind, GroupId group, int peer) {
    CollectiveWork work;
    work.kind = kind;
    work.group = group;
    work.dims = {-1};
    work.peer = peer;
    return work;
  }

  Program program_;
};

/// `elements` elements of a flat float32 operand, from element `start` on.
inline Operand part(const Operand& whole, std::int64_t start, std::int64_t elements) {
  Operand operand = whole;
  operand.offset += start * size_of(whole.dtype);
  operand.shape = {elements};
  return operand;
}

}  // namespace sw::test
