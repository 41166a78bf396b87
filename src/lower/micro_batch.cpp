#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "lower/lowering.hpp"

namespace sw {

void Lowering::emit(Instruction instruction) {
  instruction.micro_batch = micro_batch_;
  if (round_.number > 0) {
    instruction.round = round_.number;
    instruction.rounds = round_.rounds;
    instruction.phase = round_.phase;
    instruction.flops = 0;
  }
  program_.instructions.push_back(std::move(instruction));
}

void Lowering::emit_work(const std::string& name, Phase phase, Work work,
                         std::vector<Operand> inputs, std::vector<Operand> outputs) {
  Instruction instruction;
  instruction.name = name;
  instruction.phase = phase;
  instruction.work = std::move(work);
  instruction.inputs = std::move(inputs);
  instruction.outputs = std::move(outputs);
  emit(std::move(instruction));
}

Instruction Lowering::kernel_instruction(const std::string& name, const kernels::KernelCall& call,
                                         std::vector<Operand> inputs, std::vector<Operand> outputs,
                                         double flops) {
  Instruction instruction;
  instruction.name = name;
  instruction.work = KernelWork{call.op, call.parameters, call.accumulate};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].shape = call.inputs[i].shape;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].shape = call.outputs[i].shape;
  }
  instruction.inputs = std::move(inputs);
  instruction.outputs = std::move(outputs);
  instruction.flops = flops;
  if (const std::int64_t bytes = kernels::scratch_bytes(call, options_.threads); bytes > 0) {
    instruction.scratch =
        transient(name + " scratch", DType::UInt8, {bytes}, Lane::Private, Category::Workspace);
  }
  return instruction;
}

void Lowering::emit_kernel(const std::string& name, const kernels::KernelCall& call,
                           std::vector<Operand> inputs, std::vector<Operand> outputs, double flops,
                           Phase phase) {
  Instruction instruction =
      kernel_instruction(name, call, std::move(inputs), std::move(outputs), flops);
  instruction.phase = phase;
  emit(std::move(instruction));
}

GroupId Lowering::group(const std::vector<int>& axes, StreamId stream) {
  const auto [slot, added] =
      groups_.try_emplace({axes, stream}, static_cast<GroupId>(program_.groups.size()));
  if (added) {
    program_.groups.push_back(
        {sharded_.mesh.group_name(axes), stream, sharded_.mesh.group(rank_, axes)});
  }
  return slot->second;
}

/// A group that is no whole axis; `key` tells it from others on the stream.
GroupId Lowering::listed_group(int key, const std::string& name, StreamId stream,
                               const std::vector<int>& members) {
  const auto [slot, added] = groups_.try_emplace({std::vector<int>{key}, stream},
                                                 static_cast<GroupId>(program_.groups.size()));
  if (added) {
    program_.groups.push_back({name, stream, members});
  }
  return slot->second;
}

/// All ranks, apart from an axis group that happens to be the world.
GroupId Lowering::world_group() {
  std::vector<int> members(static_cast<std::size_t>(sharded_.mesh.world()));
  std::iota(members.begin(), members.end(), 0);
  return listed_group(-1, "world", 0, members);
}

/// Of the stages that hold a tied weight.
GroupId Lowering::tied_group(const Unit& unit) {
  const int pp = sharded_.mesh.find("pp");
  if (unit.replicas == sharded_.mesh.group(rank_, {pp})) {
    return group({pp}, 0);
  }
  return listed_group(-2, "pp", 0, unit.replicas);
}

/// Which ranks share the experts of a layer.
GroupId Lowering::expert_group() {
  return listed_group(-3, "ep", 0, sharded_.mesh.group(rank_, sharded_.mesh.parts("ep")));
}

StreamId Lowering::communication_stream() {
  if (!options_.overlap) {
    return 0;
  }
  if (communication_ < 0) {
    communication_ = static_cast<StreamId>(program_.streams.size());
    program_.streams.push_back("communication");
  }
  return communication_;
}

/// The weights that live on this rank.
std::vector<Lowering::Placed> Lowering::parameters_placed() const {
  std::vector<Placed> placed(sharded_.copies.size());
  for (const CopyId id : sharded_.parameters) {
    if (member_of_.contains(copy(id).value)) {
      placed[static_cast<std::size_t>(id)] = parameter_operand(id);
    }
  }
  return placed;
}

void Lowering::add_batches(int micro_batches) {
  const Shape& whole = model_.graph.value(model_.tokens).shape;
  Sharding rows(sharded_.mesh.axes().size());
  for (const int axis : sharded_.mesh.parts("dp")) {
    rows[static_cast<std::size_t>(axis)] = shard(0);
  }
  const Shape local = shape_of(local_box(whole, rows, sharded_.mesh, coordinates_));
  for (int m = 0; m < micro_batches; ++m) {
    const auto slot = [&](const char* name) {
      return transient(fmt::format("{} mb{}", name, m), DType::Int32, local, Lane::Private,
                       Category::Activations);
    };
    program_.batches.push_back(
        {slot("tokens"), slot("labels"), slot("positions"), slot("documents")});
  }
}

