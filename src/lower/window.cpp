#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "lower/lowering.hpp"

namespace sw {

Operand Lowering::unit_range(BufferId buffer, std::int64_t begin, std::int64_t count,
                             DType dtype) const {
  return {buffer, begin * size_of(dtype), dtype, {count}};
}

void Lowering::emit_all_reduce(const std::string& name, const std::vector<int>& axes,
                               const Operand& operand) {
  if (axes.empty()) {
    return;
  }
  Instruction instruction;
  instruction.name = name;
  instruction.phase = Phase::Window;
  instruction.work =
      CollectiveWork{CollectiveKind::AllReduce, ReduceOp::Sum, group(axes, 0), {-1}, -1, {}, {}};
  instruction.inputs = {operand};
  instruction.outputs = {operand};
  emit(std::move(instruction));
}

void Lowering::emit_count() {
  emit_all_reduce("valid tokens", state_.data_axes, program_.host.valid_count);
  for (int update = 0; update < updates(); ++update) {
    Instruction finish;
    finish.name = "count";
    finish.phase = Phase::Window;
    finish.work = WindowWork{WindowKind::FinishCount};
    finish.inputs = {of_update(program_.host.valid_count, update, {1})};
    finish.outputs = {of_update(program_.host.count, update, {})};
    emit(std::move(finish));
  }
}

/// Over the axes on which what was added is Partial, and over the stages: zero where others have
/// it.
void Lowering::emit_sums() {
  const int pp = sharded_.mesh.find("pp");
  for (const auto& [sum, of] : sums_) {
    std::vector<int> axes;
    const Sharding& sharding = copy(of).sharding;
    for (int axis = 0; axis < static_cast<int>(sharding.size()); ++axis) {
      if (axis == pp || sharding[static_cast<std::size_t>(axis)].is_partial()) {
        axes.push_back(axis);
      }
    }
    zero_unwritten(sum);
    emit_all_reduce(kWindowSums[static_cast<std::size_t>(sum)], axes, host_sum(sum));
  }
}

/// Rows whose layers are other stages'.
void Lowering::zero_unwritten(WindowSum sum) {
  const Shape& shape = host_sum(sum).shape;
  const std::int64_t rows = shape.empty() ? 1 : shape.front();
  std::int64_t begin = 0;
  for (std::int64_t row = 0; row <= rows; ++row) {
    if (row < rows && !written_sums_.contains({sum, row})) {
      continue;
    }
    if (begin < row) {
      Instruction none;
      none.name = fmt::format("no {}", kWindowSums[static_cast<std::size_t>(sum)]);
      none.phase = Phase::Window;
      none.work = ZeroWork{};
      none.outputs = {sum_rows(sum, begin, row - begin)};
      emit(std::move(none));
    }
    begin = row + 1;
  }
}

/// The loss has no rows, but where a window has several updates.
Operand Lowering::sum_rows(WindowSum sum, std::int64_t begin, std::int64_t count) {
  Operand rows = host_sum(sum);
  if (!rows.shape.empty()) {
    const std::int64_t row = elements(rows.shape) / rows.shape.front();
    rows.offset += begin * row * size_of(rows.dtype);
    rows.shape.front() = count;
  }
  return rows;
}

void Lowering::place_update_operands() {
  const auto shape = [&](int length) {
    return updates() == 1 ? Shape{length} : Shape{updates(), length};
  };
  program_.host.settings = {state_.settings, 0, DType::Float64, shape(kSettings)};
  program_.host.verdict = {state_.verdict, 0, DType::Float64, shape(kVerdict)};
}

Operand Lowering::norm_words(int update) const {
  return of_update({state_.norm_words, 0, DType::UInt64, {}}, update, {kernels::ExactSum::kWords});
}

void Lowering::emit_squares(int update) {
  Instruction squares;
  squares.name = "gradient squares";
  squares.phase = Phase::Window;
  squares.work = WindowWork{WindowKind::Squares};
  for (const OwnedPiece& piece : owned_pieces(state_)) {
    if (piece.unit->gradients >= 0) {
      squares.inputs.push_back(state_.gradients(*piece.unit, piece.place()));
    }
  }
  squares.outputs = {norm_words(update)};
  emit(std::move(squares));
}

void Lowering::emit_verdict(int update, bool with_loss) {
  Instruction finish;
  finish.name = "verdict";
  finish.phase = Phase::Window;
  finish.work = WindowWork{WindowKind::FinishNorm};
  finish.inputs = {norm_words(update), of_update(program_.host.settings, update, {kSettings})};
  if (with_loss) {
    finish.inputs.push_back(of_update(program_.host.loss, update, {}));
  }
  finish.outputs = {of_update(program_.host.verdict, update, {kVerdict})};
  emit(std::move(finish));
}

void Lowering::emit_update() {
  const Operand words = norm_words(0);
  emit_squares(0);
  if (has_collectives()) {
    Instruction reduce;
    reduce.name = "gradient norm";
    reduce.phase = Phase::Window;
    reduce.work =
        CollectiveWork{CollectiveKind::AllReduce, ReduceOp::Sum, world_group(), {-1}, -1, {}, {}};
    reduce.inputs = {words};
    reduce.outputs = {words};
    emit(std::move(reduce));
  }
  emit_verdict(0, true);
  if (state_.router_bias.buffer >= 0) {
    Instruction move;
    move.name = "router bias";
    move.phase = Phase::Window;
    move.work = WindowWork{WindowKind::MoveBias, options_.balance_bias};
    move.inputs = {program_.host.verdict, host_sum(WindowSum::ExpertLoad), state_.router_bias};
    move.outputs = {state_.router_bias};
    emit(std::move(move));
  }
  emit_new_weights(0);
}

/// Optimizer and gathering, in the order in which gradients were reduced.
void Lowering::emit_new_weights(int update) {
  for (const std::vector<std::size_t>& bucket : update_order_) {
    for (const std::size_t unit : bucket) {
      emit_optimizer(state_.units[unit], update);
      emit_updated_weights(state_.units[unit]);
    }
    const bool sliced = state_.group(state_.units[bucket.front()]).slices > 1;
    if ((state_.options.zero == 1 || state_.options.zero == 2) && sliced) {
      Instruction gather = weight_gather(bucket);
      for (const std::size_t unit : bucket) {
        gather.outputs.push_back(
            state_.weights(state_.units[unit], {0, state_.units[unit].elements}));
      }
      emit(std::move(gather));
    }
  }
}

/// Every range of the unit that this rank updates: its slice under ZeRO, else all of it.
void Lowering::emit_optimizer(const Unit& unit, int update) {
  const OptimizerOptions& optimizer = options_.optimizer;
  const Range mine = state_.optimizer_range(unit);
  OptimizerWork work;
  work.rule = optimizer.name == OptimizerName::AdamW ? "adamw" : "sgd";
  work.beta1 = optimizer.betas[0];
  work.beta2 = optimizer.betas[1];
  work.epsilon = optimizer.epsilon;
  work.momentum = optimizer.momentum;
  work.states = state_.options.moments;
  work.rounded = state_.options.precision == DType::BFloat16;
  Instruction instruction;
  instruction.name = "update " + unit.name;
  instruction.phase = Phase::Window;
  instruction.inputs = {of_update(program_.host.settings, update, {kSettings}),
                        of_update(program_.host.verdict, update, {kVerdict})};
  for (const UnitMember& member : unit.members) {
    const Range part = part_in(member, mine);
    if (part.size() == 0) {
      continue;
    }
    const std::int64_t in_state = part.begin - mine.begin;
    instruction.inputs.push_back(state_.updating_gradients(unit, part));
    instruction.outputs.push_back(state_.master(unit, part));
    for (const BufferId moment : unit.moments) {
      instruction.outputs.push_back(unit_range(moment, in_state, part.size(), DType::Float32));
    }
    if (work.rounded) {
      instruction.outputs.push_back(state_.rounded(unit, part));
    }
    work.weight_decay.push_back(
        options_.decays(model_.graph.value(member.parameter)) ? optimizer.weight_decay : 0);
  }
  if (work.weight_decay.empty()) {
    return;  // this rank owns only padding of the unit
  }
  instruction.work = work;
  emit(std::move(instruction));
}

/// All-gather of whole units of one group from the slices that ranks keep; outputs are the
/// caller's.
Instruction Lowering::weight_gather(const std::vector<std::size_t>& units) {
  const StreamId stream = communication_stream();
  Instruction gather;
  gather.name = "weights " + state_.units[units.front()].name;
  gather.phase = Phase::Window;
  gather.stream = stream;
  const std::vector<int>& axes = state_.group(state_.units[units.front()]).shard;
  CollectiveWork work{
      CollectiveKind::AllGather, ReduceOp::Sum, group(axes, stream), {}, -1, {}, {}};
  for (const std::size_t u : units) {
    gather.inputs.push_back(state_.weights(state_.units[u], state_.units[u].slice));
    work.dims.push_back(0);
  }
  gather.work = work;
  return gather;
}

Program Lowering::finish(std::string name) {
  program_.name = std::move(name);
  add_data_edges(program_);
  map_memory(program_);
  verify(program_);
  return std::move(program_);
}

Program lower_training(const ModelGraph& model, const ShardedGraph& sharded, const StatePlan& state,
                       int rank, const LowerOptions& options) {
  Lowering lowering(model, sharded, state, rank, options);
  lowering.place_update_operands();
  lowering.emit_count();
  lowering.emit_actions(options.order);
  if (options.update.asynchronous()) {
    lowering.emit_sums();
    lowering.emit_verdicts();
    return lowering.finish("train");
  }
  lowering.gather_weights();
  lowering.insert_gradient_reductions();
  lowering.emit_tied_reductions();
  lowering.emit_sums();
  lowering.emit_update();
  return lowering.finish("train");
}

Program lower_evaluation(const ModelGraph& model, const ShardedGraph& sharded,
                         const StatePlan& state, int rank, const LowerOptions& options) {
  Lowering lowering(model, sharded, state, rank, options);
  lowering.emit_count();
  lowering.emit_actions(forward_order(options.stages));
  lowering.gather_weights();
  lowering.emit_sums();
  return lowering.finish("evaluate");
}

GenerationProgram lower_generation(const ModelGraph& model, const ShardedGraph& sharded,
                                   const StatePlan& state, int rank, const LowerOptions& options) {
  Lowering lowering(model, sharded, state, rank, options);
  const Operand logits = lowering.emit_until_logits();
  lowering.gather_weights();
  return {lowering.finish("generate"), logits};
}

}  // namespace sw
