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
  Instruction finish;
  finish.name = "count";
  finish.phase = Phase::Window;
  finish.work = WindowWork{WindowKind::FinishCount};
  finish.inputs = {program_.host.valid_count};
  finish.outputs = {program_.host.count};
  emit(std::move(finish));
}

void Lowering::emit_loss_reduction() {
  std::vector<int> axes;
  const Sharding& sharding = copy(sharded_.loss).sharding;
  for (int axis = 0; axis < static_cast<int>(sharding.size()); ++axis) {
    if (sharding[static_cast<std::size_t>(axis)].is_partial()) {
      axes.push_back(axis);
    }
  }
  emit_all_reduce("loss", axes, program_.host.loss);
}

/// Consecutive units, in the order in which their gradients become ready, until a bucket is full.
std::vector<std::vector<std::size_t>> Lowering::buckets(
    const std::vector<std::size_t>& ready) const {
  std::vector<std::size_t> order;
  for (std::size_t u = 0; u < state_.units.size(); ++u) {
    if (state_.units[u].gradients >= 0) {
      order.push_back(u);
    }
  }
  // The small unit is reduced over tp first; it stands last and alone, so that no layer waits for
  // it.
  const auto small = [&](std::size_t unit) { return state_.units[unit].name == "small"; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(small(a), ready[a]) < std::pair(small(b), ready[b]);
  });
  const double full = options_.bucket_mib * 1024 * 1024;
  std::vector<std::vector<std::size_t>> result;
  double bytes = 0;
  for (const std::size_t unit : order) {
    if (result.empty() || bytes >= full || small(unit)) {
      result.emplace_back();
      bytes = 0;
    }
    result.back().push_back(unit);
    bytes += static_cast<double>(state_.units[unit].elements) * 4;
  }
  return result;
}

void Lowering::insert_gradient_reductions() {
  check_gradients_in_place();
  // The last instruction that adds to each unit's gradients.
  std::vector<std::size_t> ready(state_.units.size(), 0);
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    for (const Operand& output : program_.instructions[i].outputs) {
      for (std::size_t u = 0; u < state_.units.size(); ++u) {
        if (output.buffer >= 0 && output.buffer == state_.units[u].gradients) {
          ready[u] = i;
        }
      }
    }
  }
  update_order_ = buckets(ready);
  std::vector<std::pair<std::size_t, Instruction>> insertions;  // after which instruction
  for (const std::vector<std::size_t>& bucket : update_order_) {
    std::size_t after = insertions.empty() ? 0 : insertions.back().first;
    for (const std::size_t unit : bucket) {
      after = std::max(after, ready[unit]);
    }
    for (Instruction& instruction : bucket_reductions(bucket)) {
      insertions.emplace_back(after, std::move(instruction));
    }
  }
  std::vector<Instruction> merged;
  std::size_t next = 0;
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    merged.push_back(std::move(program_.instructions[i]));
    for (; next < insertions.size() && insertions[next].first == i; ++next) {
      merged.push_back(std::move(insertions[next].second));
    }
  }
  program_.instructions = std::move(merged);
}

/// Model axes first (what is Partial on tp), then the data axes: all-reduce, or reduce-scatter when
/// the optimizer state is cut.
std::vector<Instruction> Lowering::bucket_reductions(const std::vector<std::size_t>& bucket) {
  std::vector<Instruction> result;
  Instruction over_tp;
  over_tp.name = "gradients of weights whole on tp";
  over_tp.phase = Phase::Window;
  CollectiveWork sum{CollectiveKind::AllReduce, ReduceOp::Sum, 0, {}, -1, {}, {}};
  for (const std::size_t u : bucket) {
    for (const UnitMember& member : state_.units[u].members) {
      if (member.sum_over_tp) {
        over_tp.inputs.push_back(
            unit_range(state_.units[u].gradients, member.offset, member.elements, DType::Float32));
        sum.dims.push_back(-1);
      }
    }
  }
  if (!over_tp.inputs.empty()) {
    over_tp.outputs = over_tp.inputs;
    over_tp.stream = 0;
    sum.group = group({sharded_.mesh.find("tp")}, 0);
    over_tp.work = sum;
    result.push_back(std::move(over_tp));
  }
  if (state_.data_group.size() > 1) {
    const bool scatter = state_.options.zero >= 1;
    const StreamId stream = communication_stream();
    Instruction reduce;
    reduce.name = "gradients " + state_.units[bucket.front()].name;
    reduce.phase = Phase::Window;
    reduce.stream = stream;
    CollectiveWork work{scatter ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce,
                        ReduceOp::Sum,
                        group(state_.data_axes, stream),
                        {},
                        -1,
                        {},
                        {}};
    for (const std::size_t u : bucket) {
      const Unit& unit = state_.units[u];
      const Operand whole = unit_range(unit.gradients, 0, unit.elements, DType::Float32);
      reduce.inputs.push_back(whole);
      reduce.outputs.push_back(
          scatter ? unit_range(unit.gradients, unit.slice.begin, unit.slice.size(), DType::Float32)
                  : whole);
      work.dims.push_back(scatter ? 0 : -1);
    }
    reduce.work = work;
    result.push_back(std::move(reduce));
  }
  return result;
}

