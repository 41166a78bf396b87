#include <gtest/gtest.h>

#include "base/error.hpp"
#include "sharding/sharding.hpp"
#include "tests/sharding/reassemble.hpp"

namespace sw {
namespace {

/// Two layers that are experts and nothing else, written with the operators alone: B sequences of
/// S tokens, D = 12, E = 5 experts of F = 23, of which a token takes 2, and beside them one expert
/// of 9 that all tokens share, with a gate of its own.
class ExpertModel {
 public:
  ExpertModel(std::int64_t batch, std::int64_t sequence, bool normalize, bool balance = false,
              std::int64_t experts_of_layer = 5)
      : experts_(experts_of_layer) {
    Graph& g = model_.graph;
    const Shape rows = {batch, sequence};
    for (ValueId* input : {&model_.tokens, &model_.labels, &model_.positions, &model_.documents}) {
      *input = g.input("input", rows, DType::Int32);
    }
    model_.count = g.input("count", {}, DType::Float32);
    const ValueId table = weight("table", {31, kD}, "vd", -1);
    const ValueId head = weight("head", {31, kD}, "vd", -1);
    ValueId x =
        make("embedding", {model_.tokens, table}, "embedding", kernels::VocabularyParameters{});
    g.value(x).residual = true;
    for (int layer = 0; layer < 2; ++layer) {
      g.set_layer(layer);
      x = make("add", {x, experts(x, layer, normalize, balance)}, "residual");
      g.value(x).residual = true;
    }
    g.set_layer(-1);
    model_.logits = g.einsum("bsd,vd->bsv", x, head, "logits", DType::Float32);
    append_loss(model_);
    differentiate(model_);
  }
  [[nodiscard]] const ModelGraph& joint() const { return model_; }

 private:
  static constexpr std::int64_t kD = 12;
  const std::int64_t experts_;
  static constexpr std::int64_t kF = 23;
  static constexpr std::int64_t kShared = 9;
  static constexpr std::int64_t kChosen = 2;

  ValueId weight(const std::string& name, const Shape& shape, const std::string& letters,
                 int layer) {
    return model_.graph.parameter(name, shape, DType::Float32, letters, layer);
  }
  ValueId make(std::string_view op, std::vector<ValueId> inputs, const std::string& name,
               kernels::Parameters parameters = {}) {
    return model_.graph.make(op, std::move(inputs), name, DType::Float32, std::move(parameters));
  }
  ValueId einsum(const std::string& spec, ValueId a, ValueId b, const std::string& name) {
    return model_.graph.einsum(spec, a, b, name, DType::Float32);
  }

