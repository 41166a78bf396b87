#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "sharding/sharding.hpp"

namespace sw {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Placements that a layout demands of a value, per axis; empty where it is free.
using Pin = std::vector<std::optional<Placement>>;

class Propagation {
 public:
  Propagation(const ModelGraph& model, const Mesh& mesh, const ShardingOptions& options)
      : graph_(model.graph), options_(options), axes_(mesh.axes().size()) {
    result_.mesh = mesh;
    copies_of_.resize(graph_.values().size());
    result_.chosen.resize(graph_.ops().size());
    for (const Op& op : graph_.ops()) {
      if (op.definition->name == "attention") {
        attended_.insert(op.outputs.front());
      }
      if (const int chosen = op.definition->integer_output; chosen >= 0) {
        choice_of_layer_[op.layer] = op.outputs.at(static_cast<std::size_t>(chosen));
      }
    }
  }

  ShardedGraph run() {
    for (const ValueId id : graph_.parameters()) {
      result_.parameters.push_back(add_copy(id, parameter_sharding(graph_.value(id), result_.mesh),
                                            Direction::Forward, false));
    }
    for (OpId id = 0; id < static_cast<OpId>(graph_.ops().size()); ++id) {
      place(id);
    }
    for (const ParameterGradient& gradient : graph_.parameter_gradients) {
      result_.gradients.push_back({gradient.parameter, contributions(gradient)});
    }
    return std::move(result_);
  }

 private:
  const Copy& copy(CopyId id) const { return result_.copies[static_cast<std::size_t>(id)]; }
  int axis_size(std::size_t axis) const { return result_.mesh.axes()[axis].size; }
  const std::string& axis_name(std::size_t axis) const { return result_.mesh.axes()[axis].name; }

  CopyId add_copy(ValueId value, Sharding sharding, Direction direction, bool gathered) {
    result_.copies.push_back({value, std::move(sharding), direction, gathered});
    const auto id = static_cast<CopyId>(result_.copies.size()) - 1;
    copies_of_[static_cast<std::size_t>(value)].push_back(id);
    return id;
  }

  /// The residual stream is pinned, and its gradient like it; what comes out of attention goes back
  /// to the sequence on cp; the rest is free.
  Pin pin(ValueId id) const {
    const Value& value = graph_.value(id);
    const Value& shape_giver = value.gradient_of >= 0 ? graph_.value(value.gradient_of) : value;
    Pin result(axes_);
    if (!shape_giver.residual) {
      for (const int axis : result_.mesh.parts("cp")) {
        if (attended_.contains(id)) {
          result[static_cast<std::size_t>(axis)] = shard(1);
        }
      }
      return result;
    }
    for (std::size_t i = 0; i < axes_; ++i) {
      if (result_.mesh.is_part(i, "dp")) {
        result[i] = shard(0);
      } else if (result_.mesh.is_part(i, "cp")) {
        result[i] = shard(1);
      } else if (axis_name(i) == "pp") {
        result[i] = replicate();
      } else {
        result[i] = options_.sequence_parallel ? shard(1) : replicate();
      }
    }
    return result;
  }

  /// Gathered copies and Partial ones are not kept from forward to backward: the shard is, and the
  /// backward gathers again.
  bool visible(const Copy& candidate, Direction direction) const {
    if (direction == Direction::Forward || candidate.made_in == Direction::Backward ||
        graph_.value(candidate.value).kind != ValueKind::Activation) {
      return true;
    }
    const bool partial = std::any_of(candidate.sharding.begin(), candidate.sharding.end(),
                                     [](Placement placement) { return placement.is_partial(); });
    return !partial && (options_.keep_gathered || !candidate.gathered);
  }

  std::vector<CopyId> visible_copies(ValueId value, Direction direction) const {
    std::vector<CopyId> result;
    for (const CopyId id : copies_of_[static_cast<std::size_t>(value)]) {
      if (visible(copy(id), direction)) {
        result.push_back(id);
      }
    }
    return result;
  }

