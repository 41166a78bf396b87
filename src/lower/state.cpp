#include "lower/state.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"

namespace sw {
namespace {

class Planner {
 public:
  Planner(const ModelGraph& model, const ShardedGraph& sharded, int rank,
          const StateOptions& options)
      : model_(model),
        sharded_(sharded),
        coordinates_(sharded.mesh.coordinates(rank)),
        rank_(rank),
        tp_(sharded.mesh.find("tp")) {
    plan_.options = options;
    if (const int pp = sharded.mesh.find("pp"); pp >= 0) {
      stage_ = coordinates_[static_cast<std::size_t>(pp)];
      stage_ranks_ = sharded.mesh.group(rank, {pp});
    }
    const std::vector<Mesh::Axis>& axes = sharded.mesh.axes();
    std::vector<int> same_experts;
    for (int axis = 0; axis < static_cast<int>(axes.size()); ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      if (sharded.mesh.is_part(at, "dp") || sharded.mesh.is_part(at, "cp")) {
        plan_.data_axes.push_back(axis);
        if (!axes[at].experts) {
          same_experts.push_back(axis);
        }
      }
    }
    plan_.groups.push_back(data_group(plan_.data_axes));
    if (same_experts != plan_.data_axes) {
      plan_.groups.push_back(data_group(same_experts));
    }
    lane_ = sharded.mesh.world() > 1 ? Lane::Window : Lane::Private;
  }

  StatePlan run() {
    make_scalars();
    group_into_units();
    for (Unit& unit : plan_.units) {
      lay_out(unit);
    }
    return std::move(plan_);
  }

 private:
  const Graph& graph() const { return model_.graph; }

  /// The axes of a zero group: the inner ones of dp x cp.
  bool in_zero_group(int axis) const {
    const auto from = std::find(plan_.data_axes.begin(), plan_.data_axes.end(), axis);
    const int ranks = sharded_.mesh.size({from, plan_.data_axes.end()});
    return plan_.options.zero_group == 0 || ranks <= plan_.options.zero_group;
  }

  DataGroup data_group(const std::vector<int>& axes) const {
    DataGroup group;
    for (const int axis : axes) {
      (in_zero_group(axis) ? group.shard : group.replicas).push_back(axis);
    }
    group.slices = sharded_.mesh.size(group.shard);
    group.place = sharded_.mesh.place(rank_, group.shard);
    group.first = sharded_.mesh.place(rank_, group.replicas) == 0;
    return group;
  }

  BufferId add(std::string name, Category category, Lane lane, std::int64_t bytes) {
    plan_.buffers.push_back({std::move(name), lane, category, true, bytes, -1});
    return static_cast<BufferId>(plan_.buffers.size()) - 1;
  }

  void make_scalars() {
    const auto scalar = [&](const char* name, Lane lane, std::int64_t bytes) {
      return add(name, Category::Workspace, lane, bytes);
    };
    const std::int64_t updates = plan_.options.updates;
    plan_.scalars_count = scalar("valid_count", lane_, updates * 8);
    plan_.count = scalar("count", Lane::Private, updates * 4);
    make_sums();
    make_router_bias();
    plan_.dropout_key = scalar("dropout_key", Lane::Private, 16);
    if (plan_.options.train) {
      plan_.norm_words = scalar("norm_words", lane_, updates * 8 * kernels::ExactSum::kWords);
      plan_.settings = scalar("settings", Lane::Private, updates * 8 * kSettings);
      plan_.verdict = scalar("verdict", Lane::Private, updates * 8 * kVerdict);
    }
  }

  void make_sums() {
    for (const Value& value : graph().values()) {
      if (value.sum.has_value()) {
        Operand& sum = plan_.sums[*value.sum];
        const std::int64_t rows = sum.shape.empty() ? 0 : sum.shape.front();
        sum = {-1, 0, value.dtype, value.shape};
        if (*value.sum == WindowSum::Loss) {
          sum.shape = plan_.options.updates == 1 ? Shape{} : Shape{plan_.options.updates};
        } else {
          sum.shape.insert(sum.shape.begin(), std::max(rows, value.sum_row + 1));
        }
      }
    }
    for (auto& [sum, operand] : plan_.sums) {
      operand.buffer = add(kWindowSums[static_cast<std::size_t>(sum)], Category::Workspace, lane_,
                           elements(operand.shape) * size_of(operand.dtype));
    }
  }

