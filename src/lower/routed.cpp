#include <algorithm>

#include "base/error.hpp"
#include "lower/lowering.hpp"

/// Slots that travel to the experts they chose, and back. What goes where is known when it runs:
///
///     order       a layer's slots by expert, and how many each expert has
///     all_gather  of these counts over ep: the table of routes, from which each rank also knows
///                 which experts the slots that come to it chose
///     pack, all_to_all    rows of slots to the ranks of their experts
///     all_to_all, unpack  and back
namespace sw {

/// Room for routed slots: a dim in place of batch, sequence and slots of a token.
Shape Lowering::routed_shape(Shape even) const {
  even[0] = room_for(even[0] * even[1] * even[2]);
  even[1] = 1;
  even[2] = 1;
  return even;
}

bool Lowering::is_routed(CopyId id) const { return sw::is_routed(copy(id).sharding); }

std::int64_t Lowering::experts_of(ValueId choice) const {
  for (const Op& op : model_.graph.ops()) {
    if (std::find(op.outputs.begin(), op.outputs.end(), choice) != op.outputs.end()) {
      if (const auto* kept = std::get_if<kernels::CapacityParameters>(&op.parameters)) {
        return kept->experts;
      }
      return model_.graph.value(op.inputs.front()).shape.back();
    }
  }
  throw InternalError(fmt::format("nothing makes {}", model_.graph.value(choice).name));
}

/// Slots that nobody reads but those who send them are never made: they are packed from the tokens
/// that they are copies of, which are kept until then.
void Lowering::find_packed_tokens() {
  packed_from_tokens_.assign(sharded_.copies.size(), false);
  for (const ShardedStep& step : sharded_.steps) {
    if (step.kind == ShardedStep::Kind::Compute &&
        model_.graph.op(step.op).definition->name == "dispatch") {
      packed_from_tokens_[static_cast<std::size_t>(step.outputs.front())] =
          !sharded_.mesh.parts("ep").empty();
    }
  }
  for (const ShardedStep& step : sharded_.steps) {
    for (const CopyId id : copies_read(step)) {
      if (step.choice < 0 || id != step.from || !is_routed(step.to)) {
        packed_from_tokens_[static_cast<std::size_t>(id)] = false;
      }
    }
  }
}

void Lowering::emit_route(const ShardedStep& step) {
  SW_CHECK(is_routed(step.to), "{} does not come back from its experts", value(step.to).name);
  const std::string& name = value(step.to).name;
  const Phase phase = phase_of(step);
  const GroupId group = expert_group();
  const std::vector<int>& members = program_.groups[static_cast<std::size_t>(group)].members;
  const auto make = [&](const char* what, const Shape& shape, Lane lane) {
    return transient(fmt::format("{} {} mb{}", name, what, micro_batch_), DType::Int32, shape, lane,
                     Category::Activations);
  };
  Route& route = routes_[{micro_batch_, step.to}];
  const Operand arrived = make("routed", local_shape(step.to), Lane::Private);
  std::vector<Operand> made{arrived};
  if (round_.number == 0) {
    const Operand choice = operand(step.from);
    const std::int64_t experts = experts_of(copy(step.to).value);
    const Operand counts = make("counts", {1, experts}, Lane::Window);
    route.order = make("order", {elements(choice.shape)}, Lane::Private);
    route.table = make("table", {static_cast<std::int64_t>(members.size()), experts}, Lane::Window);
    route.rounds = make("rounds", {1}, Lane::Private);
    made.push_back(route.rounds);
    emit_work("order " + name, phase, SlotWork{SlotKind::Order, 0, 1}, {choice},
              {route.order, counts});
    emit_work("all_gather " + name, phase,
              CollectiveWork{CollectiveKind::AllGather, ReduceOp::Sum, group, {0}, -1, {}, {}},
              {counts}, {route.table});
  }
  const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
  emit_work("arrivals " + name, phase, SlotWork{SlotKind::Arrivals, static_cast<int>(place), 1},
            {route.table}, made);
  placed_[static_cast<std::size_t>(step.to)] = {arrived, false};
}

void Lowering::emit_routed_move(const ShardedStep& step) {
  SW_CHECK(step.move.axes == sharded_.mesh.parts("ep"), "{} travels over a part of ep",
           value(step.to).name);
  if (step.choice < 0) {
    emit_route(step);
    return;
  }
  const Operand packed = packed_slots(step);
  if (is_routed(step.to)) {
    emit_departure(step, packed);
  } else {
    emit_return(step, packed);
    emit_unpack(step, packed);
  }
}

/// Where a rank's own slots lie one after the other, by expert.
Operand Lowering::packed_slots(const ShardedStep& step) {
  const Shape shape = local_shape(step.from);
  const std::int64_t slots = elements(routes_.at({micro_batch_, step.choice}).order.shape);
  return transient(fmt::format("{} packed mb{}", value(step.to).name, micro_batch_),
                   operand(step.from).dtype, {slots, shape.size() > 3 ? shape[3] : 1}, Lane::Window,
                   Category::Communication);
}

void Lowering::emit_exchange_of_slots(const ShardedStep& step, Routing routing, const Operand& from,
                                      const Operand& to) {
  CollectiveWork work;
  work.kind = CollectiveKind::AllToAll;
  work.group = expert_group();
  work.dims = {-1};
  work.routing = routing;
  emit_work("all_to_all " + value(step.to).name, phase_of(step), work,
            {from, routes_.at({micro_batch_, step.choice}).table}, {to});
}

void Lowering::emit_departure(const ShardedStep& step, const Operand& packed) {
  const std::string& name = value(step.to).name;
  const Operand to =
      transient(fmt::format("{} {} mb{}", name, to_text(step.move.to), micro_batch_), packed.dtype,
                local_shape(step.to), Lane::Window, Category::Communication);
  const Operand& from = operand(step.from);
  const std::int64_t chosen = elements(packed.shape) / elements(from.shape);
  emit_work("pack " + name, phase_of(step), SlotWork{SlotKind::Pack, 0, chosen},
            {from, routes_.at({micro_batch_, step.choice}).order}, {packed});
  emit_exchange_of_slots(step, Routing::ToExperts, packed, to);
  placed_[static_cast<std::size_t>(step.to)] = {to, false};
}

/// Of the round's slots.
void Lowering::emit_return(const ShardedStep& step, const Operand& packed) {
  emit_exchange_of_slots(step, Routing::FromExperts, operand(step.from), packed);
}

void Lowering::emit_unpack(const ShardedStep& step, const Operand& packed) {
  const std::string& name = value(step.to).name;
  const Operand to = transient(fmt::format("{} {} mb{}", name, to_text(step.move.to), micro_batch_),
                               packed.dtype, local_shape(step.to),
                               lane_[static_cast<std::size_t>(step.to)], Category::Activations);
  emit_work("unpack " + name, phase_of(step), SlotWork{SlotKind::Unpack, 0, 1},
            {packed, routes_.at({micro_batch_, step.choice}).order}, {to});
  placed_[static_cast<std::size_t>(step.to)] = {to, false};
}

}  // namespace sw
