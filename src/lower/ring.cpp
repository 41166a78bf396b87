#include <algorithm>

#include "base/error.hpp"
#include "lower/lowering.hpp"

/// Ring attention: queries stay, keys and values go round the ranks of cp in blocks, one rank a
/// hop, the next on its way while one is used. What the blocks seen so far gave is kept as
/// attention's output and log-sum-exp, which the kernel takes up again. The backward sends the
/// blocks round once more, and behind each its gradient, which every rank adds to. Source: Liu et
/// al. 2023, arXiv:2310.01889; the balanced order: Dubey et al. 2024, arXiv:2407.21783,
/// section 3.3.2.
namespace sw {

/// Each way from a rank to the next is a stream with a communicator, made in one order for all.
void Lowering::make_ring() {
  std::vector<int> axes;
  for (const ShardedStep& step : sharded_.steps) {
    axes = axes.empty() ? ring_axes(sharded_, step) : axes;
  }
  if (axes.empty()) {
    return;
  }
  const std::vector<int> ranks = sharded_.mesh.group(rank_, axes);
  ring_ranks_ = static_cast<int>(ranks.size());
  ring_place_ = sharded_.mesh.place(rank_, axes);
  for (int from = 0; from < ring_ranks_; ++from) {
    const int to = (from + 1) % ring_ranks_;
    if (ring_place_ != from && ring_place_ != to) {
      continue;
    }
    Link& way = ring_place_ == from ? ring_next_ : ring_before_;
    way.stream = static_cast<StreamId>(program_.streams.size());
    way.group = static_cast<GroupId>(program_.groups.size());
    way.peer = ring_place_ == std::min(from, to) ? 1 : 0;
    program_.streams.push_back(fmt::format("ring {}>{}", from, to));
    program_.groups.push_back({sharded_.mesh.group_name(axes),
                               way.stream,
                               {ranks[static_cast<std::size_t>(std::min(from, to))],
                                ranks[static_cast<std::size_t>(std::max(from, to))]}});
  }
}

/// Sums over blocks are float32, rounded once where the value itself is narrower.
void Lowering::emit_ring(const ShardedStep& step, std::size_t at) {
  const bool forward = model_.graph.op(step.op).direction == Direction::Forward;
  std::vector<Operand> inputs;
  for (const CopyId id : step.inputs) {
    inputs.push_back(operand(id));
    inputs.back().shape = local_shape(id);
  }
  std::vector<Operand> outputs;
  std::vector<Operand> sums;
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    outputs.push_back(place_output(step, i, at));
    placed_[static_cast<std::size_t>(step.outputs[i])] = {outputs.back(), false};
    sums.push_back(
        outputs.back().dtype == DType::Float32
            ? outputs.back()
            : transient(fmt::format("{} sum mb{}", value(step.outputs[i]).name, micro_batch_),
                        DType::Float32, outputs.back().shape, Lane::Private,
                        Category::Activations));
  }
  if (forward) {
    emit_ring_forward(step, inputs, sums);
  } else {
    emit_ring_backward(step, inputs, sums);
  }
  // What was sent has arrived before compute goes on, so that its memory is free.
  program_.instructions.back().after = {ring_next_.sends.back()};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (sums[i].buffer != outputs[i].buffer) {
      const kernels::KernelCall cast{"cast",
                                     {},
                                     {{nullptr, DType::Float32, sums[i].shape}},
                                     {{nullptr, outputs[i].dtype, outputs[i].shape}},
                                     {false}};
      emit_kernel("cast " + value(step.outputs[i]).name, cast, {sums[i]}, {outputs[i]}, 0,
                  phase_of(step));
    }
  }
}

/// One block after the other.
void Lowering::emit_ring_forward(const ShardedStep& step, const std::vector<Operand>& inputs,
                                 const std::vector<Operand>& sums) {
  KeysAndValues here{inputs[1], inputs[2]};
  KeysAndValues coming[2];
  for (int hop = 0; hop < ring_ranks_; ++hop) {
    KeysAndValues& next = coming[hop % 2];
    emit_exchange(step, hop, here, next);
    emit_block(step, hop, here, inputs, sums, {hop > 0, hop > 0});
    here = next;
  }
}

/// At hop h the block of the rank h places before is here. Its gradient begins at that rank's
/// neighbour, so it comes one hop behind the block, takes up what this rank gives, and goes on;
/// what the owner gives stays there, and takes up the rest at the end.
void Lowering::emit_ring_backward(const ShardedStep& step, const std::vector<Operand>& inputs,
                                  const std::vector<Operand>& sums) {
  const KeysAndValues own{sums[1], sums[2]};
  const KeysAndValues taken = ring_buffers(step, "gradients received", DType::Float32);
  KeysAndValues here{inputs[1], inputs[2]};
  KeysAndValues coming[2];
  KeysAndValues given[2];
  for (int hop = 0; hop < ring_ranks_; ++hop) {
    KeysAndValues& next = coming[hop % 2];
    KeysAndValues& gives = given[hop % 2];
    if (hop >= 2) {
      emit_hop(step, "gradients", taken, true);
    }
    emit_exchange(step, hop, here, next);
    if (hop == 1 || hop == 2) {
      gives = ring_buffers(step, fmt::format("gradients given {}", hop), DType::Float32);
    }
    const KeysAndValues sum = hop == 0 ? own : gives;
    emit_block(step, hop, here, inputs, {sums[0], sum.keys, sum.values}, {hop > 0, false, false});
    if (hop >= 2) {
      emit_sum(step, taken, gives);
    }
    if (hop >= 1) {
      emit_hop(step, "gradients", gives, false);
    }
    here = next;
  }
  emit_hop(step, "gradients", taken, true);
  emit_sum(step, taken, own);
}

