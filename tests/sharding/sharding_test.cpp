#include "sharding/sharding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "model/model.hpp"
#include "tests/sharding/reassemble.hpp"

namespace sw {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ModelConfig tiny_llama(std::int64_t heads, std::int64_t kv_heads, bool tied) {
  ModelConfig config;
  config.vocabulary = 31;
  config.hidden = 12;
  config.layers = 2;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = 4;
  config.feed_forward = 23;
  config.max_positions = 64;
  config.tied = tied;
  return config;
}

ModelConfig tiny_gpt2(double dropout) {
  ModelConfig config = tiny_llama(4, 4, true);
  config.family = Family::Gpt2;
  config.model_type = "gpt2";
  config.hidden = 16;
  config.residual_dropout = dropout;
  config.embedding_dropout = dropout;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  return config;
}

ModelGraph joint_graph(const ModelConfig& config, std::int64_t batch, std::int64_t sequence) {
  ModelGraph model = build(config, batch, sequence, DType::Float32);
  differentiate(model);
  return model;
}

Mesh mesh_of(int dp, int tp) { return Mesh({{"dp", dp}, {"tp", tp}}); }

struct Case {
  int dp, tp;
  bool sequence_parallel, keep_gathered;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int dp : {1, 2, 3, 4}) {
    for (const int tp : {1, 2, 4}) {
      for (const bool sequence_parallel : {false, true}) {
        for (const bool keep : {false, true}) {
          cases.push_back({dp, tp, sequence_parallel, keep});
        }
      }
    }
  }
  return cases;
}

/// Each value of the joint graph, on every mesh: reassembled equals unsharded. 2e-13 relative:
/// double rounding over sums of some hundred terms.
void reassemble_on_all_meshes(const ModelConfig& config) {
  const ModelGraph model = joint_graph(config, 5, 12);
  const test::Whole data = test::make_data(model, 11);
  const test::Whole expected = test::run_whole(model, data);
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(fmt::format("dp {} tp {} sequence {} keep {}", c.dp, c.tp, c.sequence_parallel,
                             c.keep_gathered));
    if (config.heads % c.tp != 0) {
      continue;
    }
    const ShardedGraph sharded =
        propagate(model, mesh_of(c.dp, c.tp), {c.sequence_parallel, c.keep_gathered});
    verify(model, sharded);
    const test::Reassembled result = test::run_sharded(model, sharded, data, expected);
    EXPECT_LT(result.worst_error, 2e-13) << result.worst_value;
    EXPECT_TRUE(result.replicas_equal);
    EXPECT_GT(result.copies, 50);
  }
}

TEST(Reassemble, EveryValueOfALlamaWithGroupedQueriesEqualsTheUnshardedOne) {
  reassemble_on_all_meshes(tiny_llama(8, 4, false));
}
TEST(Reassemble, EveryValueWithFewerKvHeadsThanTensorRanksEqualsTheUnshardedOne) {
  reassemble_on_all_meshes(tiny_llama(8, 2, false));
}
TEST(Reassemble, EveryValueWithOneKvHeadAndTiedEmbeddingsEqualsTheUnshardedOne) {
  reassemble_on_all_meshes(tiny_llama(4, 1, true));
}
TEST(Reassemble, EveryValueOfAGpt2WithDropoutEqualsTheUnshardedOne) {
  reassemble_on_all_meshes(tiny_gpt2(0.2));
}

/// The pieces that go to each rank lie along heads, those that come along the sequence; tp stands
/// outside cp, so that both cut heads.
TEST(Reassemble, EveryValueUnderExchangedHeadsEqualsTheUnshardedOne) {
  const ModelGraph model = joint_graph(tiny_llama(12, 6, false), 4, 24);
  const test::Whole data = test::make_data(model, 11);
  const test::Whole expected = test::run_whole(model, data);
  for (const auto& [cp, tp] : {std::pair{2, 1}, {3, 1}, {6, 1}, {2, 3}, {3, 2}}) {
    SCOPED_TRACE(fmt::format("cp {} tp {}", cp, tp));
    const ShardedGraph sharded =
        propagate(model, Mesh({{"dp", cp == 2 ? 2 : 1}, {"tp", tp}, {"cp", cp}}),
                  {.context = ContextAlgorithm::AllToAll});
    verify(model, sharded);
    const test::Reassembled result = test::run_sharded(model, sharded, data, expected);
    EXPECT_LT(result.worst_error, 2e-13) << result.worst_value;
    EXPECT_TRUE(result.replicas_equal);
    const std::string text = collectives_text(model, sharded, 0);
    EXPECT_THAT(text, StartsWith("forward all_to_all cp layers.0.query_rope\n"
                                 "forward all_to_all cp layers.0.key_rope\n"
                                 "forward all_to_all cp layers.0.value\n"
                                 "forward all_to_all cp layers.0.attention\n"));
    EXPECT_THAT(text, HasSubstr("backward all_to_all cp d(layers.0.attention)\n"
                                "backward all_to_all cp d(layers.0.key_rope)\n"
                                "backward all_to_all cp d(layers.0.query_rope)\n"
                                "backward all_to_all cp d(layers.0.value)\n"));
    EXPECT_EQ(text.find("all_gather cp"), std::string::npos) << text;
  }
}

