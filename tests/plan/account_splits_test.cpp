// The accounts of the splits: against the engine's own plan, or counted one by one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lower/compile.hpp"
#include "lower/schedule.hpp"
#include "program/ledger.hpp"
#include "tests/plan/refusal.hpp"

namespace sw {
namespace {

double value_of(const AccountResult& result, const std::string& name) {
  return result.outputs.at(name).at("value").get<double>();
}

/// A model whose sizes are those of the inputs below: 2 micro-batches of 1 row of 16 tokens.
CompileOptions options_of(int cp, int tp, std::int64_t layers) {
  CompileOptions options;
  options.model.vocabulary = 64;
  options.model.hidden = 32;
  options.model.layers = layers;
  options.model.heads = options.model.kv_heads = 4;
  options.model.head_dim = 8;
  options.model.feed_forward = 64;
  options.model.max_positions = 64;
  options.parallel.layout.cp = cp;
  options.parallel.layout.tp = tp;
  options.parallel.context = ContextAlgorithm::Gather;
  options.parallel.zero = 0;
  options.accumulation = 2;
  options.sequence = 16;
  return options;
}

LedgerEntry planned(const CompileOptions& options, CollectiveKind kind, const char* axis) {
  const Ledger ledger = planned_ledger(Compilation(options).training(0), Algorithm::Direct);
  const auto found = ledger.find({kind, axis});
  return found == ledger.end() ? LedgerEntry{} : found->second;
}

/// What three layers more add to the plan: embedding, head and loss drop out.
LedgerEntry planned_of_3_layers(CompileOptions options, CollectiveKind kind) {
  options.model.layers = 1;
  const LedgerEntry one = planned(options, kind, "tp");
  options.model.layers = 4;
  const LedgerEntry four = planned(options, kind, "tp");
  return {four.calls - one.calls, four.sent_bytes - one.sent_bytes, 0, 0};
}

Json layer_inputs(int tp, const char* recompute) {
  return {{"b", 1},         {"s", 16},     {"h", 32},           {"tp", tp},
          {"act_bytes", 4}, {"layers", 3}, {"microbatches", 2}, {"recompute", recompute}};
}

TEST(TensorAccount, OfALayerIsWhatTheEnginePlans) {
  const std::pair<const char*, Recompute> recomputes[] = {
      {"none", Recompute::None}, {"selective", Recompute::Selective}, {"full", Recompute::Full}};
  for (const int tp : {2, 4}) {
    for (const auto& [word, recompute] : recomputes) {
      CompileOptions options = options_of(1, tp, 1);
      options.parallel.recompute = recompute;
      options.parallel.sequence_parallel = false;
      const AccountResult result = account("tensor", layer_inputs(tp, word));
      const LedgerEntry plan = planned_of_3_layers(options, CollectiveKind::AllReduce);
      const bool full = recompute == Recompute::Full;
      EXPECT_EQ(plan.sent_bytes, value_of(result, full ? "sent_per_rank_here" : "sent_per_rank"));
      EXPECT_EQ(plan.calls, 3 * 2 * value_of(result, full ? "total_full_recompute_here" : "total"));
    }
  }
}

TEST(TensorAccount, OfALayerUnderSequenceParallelIsWhatTheEnginePlans) {
  for (const int tp : {2, 4}) {
    for (const bool keep : {false, true}) {
      for (const bool full : {false, true}) {
        CompileOptions options = options_of(1, tp, 1);
        options.parallel.keep_gathered = keep;
        options.parallel.recompute = full ? Recompute::Full : Recompute::None;
        Json inputs = layer_inputs(tp, full ? "full" : "none");
        inputs["sequence_parallel"] = true;
        inputs["keep_gathered"] = keep;
        const AccountResult result = account("tensor", inputs);
        const auto scatters = planned_of_3_layers(options, CollectiveKind::ReduceScatter);
        const auto gathers = planned_of_3_layers(options, CollectiveKind::AllGather);
        EXPECT_EQ(gathers.sent_bytes, value_of(result, "all_gather")) << tp << keep << full;
        EXPECT_EQ(scatters.sent_bytes + gathers.sent_bytes,
                  value_of(result, full ? "sent_per_rank_here" : "sent_per_rank"))
            << tp << keep << full;
      }
    }
  }
}

TEST(TensorAccount, SumsManyPartsAndRefusesThoseThatDoNotFit) {
  const auto parts = [](const char* lists, const char* split) {
    return Json{{"parts", account_input(lists)}, {"split", split}};
  };
  EXPECT_EQ(account("tensor", parts("[[[1,2]],[[3,4]],[[5,6.5]]]", "row")).outputs["Y"]["value"],
            account_input("[[9,12.5]]"));
  EXPECT_THAT(refusal("tensor", {{"parts", account_input("[[[1]],[[2]]]")}}),
              testing::HasSubstr("set split=column"));
  EXPECT_THAT(refusal("tensor", parts("[[[1]],[[2,3]]]", "row")),
              testing::HasSubstr("a part of 1 x 2 cannot be added to one of 1 x 1"));
  EXPECT_THAT(refusal("tensor", parts("[[[1]],[[2],[3]]]", "column")),
              testing::HasSubstr("a part of 2 rows cannot stand beside one of 1"));
  const auto product = [](const char* x) {
    return Json{{"X", account_input(x)}, {"W", account_input("[[1,2]]")}};
  };
  EXPECT_THAT(refusal("tensor", product("[[1,2]]")),
              testing::HasSubstr("X has 2 columns but W has 1 rows"));
  EXPECT_THAT(refusal("tensor", product("3")), testing::HasSubstr("X=[[1,2]]"));
  Json inputs = layer_inputs(2, "none");
  inputs["keep_gathered"] = true;
  EXPECT_THAT(refusal("tensor", inputs), testing::HasSubstr("needs sequence_parallel"));
}

/// Below the limit a long trajectory ends nearer 0 than it began, above it farther.
TEST(StalenessAccount, LimitOfTheLearningRateIsWhereTrajectoriesStopSettling) {
  for (const int staleness : {0, 1, 2, 5}) {
    const auto last = [&](double rate) {
      const auto result = account(
          "staleness", {{"w0", -1.5}, {"lr", rate}, {"staleness", staleness}, {"steps", 4000}});
      return std::abs(result.outputs.at("trajectory").at("value").back().get<double>());
    };
    const double limit = value_of(
        account("staleness", {{"w0", 1}, {"lr", 0.1}, {"staleness", staleness}}), "lr_limit");
    EXPECT_LT(last(0.98 * limit), 0.1) << staleness;
    EXPECT_GT(last(1.02 * limit), 10) << staleness;
  }
}

/// Without a flush every backward is followed by an update of its stage: a gradient is as old as
/// the backwards between its own forward and backward are many, once the pipeline is full.
TEST(StalenessAccount, OfStagesIsThatOfTheScheduleInItsSteadyState) {
  for (const int stages : {1, 2, 4, 5}) {
    const auto result = account("staleness", {{"stages", stages}});
    const int micro_batches = 3 * stages;
    const PipelineOrder order = pipeline_order(PipelineSchedule::OneForwardOneBackward,
                                               Stages{stages, 1, false, {}}, micro_batches);
    std::vector<int> staleness;
    for (const auto& actions : order) {
      int updates = 0;
      int at_forward = 0;
      for (const PipelineAction& action : actions) {
        const bool middle = action.micro_batch == 3 * stages / 2;
        if (action.kind == PipelineAction::Kind::Forward) {
          at_forward = middle ? updates : at_forward;
        } else {
          if (middle) {
            staleness.push_back(updates - at_forward);
          }
          ++updates;
        }
      }
    }
    EXPECT_EQ(result.outputs.at("pipedream_staleness").at("value"), staleness);
    EXPECT_EQ(result.outputs.at("pipedream_kept").at("value"), live_micro_batches(order));
  }
}

TEST(StalenessAccount, RefusesWhatItCannotList) {
  EXPECT_THAT(refusal("staleness", {{"w0", 1}, {"lr", 0.5}, {"steps", 5000}}),
              testing::HasSubstr("steps = 5000 is more than 4096"));
  EXPECT_THAT(refusal("staleness", {{"w0", "far"}, {"lr", 0.5}}),
              testing::HasSubstr("w0 = \"far\" is not a number"));
  EXPECT_THAT(refusal("staleness", {{"w0", 1}, {"lr", 0.5}, {"staleness", -1}}),
              testing::HasSubstr("staleness = -1 is less than 0"));
}

TEST(ContextAccount, OfALayerIsWhatTheEnginePlans) {
  for (const int cp : {2, 4}) {
    CompileOptions options = options_of(cp, 1, 3);
    Json sizes = {{"b", 1},        {"s", 16},       {"heads", options.model.heads},
                  {"kv_heads", 4}, {"head_dim", 8}, {"act_bytes", 4},
                  {"cp", cp},      {"layers", 3},   {"microbatches", 2}};
    const auto gather = account("context", sizes);
    EXPECT_EQ(planned(options, CollectiveKind::AllGather, "cp").sent_bytes,
              value_of(gather, "all_gather"));
    EXPECT_EQ(planned(options, CollectiveKind::ReduceScatter, "cp").sent_bytes,
              value_of(gather, "reduce_scatter"));
    EXPECT_EQ(value_of(gather, "sent_per_rank"),
              value_of(gather, "all_gather") + value_of(gather, "reduce_scatter"));
    sizes["context"] = "ring";
    options.parallel.context = ContextAlgorithm::Ring;
    EXPECT_EQ(planned(options, CollectiveKind::Send, "cp").sent_bytes,
              value_of(account("context", sizes), "send"));
    sizes["context"] = "all_to_all";
    options.parallel.context = ContextAlgorithm::AllToAll;
    EXPECT_EQ(planned(options, CollectiveKind::AllToAll, "cp").sent_bytes,
              value_of(account("context", sizes), "all_to_all"));
  }
}

/// Pairs counted one by one, of the columns that the engine deals to each rank.
TEST(ContextAccount, ZigZagIsTheWorkOfTheColumnsThatTheEngineDeals) {
  for (const int cp : {2, 4}) {
    const Compilation compilation(options_of(cp, 1, 1));
    const std::vector<std::int64_t> order = compilation.column_order();
    std::vector<std::int64_t> pairs(static_cast<std::size_t>(cp));
    for (int rank = 0; rank < cp; ++rank) {
      const Range columns = compilation.columns(rank);
      for (std::int64_t column = columns.begin; column < columns.end; ++column) {
        pairs[static_cast<std::size_t>(rank)] += order[static_cast<std::size_t>(column)] + 1;
      }
    }
    const auto result = account("context", {{"tokens", 16}, {"ranks", cp}});
    EXPECT_EQ(result.outputs.at("zigzag").at("value"), pairs);
  }
}

TEST(ContextAccount, OfTokensThatDoNotDivideCountsEveryPairOnce) {
  const auto result = account("context", {{"tokens", 11}, {"ranks", 3}});  // parts of 4, 4 and 3
  EXPECT_EQ(result.outputs.at("contiguous").at("value"), (Json{10, 26, 30}));
  EXPECT_EQ(value_of(result, "pairs_if_local_only"), 10 + 10 + 6);
  std::int64_t all = 0;
  for (const Json& pairs : result.outputs.at("zigzag").at("value")) {
    all += pairs.get<std::int64_t>();
  }
  EXPECT_EQ(all, 11 * 12 / 2);
  EXPECT_EQ(result.wrong_values.at("pairs_full").at(0).at("value"), 26);
}

TEST(ContextAccount, RefusesWhatARunRefuses) {
  const Json sizes = {{"b", 1},        {"s", 20},        {"kv_heads", 4},
                      {"head_dim", 8}, {"act_bytes", 2}, {"cp", 4}};
  EXPECT_THAT(
      refusal("context", sizes),
      testing::HasSubstr("s = 20 does not divide by 2*cp = 8; the nearest above that does is 24"));
  Json ring = sizes;
  ring["s"] = 24;
  EXPECT_EQ(refusal("context", ring), "accepted");
  ring["context"] = "rings";
  EXPECT_THAT(refusal("context", ring), testing::HasSubstr("none of gather, ring, all_to_all"));
  ring["context"] = "all_to_all";
  ring["heads"] = 6;
  EXPECT_THAT(refusal("context", ring), testing::HasSubstr("cp = 4 does not divide heads = 6"));
  EXPECT_THAT(refusal("context", {{"tokens", 3}, {"ranks", 4}}),
              testing::HasSubstr("ranks = 4 are more than tokens = 3"));
}

/// Every pair of 6 experts, a token each: what leaves rank 0 of `ep`, counted one by one.
TEST(ExpertAccount, AnEvenRouterSendsTheClosedForm) {
  for (const int ep : {1, 2, 3}) {
    int tokens = 0;
    int remote = 0;
    for (int first = 0; first < 6; ++first) {
      for (int second = first + 1; second < 6; ++second) {
        ++tokens;
        remote += (first / (6 / ep) != 0 ? 1 : 0) + (second / (6 / ep) != 0 ? 1 : 0);
      }
    }
    const auto result = account(
        "expert", {{"tokens", tokens}, {"top_k", 2}, {"h", 8}, {"act_bytes", 2}, {"ep", ep}});
    EXPECT_EQ(value_of(result, "dispatch"), remote * 8 * 2);
    EXPECT_EQ(value_of(result, "bytes_forward"), 2 * remote * 8 * 2);
    EXPECT_EQ(value_of(result, "bytes_forward_backward"), 4 * remote * 8 * 2);
  }
}

TEST(ExpertAccount, DropsWhatIsOverCapacity) {
  // 12 choices over 4 experts, 3 each when even; 1.25 times that, rounded up, is 4.
  const auto result = account("expert", {{"load", {7, 0, 4, 1}}, {"capacity_factor", 1.25}});
  EXPECT_EQ(value_of(result, "capacity"), 4);
  EXPECT_EQ(value_of(result, "dropped"), 3);
  EXPECT_EQ(value_of(result, "dropped_share"), 25);
  const auto even =
      account("expert", {{"tokens", 6}, {"top_k", 2}, {"experts", 4}, {"capacity_factor", 1.25}});
  EXPECT_EQ(value_of(even, "capacity"), 4);
  EXPECT_EQ(value_of(even, "slots"), 16);
  const auto exact =
      account("expert", {{"tokens", 10}, {"top_k", 1}, {"experts", 1}, {"capacity_factor", 1.1}});
  EXPECT_EQ(value_of(exact, "capacity"), 11);
}

TEST(ExpertAccount, NamesTheHottestExpertAndRank) {
  const auto result = account("expert", {{"load", {5, 0, 4, 3}}, {"ep", 2}});
  EXPECT_EQ(value_of(result, "hottest_expert"), 0);
  EXPECT_DOUBLE_EQ(value_of(result, "expert_imbalance"), 5.0 / 3);
  EXPECT_EQ(result.outputs.at("rank_load").at("value"), (Json{5, 7}));
  EXPECT_EQ(value_of(result, "hottest_rank"), 1);
  EXPECT_DOUBLE_EQ(value_of(result, "rank_imbalance"), 7.0 / 6);
  EXPECT_THAT(refusal("expert", {{"load", {5, 0, 4}}, {"ep", 2}}),
              testing::HasSubstr("ep = 2 does not divide the 3 experts"));
  EXPECT_THAT(refusal("expert", {{"load", {0, 0}}}),
              testing::HasSubstr("load is 0 on every expert"));
  EXPECT_THAT(
      refusal("expert", {{"tokens", 6}, {"top_k", 5}, {"experts", 4}, {"capacity_factor", 1}}),
      testing::HasSubstr("top_k = 5 is more than experts = 4"));
}

}  // namespace
}  // namespace sw
