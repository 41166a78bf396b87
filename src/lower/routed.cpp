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
///
/// A rank has room for all slots of its group: they may all choose its experts.
namespace sw {

/// Room for routed slots: a dim in place of batch, sequence and slots of a token.
Shape Lowering::routed_shape(Shape even) const {
  const int ranks = sharded_.mesh.size(sharded_.mesh.parts("ep"));
  even[0] *= even[1] * even[2] * ranks;
  even[1] = 1;
  even[2] = 1;
  return even;
}

bool Lowering::is_routed(CopyId id) const {
  const Sharding& sharding = copy(id).sharding;
  return std::any_of(sharding.begin(), sharding.end(),
                     [](Placement placement) { return placement.is_routed(); });
}

std::int64_t Lowering::experts_of(ValueId choice) const {
  for (const Op& op : model_.graph.ops()) {
    if (std::find(op.outputs.begin(), op.outputs.end(), choice) != op.outputs.end()) {
      return model_.graph.value(op.inputs.front()).shape.back();
    }
  }
  throw InternalError(fmt::format("nothing makes {}", model_.graph.value(choice).name));
}

void Lowering::emit_route(const ShardedStep& step) {
  const std::string& name = value(step.to).name;
  const Phase phase = phase_of(step);
  const Operand choice = operand(step.from);
  const GroupId group = expert_group();
  const auto ranks =
      static_cast<std::int64_t>(program_.groups[static_cast<std::size_t>(group)].members.size());
  const std::int64_t experts = experts_of(copy(step.to).value);
  const auto make = [&](const char* what, const Shape& shape, Lane lane) {
    return transient(fmt::format("{} {} mb{}", name, what, micro_batch_), DType::Int32, shape, lane,
                     Category::Activations);
  };
  const Operand counts = make("counts", {1, experts}, Lane::Window);
  Route& route = routes_[{micro_batch_, step.to}];
  route.order = make("order", {elements(choice.shape)}, Lane::Private);
  route.table = make("table", {ranks, experts}, Lane::Window);
  emit_work("order " + name, phase, SlotWork{SlotKind::Order, 0}, {choice}, {route.order, counts});
  emit_work("all_gather " + name, phase,
            CollectiveWork{CollectiveKind::AllGather, ReduceOp::Sum, group, {0}, -1, {}, {}},
            {counts}, {route.table});
  const Operand arrived = make("routed", local_shape(step.to), Lane::Private);
  const std::vector<int>& members = program_.groups[static_cast<std::size_t>(group)].members;
  const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
  emit_work("arrivals " + name, phase, SlotWork{SlotKind::Arrivals, static_cast<int>(place)},
            {route.table}, {arrived});
  placed_[static_cast<std::size_t>(step.to)] = {arrived, false};
}

void Lowering::emit_routed_move(const ShardedStep& step) {
  SW_CHECK(step.move.axes == sharded_.mesh.parts("ep"), "{} travels over a part of ep",
           value(step.to).name);
  if (step.choice < 0) {
    emit_route(step);
    return;
  }
  const std::string& name = value(step.to).name;
  const Phase phase = phase_of(step);
  const Route& route = routes_.at({micro_batch_, step.choice});
  const Operand from = operand(step.from);
  const Operand to = transient(fmt::format("{} {} mb{}", name, to_text(step.move.to), micro_batch_),
                               from.dtype, local_shape(step.to),
                               lane_[static_cast<std::size_t>(step.to)], Category::Activations);
  const bool leaves = is_routed(step.to);
  const Operand& apart = leaves ? from : to;  // where each rank has its own slots
  const std::int64_t slots = elements(route.order.shape);
  Operand packed =
      transient(fmt::format("{} packed mb{}", name, micro_batch_), from.dtype,
                {slots, elements(apart.shape) / slots}, Lane::Window, Category::Communication);
  CollectiveWork work;
  work.kind = CollectiveKind::AllToAll;
  work.group = expert_group();
  work.dims = {-1};
  work.routing = leaves ? Routing::ToExperts : Routing::FromExperts;
  if (leaves) {
    emit_work("pack " + name, phase, SlotWork{SlotKind::Pack, 0}, {from, route.order}, {packed});
    emit_work("all_to_all " + name, phase, work, {packed, route.table}, {to});
  } else {
    emit_work("all_to_all " + name, phase, work, {from, route.table}, {packed});
    emit_work("unpack " + name, phase, SlotWork{SlotKind::Unpack, 0}, {packed, route.order}, {to});
  }
  placed_[static_cast<std::size_t>(step.to)] = {to, false};
}

}  // namespace sw