/// Keys and values gathered, and handed round; with heads on tp that divide and that do not.
TEST(Reassemble, EveryValueUnderContextParallelismEqualsTheUnshardedOne) {
  const ModelConfig config = tiny_llama(4, 2, false);
  const ModelGraph model = joint_graph(config, 3, 24);
  const test::Whole data = test::make_data(model, 11);
  const test::Whole expected = test::run_whole(model, data);
  for (const int cp : {2, 3, 4}) {
    for (const int tp : {1, 2, 4}) {
      for (const bool ring : {false, true}) {
        SCOPED_TRACE(fmt::format("cp {} tp {} ring {}", cp, tp, ring));
        const ShardedGraph sharded =
            propagate(model, Mesh({{"dp", tp == 2 ? 2 : 1}, {"cp", cp}, {"tp", tp}}),
                      {.sequence_parallel = cp == 3,
                       .context = ring ? ContextAlgorithm::Ring : ContextAlgorithm::Gather});
        verify(model, sharded);
        const test::Reassembled result = test::run_sharded(model, sharded, data, expected);
        EXPECT_LT(result.worst_error, 2e-13) << result.worst_value;
        EXPECT_TRUE(result.replicas_equal);
        const bool gathers = collectives_text(model, sharded, 0).find(" cp ") != std::string::npos;
        EXPECT_EQ(gathers, !ring);
      }
    }
  }
}

// Megatron's lists. A value's moves belong to the layer of the op that made it.

/// cp in parts, because something lies on its inner ranks only: every value, and to the byte the
/// collectives of the whole axis.
TEST(Reassemble, EveryValueOnAnAxisInPartsEqualsTheUnshardedOne) {
  const ModelGraph model = joint_graph(tiny_llama(12, 12, false), 4, 24);
  const test::Whole data = test::make_data(model, 11);
  const test::Whole expected = test::run_whole(model, data);
  for (const auto context :
       {ContextAlgorithm::Ring, ContextAlgorithm::Gather, ContextAlgorithm::AllToAll}) {
    for (const auto& [parts, tp] : std::vector<std::pair<std::vector<Mesh::Axis>, int>>{
             {{{"cp_out", 2}, {"cp_in", 2}}, 1},
             {{{"cp_out", 3}, {"cp_in", 2}}, 2},
             {{{"cp_out", 2}, {"cp_mid", 2}, {"cp_in", 3}}, 1}}) {
      const auto on = [&, heads = tp](const std::vector<Mesh::Axis>& cp) {
        const bool exchanges = context == ContextAlgorithm::AllToAll;
        std::vector<Mesh::Axis> axes{{"dp", 2}};
        axes.insert(axes.end(), cp.begin(), cp.end());
        axes.insert(exchanges ? axes.begin() + 1 : axes.end(), Mesh::Axis{"tp", heads});
        return propagate(model, Mesh(axes), {.context = context});
      };
      int ranks = 1;
      for (const Mesh::Axis& part : parts) {
        ranks *= part.size;
      }
      SCOPED_TRACE(fmt::format("context {} cp {} parts {} tp {}", static_cast<int>(context), ranks,
                               parts.size(), tp));
      const ShardedGraph sharded = on(parts);
      verify(model, sharded);
      const test::Reassembled result = test::run_sharded(model, sharded, data, expected);
      EXPECT_LT(result.worst_error, 2e-13) << result.worst_value;
      EXPECT_TRUE(result.replicas_equal);
      const ShardedGraph whole = on({{"cp", ranks}});
      for (const int layer : {-1, 0, 1}) {
        EXPECT_EQ(collectives_text(model, sharded, layer), collectives_text(model, whole, layer));
      }
      EXPECT_EQ(result.sent, test::run_sharded(model, whole, data, expected).sent);
    }
  }
}

TEST(Collectives, OfALayerUnderTensorParallelismAreMegatronsFour) {
  const ModelGraph model = joint_graph(tiny_llama(4, 2, false), 4, 12);
  const ShardedGraph sharded = propagate(model, mesh_of(1, 2), {});
  EXPECT_EQ(collectives_text(model, sharded, 0),
            "forward all_reduce tp layers.0.attention_output\n"
            "forward all_reduce tp layers.0.mlp_output\n"
            "backward all_reduce tp d(layers.0.mlp_norm)\n"
            "backward all_reduce tp d(layers.0.attention_norm)\n");
}