void Lowering::emit_update() {
  program_.host.settings = {state_.settings, 0, DType::Float64, {kSettings}};
  program_.host.verdict = {state_.verdict, 0, DType::Float64, {kVerdict}};
  const Operand words{state_.norm_words, 0, DType::UInt64, {kernels::ExactSum::kWords}};
  Instruction squares;
  squares.name = "gradient squares";
  squares.phase = Phase::Window;
  squares.work = WindowWork{WindowKind::Squares};
  for (const OwnedPiece& piece : owned_pieces(state_)) {
    if (piece.unit->gradients >= 0) {
      squares.inputs.push_back(
          unit_range(piece.unit->gradients, piece.in_unit, piece.elements.size(), DType::Float32));
    }
  }
  squares.outputs = {words};
  emit(std::move(squares));
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
  Instruction finish;
  finish.name = "verdict";
  finish.phase = Phase::Window;
  finish.work = WindowWork{WindowKind::FinishNorm};
  finish.inputs = {words, program_.host.settings, program_.host.loss};
  finish.outputs = {program_.host.verdict};
  emit(std::move(finish));
  for (const std::vector<std::size_t>& bucket : update_order_) {
    for (const std::size_t unit : bucket) {
      emit_optimizer(state_.units[unit]);
    }
    if (state_.options.zero >= 1 && state_.data_group.size() > 1) {
      emit_parameter_gather(bucket);
    }
  }
}

/// Every range of the unit that this rank updates: its slice under ZeRO, else all of it.
void Lowering::emit_optimizer(const Unit& unit) {
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
  instruction.inputs = {program_.host.settings, program_.host.verdict};
  for (const UnitMember& member : unit.members) {
    const std::int64_t begin = std::max(mine.begin, member.offset);
    const std::int64_t count = std::min(mine.end, member.offset + member.elements) - begin;
    if (count <= 0) {
      continue;
    }
    instruction.inputs.push_back(unit_range(unit.gradients, begin, count, DType::Float32));
    const std::int64_t in_state = begin - mine.begin;
    instruction.outputs.push_back(work.rounded
                                      ? unit_range(unit.master, in_state, count, DType::Float32)
                                      : unit_range(unit.weights, begin, count, DType::Float32));
    for (const BufferId moment : unit.moments) {
      instruction.outputs.push_back(unit_range(moment, in_state, count, DType::Float32));
    }
    if (work.rounded) {
      instruction.outputs.push_back(unit_range(unit.weights, begin, count, DType::BFloat16));
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

void Lowering::emit_parameter_gather(const std::vector<std::size_t>& bucket) {
  const StreamId stream = communication_stream();
  Instruction gather;
  gather.name = "weights " + state_.units[bucket.front()].name;
  gather.phase = Phase::Window;
  gather.stream = stream;
  CollectiveWork work{
      CollectiveKind::AllGather, ReduceOp::Sum, group(state_.data_axes, stream), {}, -1, {}, {}};
  for (const std::size_t u : bucket) {
    const Unit& unit = state_.units[u];
    gather.inputs.push_back(
        unit_range(unit.weights, unit.slice.begin, unit.slice.size(), state_.options.precision));
    gather.outputs.push_back(unit_range(unit.weights, 0, unit.elements, state_.options.precision));
    work.dims.push_back(0);
  }
  gather.work = work;
  emit(std::move(gather));
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
  lowering.emit_count();
  for (int m = 0; m < options.micro_batches; ++m) {
    lowering.emit_micro_batch(m);
  }
  lowering.insert_gradient_reductions();
  lowering.emit_loss_reduction();
  lowering.emit_update();
  return lowering.finish("train");
}

Program lower_evaluation(const ModelGraph& model, const ShardedGraph& sharded,
                         const StatePlan& state, int rank, const LowerOptions& options) {
  Lowering lowering(model, sharded, state, rank, options);
  lowering.emit_count();
  lowering.emit_micro_batch(0);
  lowering.emit_loss_reduction();
  return lowering.finish("evaluate");
}

GenerationProgram lower_generation(const ModelGraph& model, const ShardedGraph& sharded,
                                   const StatePlan& state, int rank, const LowerOptions& options) {
  Lowering lowering(model, sharded, state, rank, options);
  const Operand logits = lowering.emit_until_logits();
  return {lowering.finish("generate"), logits};
}

}  // namespace sw