Operand Lowering::emit_until_logits() {
  add_batches(1);
  micro_batch_ = 0;
  placed_ = parameters_placed();
  for (std::size_t at = 0; at < sharded_.steps.size(); ++at) {
    const ShardedStep& step = sharded_.steps[at];
    emit_step(at);
    if (step.kind == ShardedStep::Kind::Compute &&
        copy(step.outputs.front()).value == model_.logits) {
      return operand(step.outputs.front());
    }
  }
  throw InternalError("the graph has no logits");
}

void Lowering::emit_step(std::size_t at) {
  if (emitted_.contains({micro_batch_, at})) {
    return;
  }
  if (most_rounds_ > 1 && returns_slots(sharded_.steps[at])) {
    emit_rounds(at);
  } else {
    emit_one(at);
  }
}

void Lowering::emit_one(std::size_t at) {
  const ShardedStep& step = sharded_.steps[at];
  switch (step.kind) {
    case ShardedStep::Kind::Load:
      emit_load(step);
      break;
    case ShardedStep::Kind::Move:
      emit_move(step, at);
      break;
    case ShardedStep::Kind::Compute:
      if (packed_from_tokens_[static_cast<std::size_t>(step.outputs.front())]) {
        placed_[static_cast<std::size_t>(step.outputs.front())] = {operand(step.inputs.front()),
                                                                   true};
      } else if (!ring_axes(sharded_, step).empty()) {
        emit_ring(step, at);
      } else {
        emit_compute(step, at);
      }
      break;
  }
}

/// The host writes this rank's rows; another cut of them (along the sequence on cp and tp) is a
/// copy.
void Lowering::emit_load(const ShardedStep& step) {
  const ValueId id = copy(step.to).value;
  Placed& placed = placed_[static_cast<std::size_t>(step.to)];
  placed.shared = true;
  if (id == model_.count) {
    placed.operand = of_update(program_.host.count, options_.update.update_of(micro_batch_), {});
    return;
  }
  if (id == model_.dropout_key) {
    placed.operand = program_.host.dropout_key;
    return;
  }
  if (value(step.to).bias_row >= 0) {
    placed.operand = state_.router_bias_of(value(step.to));
    return;
  }
  const BatchSlot& batch = program_.batches.at(static_cast<std::size_t>(micro_batch_));
  const Operand whole = id == model_.tokens      ? batch.tokens
                        : id == model_.labels    ? batch.labels
                        : id == model_.positions ? batch.positions
                                                 : batch.documents;
  const Shape local = local_shape(step.to);
  if (local == whole.shape) {
    placed.operand = whole;
    return;
  }
  SW_CHECK(local.at(0) == whole.shape.at(0), "{}: a rank would read rows that are not its own",
           value(step.to).name);
  placed.operand = transient(fmt::format("{} slice mb{}", value(step.to).name, micro_batch_),
                             DType::Int32, local, Lane::Private, Category::Activations);
  emit_work("slice " + value(step.to).name, Phase::Forward,
            SliceWork{1, local_start(step.to).at(1)}, {whole}, {placed.operand});
}

void Lowering::emit_move(const ShardedStep& step, std::size_t at) {
  if (!step.move.collective.has_value()) {
    emit_slice(step);
  } else if (step.move.from.is_routed() || step.move.to.is_routed()) {
    emit_routed_move(step);
  } else if (*step.move.collective == CollectiveKind::AllToAll) {
    emit_all_to_all(step);
  } else {
    emit_collective_move(step, at);
  }
}

void Lowering::emit_slice(const ShardedStep& step) {
  const Operand from = operand(step.from);
  const auto dim = static_cast<std::size_t>(step.move.to.dim);
  const Operand to = transient(fmt::format("{} slice mb{}", value(step.to).name, micro_batch_),
                               from.dtype, local_shape(step.to),
                               lane_[static_cast<std::size_t>(step.to)], Category::Activations);
  const std::int64_t start = local_start(step.to)[dim] - local_start(step.from)[dim];
  emit_work("slice " + value(step.to).name, phase_of(step), SliceWork{step.move.to.dim, start},
            {from}, {to});
  placed_[static_cast<std::size_t>(step.to)] = {to, false};
}