  void make_router_bias() {
    const std::vector<const Value*> biases = router_biases(graph());
    if (!biases.empty()) {
      const Shape shape = {std::ssize(biases), biases.front()->shape.front()};
      const BufferId buffer =
          add("router bias", Category::Parameters, Lane::Private, elements(shape) * 4);
      plan_.router_bias = {buffer, 0, DType::Float32, shape};
    }
  }

  /// The sharding of a parameter's raw gradient; empty when it has none.
  const Sharding* raw_gradient(ValueId parameter) const {
    for (const ShardedGradient& gradient : sharded_.gradients) {
      if (gradient.parameter == parameter) {
        return &sharded_.copies[static_cast<std::size_t>(gradient.contributions.front())].sharding;
      }
    }
    return nullptr;
  }

  /// Weights of experts that ep cuts: fewer ranks have them.
  bool of_experts(const Value& parameter) const {
    return plan_.groups.size() > 1 && parameter.letters.find('e') != std::string::npos;
  }

  /// A layer's weights that tensor parallelism can cut share a unit, or two if the layer's experts
  /// lie on ranks of their own; the embedding and the head have their own; what cannot be cut is
  /// one small unit per stage, so that no layer's reduction waits for it.
  std::string unit_of(const Value& parameter, const Sharding& own) const {
    std::string own_unit =
        parameter.layer >= 0 ? fmt::format("layers.{}", parameter.layer) : parameter.name;
    if (of_experts(parameter)) {
      own_unit += ".experts";
    }
    if (parameter.frozen) {
      return own_unit + ".frozen";
    }
    const bool can_cut = parameter.letters.find_first_of("hgfv") != std::string::npos;
    const bool replicated = tp_ >= 0 && own[static_cast<std::size_t>(tp_)].is_replicate();
    if (!can_cut || replicated) {
      return "small";
    }
    return own_unit;
  }

  void group_into_units() {
    std::map<std::string, std::size_t> index;
    std::size_t order = 0;
    for (const ValueId id : graph().parameters()) {
      const std::vector<int>& homes = plan_.options.homes.at(order++);
      if (std::find(homes.begin(), homes.end(), stage_) == homes.end()) {
        continue;
      }
      const Value& parameter = graph().value(id);
      const Sharding own = parameter_sharding(parameter, sharded_.mesh);
      const std::string name = unit_of(parameter, own);
      const auto [slot, added] = index.try_emplace(name, plan_.units.size());
      if (added) {
        Unit unit;
        unit.name = name;
        unit.group = of_experts(parameter) ? 1 : 0;
        unit.frozen = parameter.frozen;
        plan_.units.push_back(unit);
      }
      UnitMember member;
      member.parameter = id;
      member.order = order - 1;
      member.box = local_box(parameter.shape, own, sharded_.mesh, coordinates_);
      member.elements = elements(shape_of(member.box));
      const Sharding* raw = raw_gradient(id);
      const auto tp = static_cast<std::size_t>(tp_);
      member.sum_over_tp = tp_ >= 0 && raw != nullptr && (*raw)[tp].is_partial();
      member.counted_here = homes.front() == stage_ &&
                            plan_.groups[of_experts(parameter) ? 1 : 0].first &&
                            (tp_ < 0 || !own[tp].is_replicate() || coordinates_[tp] == 0);
      if (homes.size() > 1) {
        std::vector<int>& replicas = plan_.units[slot->second].replicas;
        SW_CHECK(replicas.empty() && added, "{}: a tied weight is a unit of its own",
                 parameter.name);
        for (const int home : homes) {
          replicas.push_back(stage_ranks_.at(static_cast<std::size_t>(home)));
        }
      }
      plan_.units[slot->second].members.push_back(member);
    }
  }