/// The next block sets out while this one is used: two places are enough, whatever the number of
/// ranks.
void Lowering::emit_exchange(const ShardedStep& step, int hop, const KeysAndValues& here,
                             KeysAndValues& next) {
  if (hop + 1 == ring_ranks_) {
    return;
  }
  if (hop < 2) {
    next = ring_buffers(step, fmt::format("received {}", hop), here.keys.dtype);
  }
  emit_hop(step, "keys and values", next, true);
  emit_hop(step, "keys and values", here, false);
}

void Lowering::emit_hop(const ShardedStep& step, const std::string& what,
                        const KeysAndValues& block, bool receives) {
  const Link& way = receives ? ring_before_ : ring_next_;
  const CollectiveKind kind = receives ? CollectiveKind::Receive : CollectiveKind::Send;
  Instruction hop;
  hop.name = fmt::format("{} {} {}", to_text(kind), model_.graph.op(step.op).name, what);
  hop.phase = phase_of(step);
  hop.stream = way.stream;
  hop.work = CollectiveWork{kind, ReduceOp::Sum, way.group, {-1, -1}, way.peer, {}, {}};
  (receives ? hop.outputs : hop.inputs) = {block.keys, block.values};
  if (receives) {
    hop.after = after_compute();
  } else {
    ring_next_.sends.push_back(static_cast<InstructionId>(program_.instructions.size()));
  }
  emit(std::move(hop));
}

/// The kernel on this rank's queries and the block that is here.
void Lowering::emit_block(const ShardedStep& step, int hop, const KeysAndValues& here,
                          std::vector<Operand> inputs, const std::vector<Operand>& outputs,
                          std::vector<bool> accumulate) {
  const Op& op = model_.graph.op(step.op);
  const int block = (ring_place_ - hop + ring_ranks_) % ring_ranks_;
  inputs[1] = here.keys;
  inputs[2] = here.values;
  for (const std::size_t i : {4, 6}) {
    inputs[i] = columns_of_block(step.inputs[i], block);
  }
  std::vector<Shape> input_shapes, input_starts, output_shapes;
  std::vector<DType> input_types, output_types;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    input_shapes.push_back(inputs[i].shape);
    input_starts.push_back(local_start(step.inputs[i]));
    input_types.push_back(inputs[i].dtype);
  }
  for (const Operand& output : outputs) {
    output_shapes.push_back(output.shape);
    output_types.push_back(output.dtype);
  }
  kernels::KernelCall call = local_call(model_.graph, op, input_shapes, input_starts, input_types,
                                        output_shapes, output_types);
  call.accumulate = std::move(accumulate);
  const double flops = op.definition->flops(op.parameters, input_shapes, output_shapes);
  emit_kernel(fmt::format("{} block {}", op.name, block), call, std::move(inputs), outputs, flops,
              phase_of(step));
}

/// Positions, or documents, of a block's keys. The host wrote those of the whole row.
Operand Lowering::columns_of_block(CopyId copy, int block) {
  const auto [slot, added] = columns_.try_emplace({micro_batch_, copy, block});
  if (added) {
    const Operand whole = operand(copy);
    const Range range = split(whole.shape.at(1), ring_ranks_, block);
    Instruction slice;
    slice.name = fmt::format("slice {} block {}", value(copy).name, block);
    slice.work = SliceWork{1, range.begin};
    slice.inputs = {whole};
    slice.outputs = {transient(
        fmt::format("{} block {} mb{}", value(copy).name, block, micro_batch_), DType::Int32,
        {whole.shape[0], range.size()}, Lane::Private, Category::Activations)};
    slot->second = slice.outputs.front();
    emit(std::move(slice));
  }
  return slot->second;
}

Lowering::KeysAndValues Lowering::ring_buffers(const ShardedStep& step, const std::string& what,
                                               DType dtype) {
  const auto buffer = [&](std::size_t input) {
    return transient(fmt::format("{} {} mb{}", value(step.inputs[input]).name, what, micro_batch_),
                     dtype, local_shape(step.inputs[input]), Lane::Window, Category::Communication);
  };
  return {buffer(1), buffer(2)};
}

/// sum += part.
void Lowering::emit_sum(const ShardedStep& step, const KeysAndValues& part,
                        const KeysAndValues& sum) {
  for (const auto& [from, to] :
       {std::pair(part.keys, sum.keys), std::pair(part.values, sum.values)}) {
    const kernels::View view{nullptr, DType::Float32, from.shape};
    emit_kernel("add " + model_.graph.op(step.op).name, {"add", {}, {view, view}, {view}, {false}},
                {to, from}, {to}, static_cast<double>(elements(from.shape)), phase_of(step));
  }
}

}  // namespace sw
