#include <algorithm>

#include "base/error.hpp"
#include "lower/lowering.hpp"

namespace sw {
namespace {

constexpr std::size_t kForever = static_cast<std::size_t>(-1);

}  // namespace

Lowering::Lowering(const ModelGraph& model, const ShardedGraph& sharded, const StatePlan& state,
                   int rank, const LowerOptions& options)
    : model_(model),
      sharded_(sharded),
      state_(state),
      options_(options),
      rank_(rank),
      coordinates_(sharded.mesh.coordinates(rank)),
      gradient_of_copy_(sharded.copies.size(), -1) {
  program_.rank = rank;
  program_.world = sharded.mesh.world();
  program_.buffers = state.buffers;
  const std::vector<ValueId> parameters = model.graph.parameters();
  for (std::size_t u = 0; u < state.units.size(); ++u) {
    for (std::size_t m = 0; m < state.units[u].members.size(); ++m) {
      member_of_[parameters.at(state.units[u].members[m].order)] = {u, m};
    }
  }
  for (std::size_t g = 0; g < sharded.gradients.size(); ++g) {
    for (const CopyId id : sharded.gradients[g].contributions) {
      gradient_of_copy_[static_cast<std::size_t>(id)] = static_cast<int>(g);
    }
  }
  program_.host.valid_count = {state.scalars_count, 0, DType::Int64, {updates()}};
  program_.host.count = {state.count, 0, DType::Float32,
                         updates() == 1 ? Shape{} : Shape{updates()}};
  if (model.dropout_key >= 0) {
    program_.host.dropout_key = {state.dropout_key, 0, DType::Int64, {2}};
  }
  find_sums();
  find_boundaries();
  find_packed_tokens();
  find_rounds();
  find_head();
  find_last_uses_and_lanes();
  make_links();
  make_ring();
}

Operand& Lowering::host_sum(WindowSum sum) {
  switch (sum) {
    case WindowSum::Loss:
      return program_.host.loss;
    case WindowSum::BalanceLoss:
      return program_.host.balance_loss;
    case WindowSum::ZLoss:
      return program_.host.z_loss;
    case WindowSum::ExpertLoad:
      return program_.host.expert_load;
  }
  throw InternalError("an unknown sum");
}

/// Where a window's sum takes it up: of the loss, in its update's row.
std::int64_t Lowering::row_of(const Value& summand) const {
  return summand.sum == WindowSum::Loss ? options_.update.update_of(micro_batch_) : summand.sum_row;
}

/// Those of this graph: an evaluation has fewer than the training whose State it shares.
void Lowering::find_sums() {
  for (CopyId id = 0; id < static_cast<CopyId>(sharded_.copies.size()); ++id) {
    if (value(id).sum.has_value()) {
      const WindowSum sum = *value(id).sum;
      host_sum(sum) = state_.sums.at(sum);
      if (sum == WindowSum::Loss && updates() == 1) {
        host_sum(sum).shape = {};  // an evaluation, where training has several updates a window
      }
      const auto [first, added] = sums_.try_emplace(sum, id);
      SW_CHECK(copy(id).sharding == copy(first->second).sharding, "{} and {} do not lie alike",
               value(id).name, value(first->second).name);
    }
  }
}

/// A copy that a collective touches lies in the window; the rest is private.
void Lowering::find_last_uses_and_lanes() {
  last_use_.assign(sharded_.copies.size(), 0);
  lane_.assign(sharded_.copies.size(), Lane::Private);
  for (std::size_t at = 0; at < sharded_.steps.size(); ++at) {
    const ShardedStep& step = sharded_.steps[at];
    const auto use = [&](CopyId id) { last_use_[static_cast<std::size_t>(id)] = at; };
    std::for_each(step.inputs.begin(), step.inputs.end(), use);
    std::for_each(step.outputs.begin(), step.outputs.end(), use);
    if (step.from >= 0) {
      use(step.from);
    }
    if (step.to >= 0) {
      use(step.to);
    }
    if (step.choice >= 0) {  // slots apart are packed on their way
      use(step.choice);
      for (const CopyId id : sources(step.from)) {
        use(id);
      }
      lane_[static_cast<std::size_t>(is_routed(step.to) ? step.to : step.from)] = Lane::Window;
    } else if (step.kind == ShardedStep::Kind::Move && step.move.collective.has_value() &&
               !is_routed(step.to)) {
      lane_[static_cast<std::size_t>(step.from)] = Lane::Window;
      lane_[static_cast<std::size_t>(step.to)] = Lane::Window;
    }
    if (!ring_axes(sharded_, step).empty()) {  // keys and values
      lane_[static_cast<std::size_t>(step.inputs[1])] = Lane::Window;
      lane_[static_cast<std::size_t>(step.inputs[2])] = Lane::Window;
    }
  }
  for (const ShardedGradient& gradient : sharded_.gradients) {
    for (const CopyId id : gradient.contributions) {
      last_use_[static_cast<std::size_t>(id)] = kForever;
    }
  }
  // Further rounds send again what the first has sent, and bring back after it.
  for (const ShardedStep& step : sharded_.steps) {
    if (most_rounds_ > 1 && step.choice >= 0) {
      for (const CopyId id : sources(step.from)) {
        last_use_[static_cast<std::size_t>(id)] = kForever;
        last_use_[static_cast<std::size_t>(own_copy(id, Phase::Backward))] = kForever;
      }
    }
  }
  // Where backwards are halved, gradients of weights come later than their place in the list says.
  for (const ShardedStep& step : sharded_.steps) {
    for (const CopyId id : copies_read(step)) {
      if (halves_backwards(options_.order) && only_for_weights(step)) {
        last_use_[static_cast<std::size_t>(id)] = kForever;
      }
    }
  }
  for (const Boundary& boundary : boundaries_) {
    for (const CopyId id : boundary.copies) {
      last_use_[static_cast<std::size_t>(id)] = kForever;
      lane_[static_cast<std::size_t>(id)] =
          crosses(boundary) ? Lane::Window : lane_[static_cast<std::size_t>(id)];
    }
  }
}

Shape Lowering::whole_shape(CopyId id) const {
  const Shape even = shape_of(copy_box(model_, sharded_, id, coordinates_));
  return is_routed(id) ? routed_shape(even) : even;
}

Shape Lowering::local_shape(CopyId id) const { return shape_of_part(id, whole_shape(id)); }

std::vector<Shape> Lowering::even_shapes(const std::vector<CopyId>& copies) const {
  std::vector<Shape> shapes;
  for (const CopyId id : copies) {
    shapes.push_back(shape_of_part(id, shape_of(copy_box(model_, sharded_, id, coordinates_))));
  }
  return shapes;
}

Shape Lowering::local_start(CopyId id) const {
  Shape start;
  for (const Range& range : copy_box(model_, sharded_, id, coordinates_)) {
    start.push_back(range.begin);
  }
  return start;
}

Operand Lowering::of_update(const Operand& all, int update, const Shape& shape) const {
  return {all.buffer, all.offset + update * elements(shape) * size_of(all.dtype), all.dtype, shape};
}

Operand Lowering::transient(const std::string& name, DType dtype, const Shape& shape, Lane lane,
                            Category category) {
  const Category kind = lane == Lane::Window ? Category::Communication : category;
  const std::int64_t bytes = std::max<std::int64_t>(elements(shape) * size_of(dtype), 1);
  program_.buffers.push_back({name, lane, kind, false, bytes, -1});
  return {static_cast<BufferId>(program_.buffers.size()) - 1, 0, dtype, shape};
}

Lowering::Placed Lowering::parameter_operand(CopyId id) const {
  const auto [unit, member] = member_of_.at(copy(id).value);
  const Unit& in = state_.units[unit];
  const DType dtype = state_.options.precision;
  const auto stashed = stashed_.find(used_version_);
  // Of an earlier version that is not there nothing reads this unit.
  const BufferId weights =
      stashed == stashed_.end() || stashed->second[unit] < 0 ? in.weights : stashed->second[unit];
  // As if the whole unit were there: gather_weights makes it so.
  return {{weights, in.members[member].offset * size_of(dtype), dtype, local_shape(id)}, true};
}

/// Where an output goes: into its gradient's accumulator, in place of an input that nobody needs
/// any more, or into a buffer of its own.
Operand Lowering::place_output(const ShardedStep& step, std::size_t index, std::size_t at) {
  const CopyId id = step.outputs[index];
  const DType dtype = copy_dtype(model_, sharded_, id);
  const Shape shape = local_shape(id);
  if (const int gradient = gradient_of_copy_[static_cast<std::size_t>(id)]; gradient >= 0) {
    const auto [unit, member] =
        member_of_.at(sharded_.gradients[static_cast<std::size_t>(gradient)].parameter);
    const Unit& in = state_.units[unit];
    // As if the whole unit were there: raw_gradients makes it so.
    const DType accumulator = state_.options.gradient_precision;
    return {in.gradients, in.members[member].offset * size_of(accumulator), accumulator, shape};
  }
  if (value(id).sum.has_value()) {
    return sum_rows(*value(id).sum, row_of(value(id)), 1);
  }
  const Operator& definition = *model_.graph.op(step.op).definition;
  if (index == 0 && definition.in_place >= 0) {
    const CopyId input = step.inputs[static_cast<std::size_t>(definition.in_place)];
    const Placed& there = placed_[static_cast<std::size_t>(input)];
    const bool free = !there.shared && last_use_[static_cast<std::size_t>(input)] == at;
    const bool fits =
        there.operand.shape == shape && size_of(there.operand.dtype) == size_of(dtype);
    const bool lane =
        lane_[static_cast<std::size_t>(id)] == Lane::Private ||
        program_.buffers[static_cast<std::size_t>(there.operand.buffer)].lane == Lane::Window;
    const bool once = std::count(step.inputs.begin(), step.inputs.end(), input) == 1;
    if (free && fits && lane && once) {
      Operand operand = there.operand;
      operand.dtype = dtype;
      return operand;
    }
  }
  return place_copy(id, fmt::format("{} mb{}", value(id).name, micro_batch_), dtype,
                    lane_[static_cast<std::size_t>(id)], Category::Activations);
}

}  // namespace sw