  /// The gates come before the last products, so that what is Partial of them under tp is small.
  ValueId experts(ValueId x, int layer, bool normalize, bool balance) {
    Graph& g = model_.graph;
    const std::string p = fmt::format("layers.{}.", layer);
    const ValueId y = make("rms_norm", {x, weight(p + "norm", {kD}, "d", layer)}, p + "norm",
                           kernels::NormParameters{});
    const ValueId logits = einsum(
        "bsd,ed->bse", y, weight(p + "router", {experts_, kD}, "rd", layer), p + "router_logits");
    const Op& route = g.op(g.apply("route", {logits}, p + "gate", DType::Float32,
                                   kernels::RouteParameters{kChosen, normalize}));
    const ValueId gate = route.outputs[0];
    const ValueId choice = route.outputs[1];
    const kernels::DispatchParameters slots{kChosen};
    if (balance) {
      const ValueId load = make("expert_load", {choice, model_.labels}, p + "load",
                                kernels::LoadParameters{experts_});
      make("balance_loss", {logits, load, model_.labels, model_.count}, p + "balance",
           kernels::TermParameters{0.1});
      make("z_loss", {logits, model_.labels, model_.count}, p + "z", kernels::TermParameters{0.2});
    }
    const ValueId xe = make("dispatch", {y}, p + "slots", slots);
    const auto product = [&](ValueId of, const char* name, const Shape& shape,
                             const std::string& letters) {
      return make("expert_product", {of, weight(p + name + ".w", shape, letters, layer), choice},
                  p + name);
    };
    const ValueId inner = make("swiglu",
                               {product(xe, "expert_gate", {experts_, kF, kD}, "efd"),
                                product(xe, "expert_up", {experts_, kF, kD}, "efd")},
                               p + "swiglu");
    const ValueId weighed = make("scale_rows", {inner, gate}, p + "weighed");
    const ValueId routed =
        make("combine", {product(weighed, "expert_down", {experts_, kD, kF}, "edf")}, p + "routed",
             slots);

    const ValueId shared_gate = make(
        "sigmoid",
        {einsum("bsd,od->bso", y, weight(p + "shared_gate", {1, kD}, "od", layer), p + "shared")},
        p + "shared_gate");
    const ValueId shared_inner =
        einsum("bsd,fd->bsf", y, weight(p + "shared_up", {kShared, kD}, "fd", layer), p + "up");
    const ValueId shared =
        einsum("bsf,df->bsd", make("scale_rows", {shared_inner, shared_gate}, p + "shared_weighed"),
               weight(p + "shared_down", {kD, kShared}, "df", layer), p + "down");
    return make("add", {routed, shared}, p + "mlp");
  }