  double gathered_bytes(ValueId id, Sharding sharding, std::size_t axis) const {
    sharding[axis] = replicate();
    const Value& value = graph_.value(id);
    return static_cast<double>(largest_local_elements(value.shape, sharding, result_.mesh) *
                               size_of(value.dtype));
  }

  // --- choosing a signature -------------------------------------------------------------------

  bool fits(const Op& op, const Signature& signature, std::size_t axis) const {
    const auto ok = [&](ValueId id, Placement placement) {
      if (!placement.is_shard()) {
        return !placement.is_routed() || result_.mesh.axes()[axis].experts;
      }
      const std::int64_t size = graph_.value(id).shape.at(static_cast<std::size_t>(placement.dim));
      return size >= axis_size(axis) && (!signature.divides || size % axis_size(axis) == 0);
    };
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!ok(op.inputs[i], signature.inputs[i])) {
        return false;
      }
    }
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (!ok(op.outputs[i], signature.outputs[i])) {
        return false;
      }
    }
    return true;
  }

  /// A shard may be used only if some input is cut on this axis already, or the output's pin asks
  /// for it.
  bool spontaneous(const Op& op, const Signature& signature, std::size_t axis) const {
    const auto is_shard = [](Placement placement) { return placement.is_shard(); };
    if (std::none_of(signature.inputs.begin(), signature.inputs.end(), is_shard) &&
        std::none_of(signature.outputs.begin(), signature.outputs.end(), is_shard)) {
      return false;
    }
    bool only_inputs = true;
    for (const ValueId input : op.inputs) {
      const ValueKind kind = graph_.value(input).kind;
      only_inputs = only_inputs && kind == ValueKind::Input;
      if (kind == ValueKind::Input) {
        continue;
      }
      for (const CopyId id : visible_copies(input, op.direction)) {
        const Placement held = copy(id).sharding[axis];
        if (held.is_shard() || held.is_routed()) {
          return false;
        }
      }
    }
    for (const ValueId output : op.outputs) {
      const auto wanted = pin(output)[axis];
      if (wanted.has_value() && wanted->is_shard()) {
        return false;
      }
    }
    return !only_inputs;
  }

  /// On cp attention sees the whole sequence the way the layout says, and nowhere else that way.
  bool breaks_attention_pin(const Op& op, const Signature& signature, std::size_t axis) const {
    if (op.definition->name != "attention") {
      return false;
    }
    if (!result_.mesh.is_part(axis, "cp")) {
      return signature.ring;
    }
    if (options_.context == ContextAlgorithm::AllToAll) {  // queries, keys and values by heads
      return signature.inputs[0] != shard(2) || signature.inputs[1] != shard(2);
    }
    return signature.outputs.front() != shard(1) ||
           signature.ring != (options_.context == ContextAlgorithm::Ring);
  }

  /// Where tp cuts the sequence, tokens must be gathered before each is copied to the slots of its
  /// experts: one row of a token travels, and not one per expert. True if this would copy first.
  bool copies_before_gathering(const Op& op, const Signature& signature, std::size_t axis) const {
    return op.definition->name == "dispatch" && op.direction == Direction::Forward &&
           axis_name(axis) == "tp" && signature.outputs.front().is_shard();
  }

  struct Cost {
    double bytes = 0;
    int changes = 0;
    int not_replicate = 0;
    auto key(int order) const { return std::tuple(bytes, changes, not_replicate, order); }
  };

  Cost cost(const Op& op, const Signature& signature, std::size_t axis) const {
    Cost result;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const ValueId id = op.inputs[i];
      const Placement wanted = signature.inputs[i];
      result.not_replicate |= wanted.is_replicate() ? 0 : 1;
      if (graph_.value(id).kind == ValueKind::Input) {
        continue;
      }
      double best = kInfinity;
      bool there = false;
      for (const CopyId from : visible_copies(id, op.direction)) {
        const Placement held = copy(from).sharding[axis];
        if (graph_.value(id).kind == ValueKind::Parameter && held != wanted) {
          continue;  // weights do not move
        }
        there = there || held == wanted;
        best = std::min(best, move_bytes(held, wanted, axis_size(axis),
                                         gathered_bytes(id, copy(from).sharding, axis)));
      }
      result.bytes += best;
      result.changes += best > 0 || !there ? 1 : 0;
    }
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      const Placement made = signature.outputs[i];
      result.not_replicate |= made.is_replicate() ? 0 : 1;
      const Pin wanted = pin(op.outputs[i]);
      if (wanted[axis].has_value()) {
        Sharding at(axes_);
        for (std::size_t j = 0; j < axes_; ++j) {
          at[j] = wanted[j].value_or(replicate());
        }
        result.bytes += move_bytes(made, *wanted[axis], axis_size(axis),
                                   gathered_bytes(op.outputs[i], at, axis));
        result.changes += made == *wanted[axis] ? 0 : 1;
      }
    }
    return result;
  }

  Signature choose(OpId id, std::size_t axis) const {
    const Op& op = graph_.op(id);
    const Signature* forward =
        op.forward >= 0 ? &result_.chosen[static_cast<std::size_t>(op.forward)][axis] : nullptr;
    std::optional<Signature> best;
    std::tuple<double, int, int, int> best_key{kInfinity, 0, 0, 0};
    int order = 0;
    for (const Signature& candidate : signatures(graph_, op, forward)) {
      ++order;
      if (!fits(op, candidate, axis) || breaks_attention_pin(op, candidate, axis) ||
          copies_before_gathering(op, candidate, axis) ||
          (forward == nullptr && spontaneous(op, candidate, axis))) {
        continue;
      }
      const auto key = cost(op, candidate, axis).key(order);
      if (key < best_key) {
        best_key = key;
        best = candidate;
      }
    }
    SW_CHECK(best.has_value(), "{}: no placement on axis {} fits", op.name, axis_name(axis));
    return *best;
  }

  // --- placing an op --------------------------------------------------------------------------

  void place(OpId id) {
    const Op& op = graph_.op(id);
    layer_ = op.layer;
    std::vector<Signature>& chosen = result_.chosen[static_cast<std::size_t>(id)];
    for (std::size_t axis = 0; axis < axes_; ++axis) {
      chosen.push_back(choose(id, axis));
    }
    const auto sharding_of = [&](auto member, std::size_t index) {
      Sharding sharding(axes_);
      for (std::size_t axis = 0; axis < axes_; ++axis) {
        sharding[axis] = (chosen[axis].*member)[index];
      }
      return sharding;
    };
    ShardedStep step;
    step.op = id;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      step.inputs.push_back(get(op.inputs[i], sharding_of(&Signature::inputs, i), op.direction));
    }
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      step.outputs.push_back(
          add_copy(op.outputs[i], sharding_of(&Signature::outputs, i), op.direction, false));
    }
    result_.steps.push_back(step);
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      move_to_pin(op.outputs[i], step.outputs[i], op.direction);
    }
  }

  void move_to_pin(ValueId value, CopyId made, Direction direction) {
    const Pin wanted = pin(value);
    Sharding target = copy(made).sharding;
    for (std::size_t axis = 0; axis < axes_; ++axis) {
      target[axis] = wanted[axis].value_or(target[axis]);
    }
    (void)get(value, target, direction);
  }

  /// The copy of `value` in `target`, moved there from the nearest visible copy if need be.
  CopyId get(ValueId value, const Sharding& target, Direction direction) {
    for (const CopyId id : visible_copies(value, direction)) {
      if (copy(id).sharding == target) {
        return id;
      }
    }
    if (graph_.value(value).kind == ValueKind::Input) {
      ShardedStep load;
      load.kind = ShardedStep::Kind::Load;
      load.to = add_copy(value, target, Direction::Forward, false);
      result_.steps.push_back(load);
      return load.to;
    }
    const auto [from, moves] = nearest(value, target, direction);
    CopyId current = from;
    for (const Move& move : moves) {
      const CopyId choice = moves_slots(move) ? routed_choice(value) : -1;
      current = make_move(value, current, move, choice, direction);
    }
    return current;
  }

  static bool moves_slots(const Move& move) { return move.from.is_routed() || move.to.is_routed(); }

  /// Which expert each slot of the layer chose, there where the slots go; made now if this is the
  /// first that goes there. -1 for the choice itself.
  CopyId routed_choice(ValueId value) {
    const ValueId choice = choice_of_layer_.at(layer_);
    if (value == choice) {
      return -1;
    }
    Sharding target = copy(copies_of_[static_cast<std::size_t>(choice)].front()).sharding;
    for (std::size_t axis = 0; axis < axes_; ++axis) {
      if (result_.mesh.axes()[axis].experts) {
        target[axis] = routed(target[axis].dim);
      } else if (axis_name(axis) == "tp") {
        target[axis] = replicate();  // tokens are gathered before they are copied to slots
      }
    }
    return get(choice, target, Direction::Forward);
  }

  std::pair<CopyId, std::vector<Move>> nearest(ValueId value, const Sharding& target,
                                               Direction direction) const {
    std::pair<double, std::size_t> best{kInfinity, 0};
    std::pair<CopyId, std::vector<Move>> result{-1, {}};
    for (const CopyId id : visible_copies(value, direction)) {
      const auto moves = path(copy(id).sharding, target, result_.mesh);
      if (!moves.has_value()) {
        continue;
      }
      const Value& of = graph_.value(value);
      const std::pair key{path_bytes(*moves, of.shape, size_of(of.dtype), result_.mesh),
                          moves->size()};
      if (key < best) {
        best = key;
        result = {id, *moves};
      }
    }
    SW_CHECK(result.first >= 0, "{}: no way to {}", graph_.value(value).name, to_text(target));
    return result;
  }

  CopyId make_move(ValueId value, CopyId from, const Move& move, CopyId choice,
                   Direction direction) {
    for (const CopyId id : visible_copies(value, direction)) {
      if (copy(id).sharding == move.after) {
        return id;
      }
    }
    const bool gathers = move.collective == CollectiveKind::AllGather;
    const bool keeps = !move.collective.has_value() && copy(from).gathered;
    ShardedStep step;
    step.kind = ShardedStep::Kind::Move;
    step.from = from;
    step.move = move;
    step.choice = choice;
    step.to = add_copy(value, move.after, direction, gathers || keeps);
    result_.steps.push_back(step);
    return step.to;
  }

  /// Contributions to a parameter's gradient keep their raw sharding; if they differ, each is
  /// brought to the parameter's own on the axes where they do (model axes only).
  std::vector<CopyId> contributions(const ParameterGradient& gradient) {
    std::vector<CopyId> result;
    for (const ValueId value : gradient.contributions) {
      result.push_back(copies_of_[static_cast<std::size_t>(value)].front());
    }
    Sharding common = copy(result.front()).sharding;
    const Sharding own = parameter_sharding(graph_.value(gradient.parameter), result_.mesh);
    for (const CopyId id : result) {
      for (std::size_t axis = 0; axis < axes_; ++axis) {
        if (copy(id).sharding[axis] != common[axis]) {
          common[axis] = own[axis];
        }
      }
    }
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = get(gradient.contributions[i], common, Direction::Backward);
    }
    return result;
  }

  const Graph& graph_;
  ShardingOptions options_;
  std::size_t axes_;
  std::set<ValueId> attended_;
  std::map<int, ValueId> choice_of_layer_;  ///< by experts
  int layer_ = -1;                          ///< of the op being placed
  ShardedGraph result_;
  std::vector<std::vector<CopyId>> copies_of_;
};

}  // namespace

ShardedGraph propagate(const ModelGraph& model, const Mesh& mesh, const ShardingOptions& options) {
  return Propagation(model, mesh, options).run();
}

}  // namespace sw