  void lay_out(Unit& unit) {
    const DataGroup& group = plan_.group(unit);
    const std::int64_t n = group.slices;
    std::int64_t used = 0;
    for (UnitMember& member : unit.members) {
      member.offset = used;
      used += round_up(member.elements, kUnitBlock);
    }
    unit.elements = round_up(used, n * kUnitBlock);
    const std::int64_t part = unit.elements / n;
    unit.slice = {group.place * part, (group.place + 1) * part};
    const StateOptions& options = plan_.options;
    const bool gathered = options.zero >= 1 && n > 1;
    const bool on_host = options.offload == Offload::Parameters;
    unit.weights = add(unit.name + ".weights", Category::Parameters,
                       on_host    ? Lane::Host
                       : gathered ? lane_
                                  : Lane::Private,
                       plan_.weight_range(unit).size() * size_of(options.precision));
    if (unit.frozen || !options.train) {
      return;
    }
    unit.gradients = add(unit.name + ".gradients", Category::Gradients, lane_,
                         plan_.gradient_range(unit).size() * size_of(options.gradient_precision));
    const std::int64_t updated = plan_.optimizer_range(unit).size();
    const Lane lane = options.offload == Offload::None ? Lane::Private : Lane::Host;
    const bool halves = options.precision != DType::Float32;
    if (halves || options.offload == Offload::Optimizer) {
      unit.master = add(unit.name + ".master", Category::Optimizer, lane, updated * 4);
    }
    for (int i = 0; i < options.moments; ++i) {
      unit.moments.push_back(
          add(fmt::format("{}.moment{}", unit.name, i), Category::Optimizer, lane, updated * 4));
    }
    if (options.offload != Offload::None) {
      unit.host_gradients = add(unit.name + ".gradients on the host", Category::Gradients, lane,
                                updated * size_of(options.gradient_precision));
    }
    if (halves && options.offload == Offload::Optimizer) {
      unit.rounded = add(unit.name + ".weights on the host", Category::Parameters, lane,
                         updated * size_of(options.precision));
    }
  }

  const ModelGraph& model_;
  const ShardedGraph& sharded_;
  std::vector<int> coordinates_;
  int rank_;
  int tp_;
  int stage_ = 0;
  std::vector<int> stage_ranks_;  ///< this rank's peers on all stages
  Lane lane_ = Lane::Private;
  StatePlan plan_;
};

}  // namespace

Range StatePlan::kept(const Unit& unit, int cut_from_level) const {
  return options.zero >= cut_from_level ? unit.slice : Range{0, unit.elements};
}

Operand StatePlan::router_bias_of(const Value& input) const {
  return {router_bias.buffer, input.bias_row * elements(input.shape) * 4, DType::Float32,
          input.shape};
}

Operand StatePlan::weights(const Unit& unit, const Range& elements) const {
  const DType dtype = options.precision;
  return {unit.weights,
          (elements.begin - weight_range(unit).begin) * size_of(dtype),
          dtype,
          {elements.size()}};
}

Operand StatePlan::gradients(const Unit& unit, const Range& elements) const {
  const DType dtype = options.gradient_precision;
  return {unit.gradients,
          (elements.begin - gradient_range(unit).begin) * size_of(dtype),
          dtype,
          {elements.size()}};
}

Operand StatePlan::in_optimizer_range(const Unit& unit, BufferId buffer, DType dtype,
                                      const Range& elements) const {
  return {buffer,
          (elements.begin - optimizer_range(unit).begin) * size_of(dtype),
          dtype,
          {elements.size()}};
}

Operand StatePlan::updating_gradients(const Unit& unit, const Range& elements) const {
  return unit.host_gradients < 0
             ? gradients(unit, elements)
             : in_optimizer_range(unit, unit.host_gradients, options.gradient_precision, elements);
}

Operand StatePlan::master(const Unit& unit, const Range& elements) const {
  return unit.master < 0 ? weights(unit, elements)
                         : in_optimizer_range(unit, unit.master, DType::Float32, elements);
}

Operand StatePlan::rounded(const Unit& unit, const Range& elements) const {
  return unit.rounded < 0 ? weights(unit, elements)
                          : in_optimizer_range(unit, unit.rounded, options.precision, elements);
}

Range part_in(const UnitMember& member, const Range& range) {
  const std::int64_t begin = std::max(range.begin, member.offset);
  return {begin, std::max(begin, std::min(range.end, member.offset + member.elements))};
}

std::vector<OwnedPiece> owned_pieces(const StatePlan& state) {
  std::vector<OwnedPiece> pieces;
  for (const Unit& unit : state.units) {
    for (const UnitMember& member : unit.members) {
      const Range mine = part_in(member, unit.slice);
      if (member.counted_here && mine.begin < mine.end) {
        pieces.push_back(
            {&unit, &member, {mine.begin - member.offset, mine.end - member.offset}, mine.begin});
      }
    }
  }
  return pieces;
}

StatePlan plan_state(const ModelGraph& model, const ShardedGraph& sharded, int rank,
                     const StateOptions& options) {
  return Planner(model, sharded, rank, options).run();
}

}  // namespace sw