TEST(Collectives, OfALayerUnderSequenceParallelismAreScattersAndGathers) {
  const ModelGraph model = joint_graph(tiny_llama(4, 2, false), 4, 12);
  const ShardedGraph sharded = propagate(model, mesh_of(1, 2), {.sequence_parallel = true});
  EXPECT_EQ(collectives_text(model, sharded, 0),
            "forward all_gather tp layers.0.attention_norm\n"          // a
            "forward reduce_scatter tp layers.0.attention_output\n"    // y
            "forward all_gather tp layers.0.mlp_norm\n"                // b
            "forward reduce_scatter tp layers.0.mlp_output\n"          // m
            "backward all_gather tp d(layers.0.mlp_residual)\n"        // dm
            "backward all_gather tp layers.0.mlp_norm\n"               // b again
            "backward reduce_scatter tp d(layers.0.mlp_norm)\n"        // db
            "backward all_gather tp d(layers.0.attention_residual)\n"  // dy
            "backward all_gather tp layers.0.attention_norm\n"         // a again
            "backward reduce_scatter tp d(layers.0.attention_norm)\n");
}

TEST(Collectives, OfABiasedLayerScatterBeforeTheBias) {
  const ModelGraph model = joint_graph(tiny_gpt2(0.1), 4, 12);
  const ShardedGraph sharded = propagate(model, mesh_of(1, 2), {.sequence_parallel = true});
  const std::string text = collectives_text(model, sharded, 0);
  EXPECT_EQ(text.find("all_reduce"), std::string::npos) << text;
}

TEST(Collectives, OfALayerUnderDataParallelismAreNone) {
  const ModelGraph model = joint_graph(tiny_llama(4, 2, false), 4, 12);
  EXPECT_EQ(collectives_text(model, propagate(model, mesh_of(4, 1), {}), 0), "");
}

/// placements.md section 9: (4 + 6)(T-1)/T·h with sequence parallelism, 4 · 2(T-1)/T·h without, h =
/// B·S·D·e; the gradients of the norms come on top per window.
TEST(Bytes, OfALayerAreTheClosedForms) {
  for (const int tp : {2, 4}) {
    const std::int64_t batch = 4;
    const ModelGraph model = joint_graph(tiny_llama(8, 4, false), batch, 12);
    const double h = static_cast<double>(batch * 12 * 12 * 4);
    const double share = (tp - 1.0) / tp;
    for (const bool sequence_parallel : {false, true}) {
      for (const bool keep : {false, true}) {
        const ShardedGraph sharded = propagate(model, mesh_of(1, tp), {sequence_parallel, keep});
        double bytes = 0;
        for (const ShardedStep& step : sharded.steps) {
          if (step.kind != ShardedStep::Kind::Move || !step.move.collective.has_value()) {
            continue;
          }
          const ValueId value = sharded.copies[static_cast<std::size_t>(step.to)].value;
          for (const Op& op : model.graph.ops()) {
            if (op.layer == 0 && std::count(op.outputs.begin(), op.outputs.end(), value) > 0) {
              bytes += path_bytes({step.move}, model.graph.value(value).shape, 4, sharded.mesh);
            }
          }
        }
        const double moves = !sequence_parallel ? 4 * 2 : keep ? 4 + 4 : 4 + 6;
        EXPECT_DOUBLE_EQ(bytes, moves * share * h) << tp << sequence_parallel << keep;
      }
    }
  }
}

TEST(Sizes, HeadsThatDoNotDivideAreRefusedWithTheValuesThatDo) {
  const ModelGraph model = joint_graph(tiny_llama(6, 2, false), 4, 12);
  try {
    check_sizes(model, mesh_of(1, 4), {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "parallel.tp = 4 does not divide the number of attention heads = 6; values that "
                 "do: 1, 2, 3, 6");
  }
}

TEST(Verifier, RefusesAnIllegalPlacement) {
  const ModelGraph model = joint_graph(tiny_llama(4, 2, false), 4, 12);
  ShardedGraph sharded = propagate(model, mesh_of(1, 2), {});
  // The input of the first norm becomes Partial: norms are not linear.
  for (const ShardedStep& step : sharded.steps) {
    if (step.kind == ShardedStep::Kind::Compute &&
        model.graph.op(step.op).definition->name == "rms_norm") {
      sharded.copies[static_cast<std::size_t>(step.inputs[0])].sharding = {partial()};
      break;
    }
  }
  EXPECT_THROW(verify(model, sharded), InternalError);
}

}  // namespace
}  // namespace sw
