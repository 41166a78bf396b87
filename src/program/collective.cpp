#include "program/collective.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace sw {
namespace {

Extent extent_of(const Operand& whole, int dim) {
  if (dim < 0) return {1, elements(whole.shape), 1};
  Extent extent{1, 1, 1};
  for (std::size_t d = 0; d < whole.shape.size(); ++d) {
    const auto cut = static_cast<std::size_t>(dim);
    (d < cut ? extent.outer : d == cut ? extent.length : extent.trailing) *= whole.shape[d];
  }
  return extent;
}

bool whole_is_output(CollectiveKind kind) {
  return kind == CollectiveKind::AllGather || kind == CollectiveKind::Receive;
}

const CollectiveWork& work_of(const Instruction& instruction) {
  return std::get<CollectiveWork>(instruction.work);
}

}  // namespace

std::string communicator_name(const Program& program, const Group& group) {
  return group.axis + "@" + program.streams[static_cast<std::size_t>(group.stream)];
}

int rank_in(const Program& program, const Group& group) {
  const auto at = std::find(group.members.begin(), group.members.end(), program.rank);
  SW_CHECK(at != group.members.end(), "rank {} is no member of a group on '{}'", program.rank,
           group.axis);
  return static_cast<int>(at - group.members.begin());
}

const Group& group_of(const Program& program, const CollectiveWork& work) {
  return program.groups[static_cast<std::size_t>(work.group)];
}

const Operand& whole_operand(const Instruction& instruction, std::size_t index) {
  return whole_is_output(work_of(instruction).kind) ? instruction.outputs[index]
                                                    : instruction.inputs[index];
}

const Operand* other_operand(const Instruction& instruction, std::size_t index) {
  const std::vector<Operand>& list =
      whole_is_output(work_of(instruction).kind) ? instruction.inputs : instruction.outputs;
  return index < list.size() ? &list[index] : nullptr;
}

/// Elements of a row of slots, and how many slots this rank has.
std::pair<std::int64_t, std::int64_t> routed_rows(const Instruction& instruction) {
  const bool leaves = work_of(instruction).routing == Routing::ToExperts;
  const Operand& packed = leaves ? instruction.inputs[0] : instruction.outputs[0];
  const std::int64_t slots = packed.shape.at(0);
  return {elements(packed.shape) / std::max<std::int64_t>(slots, 1), slots};
}

CollectiveSizes sizes_of(const Instruction& instruction, Algorithm algorithm) {
  const CollectiveWork& work = work_of(instruction);
  CollectiveSizes sizes;
  sizes.kind = work.kind;
  sizes.algorithm = algorithm_for(work.kind, algorithm);
  sizes.peer = work.peer;
  sizes.input_counts = work.input_counts;
  if (work.routing != Routing::None) {  // as if all experts were chosen alike
    const auto [row, slots] = routed_rows(instruction);
    const std::int64_t ranks = instruction.inputs[1].shape.at(0);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      sizes.input_counts.push_back(split(slots, ranks, rank).size() * row);
    }
  }
  if (!work.dims.empty()) sizes.dtype = whole_operand(instruction, 0).dtype;
  for (std::size_t i = 0; i < work.dims.size(); ++i) {
    sizes.segments.push_back(extent_of(whole_operand(instruction, i), work.dims[i]));
  }
  return sizes;
}

std::int64_t sent_bytes(const Program& program, const Instruction& instruction,
                        Algorithm algorithm) {
  const Group& group = group_of(program, work_of(instruction));
  return sent_bytes(sizes_of(instruction, algorithm), static_cast<int>(group.members.size()),
                    rank_in(program, group));
}

}  // namespace sw