  ModelGraph model_;
};

/// The loss and its terms.
double loss_of(const ModelGraph& model, const test::Whole& values) {
  double sum = values.at(model.loss).real.front();
  for (const Op& op : model.graph.ops()) {
    if (!op.definition->seed.empty()) {
      sum += values.at(op.outputs.front()).real.front();
    }
  }
  return sum;
}

// Central differences with step h are wrong by h^2 and by rounding, 1e-16 / h, of a loss of size 3:
// 1e-9 with h = 1e-6. No choice of an expert changes within the step.
TEST(Differentiate, GivesTheGradientOfTheLossAndItsTermsThroughExperts) {
  const ExpertModel whole(2, 6, true, true);
  const ModelGraph& model = whole.joint();
  test::Whole data = test::make_data(model, 5);
  const test::Whole values = test::run_whole(model, data);
  EXPECT_GT(loss_of(model, values), values.at(model.loss).real.front() + 0.1);
  constexpr double kStep = 1e-6;
  for (const ParameterGradient& gradient : model.graph.parameter_gradients) {
    std::vector<double>& weight = data.at(gradient.parameter).real;
    for (const std::size_t i : {std::size_t{0}, weight.size() / 3, weight.size() - 1}) {
      double expected = 0;
      for (const ValueId part : gradient.contributions) {
        expected += values.at(part).real[i];
      }
      const double at = weight[i];
      weight[i] = at + kStep;
      const double above = loss_of(model, test::run_whole(model, data));
      weight[i] = at - kStep;
      const double below = loss_of(model, test::run_whole(model, data));
      weight[i] = at;
      EXPECT_NEAR(expected, (above - below) / (2 * kStep), 1e-7)
          << model.graph.value(gradient.parameter).name << " " << i;
    }
  }
}

// 2e-13: as in sharding_test.cpp.
TEST(Reassemble, EveryValueOfExpertsEqualsTheUnshardedOne) {
  for (const bool normalize : {true, false}) {
    const ExpertModel whole(3, 12, normalize, !normalize);
    const ModelGraph& model = whole.joint();
    const test::Whole data = test::make_data(model, 11);
    const test::Whole expected = test::run_whole(model, data);
    for (const int dp : {1, 2, 3}) {
      for (const int cp : {1, 2, 3}) {
        for (const int tp : {1, 2, 4}) {
          for (const bool sequence_parallel : {false, true}) {
            SCOPED_TRACE(
                fmt::format("dp {} cp {} tp {} sequence {}", dp, cp, tp, sequence_parallel));
            const ShardedGraph sharded =
                propagate(model, Mesh({{"dp", dp}, {"cp", cp}, {"tp", tp}}), {sequence_parallel});
            verify(model, sharded);
            const test::Reassembled result = test::run_sharded(model, sharded, data, expected);
            EXPECT_LT(result.worst_error, 2e-13) << result.worst_value;
            EXPECT_TRUE(result.replicas_equal);
            EXPECT_GT(result.copies, 50);
          }
        }
      }
    }
  }
}

Mesh expert_mesh(int outer, int inner, int cp, int tp) {
  const bool both = outer > 1 && inner > 1;
  return Mesh({{both ? "dp_out" : "dp", outer},
               {both ? "dp_in" : "dp", inner, true},
               {"cp", cp, true},
               {"tp", tp}});
}

/// Experts on a part of cp only, and on two parts of both.
TEST(Reassemble, EveryValueOfExpertsOnAPartOfCpEqualsTheUnshardedOne) {
  const ExpertModel whole(4, 12, false, true, 12);
  const ModelGraph& model = whole.joint();
  const test::Whole data = test::make_data(model, 11);
  const test::Whole expected = test::run_whole(model, data);
  for (const auto& axes : std::vector<std::vector<Mesh::Axis>>{
           {{"cp_out", 2}, {"cp_in", 2, true}},
           {{"dp", 2}, {"cp_out", 2}, {"cp_in", 3, true}},
           {{"dp", 2}, {"cp_out", 2}, {"cp_in", 2, true}, {"tp", 2}},
           {{"cp_out", 2}, {"cp_mid", 2, true}, {"cp_in", 3, true}},
           {{"dp", 3, true}, {"cp_out", 2, true}, {"cp_in", 2, true}}}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(fmt::format("{} axes, sequence {}", axes.size(), sequence_parallel));
      const ShardedGraph sharded = propagate(model, Mesh(axes), {sequence_parallel});
      verify(model, sharded);
      const test::Reassembled result = test::run_sharded(model, sharded, data, expected);
      EXPECT_LT(result.worst_error, 2e-13) << result.worst_value;
      EXPECT_TRUE(result.replicas_equal);
      EXPECT_GT(result.copies, 50);
    }
  }
}

TEST(Reassemble, EveryValueOfExpertsOnRanksOfTheirOwnEqualsTheUnshardedOne) {
  const ExpertModel whole(4, 12, false, true, 12);
  const ModelGraph& model = whole.joint();
  const test::Whole data = test::make_data(model, 11);
  const test::Whole expected = test::run_whole(model, data);
  for (const auto& [outer, inner, cp, tp] :
       std::vector<std::tuple<int, int, int, int>>{{1, 2, 1, 1},
                                                   {2, 2, 1, 1},
                                                   {1, 4, 1, 2},
                                                   {1, 1, 2, 1},
                                                   {2, 1, 3, 1},
                                                   {1, 2, 2, 2},
                                                   {2, 2, 3, 1},
                                                   {1, 4, 3, 1}}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(fmt::format("dp {} x {} cp {} tp {} sequence {}", outer, inner, cp, tp,
                               sequence_parallel));
      const ShardedGraph sharded =
          propagate(model, expert_mesh(outer, inner, cp, tp), {sequence_parallel});
      verify(model, sharded);
      const test::Reassembled result = test::run_sharded(model, sharded, data, expected);
      EXPECT_LT(result.worst_error, 2e-13) << result.worst_value;
      EXPECT_TRUE(result.replicas_equal);
      EXPECT_GT(result.copies, 50);
    }
  }
}

