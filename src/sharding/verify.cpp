#include <algorithm>

#include "base/error.hpp"
#include "sharding/sharding.hpp"

namespace sw {
namespace {

class Verifier {
 public:
  Verifier(const ModelGraph& model, const ShardedGraph& sharded)
      : graph_(model.graph), sharded_(sharded) {}

  void run() const {
    for (const ShardedStep& step : sharded_.steps) {
      if (step.kind == ShardedStep::Kind::Compute) {
        check_compute(step);
      } else if (step.kind == ShardedStep::Kind::Move) {
        check_move(step);
      }
    }
    for (const ShardedGradient& gradient : sharded_.gradients) {
      check_gradient(gradient);
    }
  }

 private:
  const Copy& copy(CopyId id) const { return sharded_.copies.at(static_cast<std::size_t>(id)); }

  Signature signature_on(const ShardedStep& step, std::size_t axis) const {
    Signature signature;
    for (const CopyId id : step.inputs) {
      signature.inputs.push_back(copy(id).sharding.at(axis));
    }
    for (const CopyId id : step.outputs) {
      signature.outputs.push_back(copy(id).sharding.at(axis));
    }
    return signature;
  }

  void check_compute(const ShardedStep& step) const {
    const Op& op = graph_.op(step.op);
    for (std::size_t axis = 0; axis < sharded_.mesh.axes().size(); ++axis) {
      const Signature used = signature_on(step, axis);
      const std::vector<Signature> legal = signatures(graph_, op, nullptr);
      const bool found = std::any_of(legal.begin(), legal.end(), [&](const Signature& candidate) {
        return candidate.inputs == used.inputs && candidate.outputs == used.outputs;
      });
      SW_CHECK(found, "{}: its placements on axis {} are no signature of {}", op.name,
               sharded_.mesh.axes()[axis].name, op.definition->name);
      for (const Placement placement : used.outputs) {
        SW_CHECK(!placement.is_partial() || placement.op == ReduceOp::Sum ||
                     op.definition->name == "row_max",
                 "{}: only a row maximum may be Partial(max)", op.name);
      }
    }
    for (const CopyId id : step.inputs) {
      const Copy& input = copy(id);
      const bool partial = std::any_of(input.sharding.begin(), input.sharding.end(),
                                       [](Placement placement) { return placement.is_partial(); });
      SW_CHECK(
          !(partial && op.direction == Direction::Backward && input.made_in == Direction::Forward),
          "{}: {} is Partial and was kept for the backward", op.name,
          graph_.value(input.value).name);
    }
  }

  void check_move(const ShardedStep& step) const {
    const TableRow row = collective_between(step.move.from, step.move.to);
    SW_CHECK(row.exists && row.collective == step.move.collective,
             "{}: {} to {} is no row of the table", graph_.value(copy(step.from).value).name,
             to_text(step.move.from), to_text(step.move.to));
    if (is_routed(step.move.before) || is_routed(step.move.after)) {
      SW_CHECK(step.move.axes == sharded_.mesh.parts("ep"),
               "{}: its slots travel over a part of ep", graph_.value(copy(step.from).value).name);
    }
    SW_CHECK(graph_.value(copy(step.from).value).kind != ValueKind::Parameter, "{}: a weight moves",
             graph_.value(copy(step.from).value).name);
  }

  void check_gradient(const ShardedGradient& gradient) const {
    const Value& parameter = graph_.value(gradient.parameter);
    const Sharding own = parameter_sharding(parameter, sharded_.mesh);
    for (const CopyId id : gradient.contributions) {
      const Sharding& raw = copy(id).sharding;
      SW_CHECK(raw == copy(gradient.contributions.front()).sharding,
               "{}: contributions lie differently", parameter.name);
      for (std::size_t axis = 0; axis < own.size(); ++axis) {
        SW_CHECK(raw[axis] == own[axis] || raw[axis] == partial(),
                 "{}: its gradient is {} where the weight is {}", parameter.name, to_text(raw),
                 to_text(own));
      }
    }
  }

  const Graph& graph_;
  const ShardedGraph& sharded_;
};

}  // namespace

void verify(const ModelGraph& model, const ShardedGraph& sharded) {
  Verifier(model, sharded).run();
}

std::string collectives_text(const ModelGraph& model, const ShardedGraph& sharded, int layer) {
  std::string text;
  const std::vector<int> layers = layers_of_values(model.graph);
  for (const ShardedStep& step : sharded.steps) {
    if (step.kind != ShardedStep::Kind::Move || !step.move.collective.has_value()) {
      continue;
    }
    // A move belongs to the layer of the op that made the value.
    const Copy& copy = sharded.copies.at(static_cast<std::size_t>(step.to));
    if (layers[static_cast<std::size_t>(copy.value)] == layer) {
      text +=
          fmt::format("{} {} {} {}\n", copy.made_in == Direction::Forward ? "forward" : "backward",
                      to_text(*step.move.collective), sharded.mesh.group_name(step.move.axes),
                      model.graph.value(copy.value).name);
    }
  }
  return text;
}

}  // namespace sw