/// Parts of an axis that cut one dim are gathered and scattered at once, in the order in which they
/// nest. A Partial value travels in float32 and is rounded once: a cast follows where the value
/// itself is narrower.
void Lowering::emit_collective_move(const ShardedStep& step, std::size_t at) {
  const Move& move = step.move;
  const CollectiveKind kind = *move.collective;
  const Operand from = operand(step.from);
  const bool in_place = kind == CollectiveKind::AllReduce &&
                        last_use_[static_cast<std::size_t>(step.from)] == at &&
                        !placed_[static_cast<std::size_t>(step.from)].shared;
  const std::string name = fmt::format("{} {}", to_text(kind), value(step.to).name);
  const Phase phase = phase_of(step);
  const Operand to = in_place ? from
                              : place_copy(step.to,
                                           fmt::format("{} {} mb{}", value(step.to).name,
                                                       to_text(move.to), micro_batch_),
                                           from.dtype, Lane::Window, Category::Communication);
  const int dim = kind == CollectiveKind::AllReduce       ? -1
                  : kind == CollectiveKind::ReduceScatter ? move.to.dim
                                                          : move.from.dim;
  if (const auto whole = head_.whole.find(step.from); in_place && whole != head_.whole.end()) {
    head_.whole[step.to] = whole->second;
  }
  const CollectiveWork work{kind, move.op, group(move.axes, 0), {dim}, -1, {}, {}};
  Instruction* last = program_.instructions.empty() ? nullptr : &program_.instructions.back();
  CollectiveWork* before = last == nullptr ? nullptr : std::get_if<CollectiveWork>(&last->work);
  const bool joins = before != nullptr && before->kind == kind && before->op == move.op &&
                     before->group == work.group && last->micro_batch == micro_batch_ &&
                     last->inputs.front().dtype == from.dtype &&
                     std::none_of(last->outputs.begin(), last->outputs.end(),
                                  [&](const Operand& made) { return made.buffer == from.buffer; });
  if (joins) {  // neighbours of one kind on one group share a call
    before->dims.push_back(dim);
    last->inputs.push_back(from);
    last->outputs.push_back(to);
  } else {
    emit_work(name, phase, work, {from}, {to});
  }
  const DType wanted = copy_dtype(model_, sharded_, step.to);
  Placed& placed = placed_[static_cast<std::size_t>(step.to)];
  placed = {to, false};
  if (wanted != to.dtype) {
    SW_CHECK(head_.part.size() == 0, "{} is rounded in parts", value(step.to).name);
    placed.operand =
        transient(fmt::format("{} rounded mb{}", value(step.to).name, micro_batch_), wanted,
                  to.shape, lane_[static_cast<std::size_t>(step.to)], Category::Activations);
    kernels::KernelCall cast{
        "cast", {}, {{nullptr, to.dtype, to.shape}}, {{nullptr, wanted, to.shape}}, {false}};
    emit_kernel("cast " + value(step.to).name, cast, {to}, {placed.operand}, 0, phase);
  }
}

/// Whether the micro-batch's contribution is added to what is there: not if it is the first of
/// those that are reduced together, in whatever order they come.
bool Lowering::accumulates(int gradient) {
  const ValueId parameter = sharded_.gradients[static_cast<std::size_t>(gradient)].parameter;
  const Unit& unit = state_.units[member_of_.at(parameter).first];
  const int together = rounds(unit) > 1 ? micro_batch_ : options_.update.update_of(micro_batch_);
  return !written_gradients_.insert({gradient, together}).second;
}

Phase Lowering::phase_of(const ShardedStep& step) const {
  return direction_of(model_, sharded_, step) == Direction::Forward ? Phase::Forward
                                                                    : Phase::Backward;
}

/// For what is received: not before compute gets here, so that its memory takes the place of what
/// is done with by then.
std::vector<InstructionId> Lowering::after_compute() const {
  for (std::size_t i = program_.instructions.size(); i-- > 0;) {
    if (program_.instructions[i].stream == 0) {
      return {static_cast<InstructionId>(i)};
    }
  }
  return {};
}

void Lowering::emit_compute(const ShardedStep& step, std::size_t at) {
  const Op& op = model_.graph.op(step.op);
  std::vector<Shape> input_shapes;
  std::vector<Shape> input_starts;
  std::vector<DType> input_types;
  std::vector<Operand> inputs;
  for (const CopyId id : step.inputs) {
    inputs.push_back(operand(id));
    input_shapes.push_back(local_shape(id));
    input_starts.push_back(local_start(id));
    input_types.push_back(inputs.back().dtype);
  }
  if (const int unread = op.definition->unread_input; unread >= 0) {
    inputs[static_cast<std::size_t>(unread)].buffer = -1;
  }
  std::vector<Shape> output_shapes;
  std::vector<DType> output_types;
  std::vector<Operand> outputs;
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    outputs.push_back(place_output(step, i, at));
    output_shapes.push_back(local_shape(step.outputs[i]));
    output_types.push_back(outputs.back().dtype);
    placed_[static_cast<std::size_t>(step.outputs[i])] = {outputs.back(), false};
  }
  kernels::KernelCall call = local_call(model_.graph, op, input_shapes, input_starts, input_types,
                                        output_shapes, output_types);
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    const int gradient = gradient_of_copy_[static_cast<std::size_t>(step.outputs[i])];
    if (gradient >= 0) {
      call.accumulate[i] = accumulates(gradient);
    } else if (const Value& made = value(step.outputs[i]); made.sum.has_value()) {
      call.accumulate[i] = !written_sums_.insert({*made.sum, row_of(made)}).second;
    }
  }
  const double flops =
      op.definition->flops(op.parameters, even_shapes(step.inputs), even_shapes(step.outputs));
  emit_kernel(op.name, call, std::move(inputs), std::move(outputs), flops, phase_of(step));
}

}  // namespace sw