// Slots and gates there and the products' results back, and their gradients the other way; choices
// follow from how many slots each rank has for each expert.
TEST(Collectives, OfExpertsOnRanksOfTheirOwnAreAllToAlls) {
  const ExpertModel whole(4, 12, true, false, 12);
  const ShardedGraph sharded = propagate(whole.joint(), expert_mesh(2, 2, 1, 1), {});
  EXPECT_EQ(collectives_text(whole.joint(), sharded, 0),
            "forward all_to_all dp_in layers.0.gate.1\n"
            "forward all_to_all dp_in layers.0.slots\n"
            "forward all_to_all dp_in layers.0.gate\n"
            "forward all_to_all dp_in layers.0.expert_down\n"
            "backward all_to_all dp_in d(layers.0.expert_down)\n"
            "backward all_to_all dp_in d(layers.0.slots)\n"
            "backward all_to_all dp_in d(layers.0.gate)\n");
}

// One all-reduce each way, as of a layer without experts: gates and router add nothing.
TEST(Collectives, OfExpertsUnderTensorParallelismAreMegatronsTwo) {
  const ExpertModel whole(4, 12, true);
  const ShardedGraph sharded = propagate(whole.joint(), Mesh({{"tp", 2}}), {});
  EXPECT_EQ(collectives_text(whole.joint(), sharded, 0),
            "forward all_reduce tp layers.0.mlp\n"
            "backward all_reduce tp d(layers.0.norm)\n");
}

// How many tokens an expert has is known on all of them: E numbers a layer, and the logits'
// gradient, which every rank of tp has whole of the balance and in part of the gates.
TEST(Collectives, OfABalanceLossAreOneMoreForwardAndUnderTensorParallelismOneBackward) {
  const ExpertModel whole(4, 12, true, true);
  const ModelGraph& model = whole.joint();
  EXPECT_EQ(collectives_text(model, propagate(model, Mesh({{"dp", 2}, {"cp", 2}}), {}), 0),
            "forward all_reduce dp+cp layers.0.load\n");
  EXPECT_EQ(collectives_text(model, propagate(model, Mesh({{"tp", 2}}), {}), 0),
            "forward all_reduce tp layers.0.mlp\n"
            "backward all_reduce tp d(layers.0.router_logits)\n"
            "backward all_reduce tp d(layers.0.norm)\n");
}

// The products of the experts are shared out whole: 2 B S k O I each, over all ranks.
TEST(Flops, OfTheExpertsOfAllRanksAreThoseOfOne) {
  const ExpertModel whole(6, 24, true);
  const Graph& graph = whole.joint().graph;
  for (const auto& [dp, cp, tp] : std::vector<std::tuple<int, int, int>>{
           {1, 1, 1}, {3, 1, 1}, {1, 2, 1}, {1, 1, 4}, {2, 2, 2}, {4, 1, 1}}) {
    const Mesh mesh({{"dp", dp}, {"cp", cp}, {"tp", tp}});
    const ShardedGraph sharded = propagate(whole.joint(), mesh, {});
    int products = 0;
    for (const ShardedStep& step : sharded.steps) {
      if (step.kind != ShardedStep::Kind::Compute) continue;
      const Operator& op = *graph.op(step.op).definition;
      if (!op.name.starts_with("expert_product")) continue;
      ++products;
      double flops = 0;
      for (int rank = 0; rank < mesh.world(); ++rank) {
        const auto shapes = [&](const std::vector<CopyId>& copies) {
          std::vector<Shape> result;
          for (const CopyId id : copies) {
            Shape& shape = result.emplace_back();
            for (const Range& range :
                 copy_box(whole.joint(), sharded, id, mesh.coordinates(rank))) {
              shape.push_back(range.size());
            }
          }
          return result;
        };
        flops += op.flops({}, shapes(step.inputs), shapes(step.outputs));
      }
      EXPECT_DOUBLE_EQ(flops, 2.0 * 6 * 24 * 2 * 12 * 23) << op.name;
    }
    EXPECT_EQ(products, 2 * 3 * 3);
  }
}

}  // namespace
}  // namespace sw
