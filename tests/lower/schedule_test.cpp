#include "lower/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "base/error.hpp"
#include "model/model.hpp"

namespace sw {
namespace {

using Kind = PipelineAction::Kind;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;

Stages stages_of(int stages, int chunks = 1, bool folded = false) {
  return {stages, chunks, folded, std::vector<int>(static_cast<std::size_t>(stages * chunks), 1)};
}

/// A slow clock of its own: every stage does its actions in order, each as soon as what it needs
/// has ended. Forward and either half of a backward take one unit per chunk. Returns when all is
/// done.
double unit_time(const PipelineOrder& order, const Stages& stages) {
  std::map<std::tuple<char, int, int>, double> ended;
  std::vector<double> free(order.size(), 0);
  std::vector<std::size_t> next(order.size(), 0);
  const auto time_of = [&](char kind, int segment, int m) {
    const auto found = ended.find({kind, segment, m});
    return found == ended.end() ? -1 : found->second;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < order.size(); ++s) {
      if (next[s] == order[s].size()) {
        continue;
      }
      const auto [kind, segment, m] = order[s][next[s]];
      const bool forward = kind == Kind::Forward;
      double ready = 0;
      if (forward && segment > 0) {
        ready = time_of('F', segment - 1, m);
      } else if (kind == Kind::WeightGradient) {
        ready = time_of('I', segment, m);
      } else if (!forward) {
        ready = segment + 1 == stages.segments() ? time_of('F', segment, m)
                                                 : time_of('I', segment + 1, m);
      }
      if (ready < 0) {
        continue;
      }
      free[s] = std::max(free[s], ready) + (kind == Kind::Backward ? 2 : 1);
      ended[{forward ? 'F' : kind == Kind::WeightGradient ? 'W' : 'I', segment, m}] = free[s];
      ++next[s];
      moved = true;
    }
  }
  return *std::max_element(free.begin(), free.end());
}

/// Idle share of all stages: Huang et al. 2018; Narayanan et al. 2021: (P-1)/(M+P-1), and with v
/// chunks (P-1)/(vM+P-1).
TEST(Schedules, HaveTheBubbleOfTheClosedForm) {
  for (const auto& [p, m] : {std::pair(2, 4), std::pair(4, 8), std::pair(4, 16), std::pair(8, 8)}) {
    for (const auto schedule : {PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward}) {
      const PipelineOrder order = pipeline_order(schedule, stages_of(p), m);
      const double time = unit_time(order, stages_of(p));
      EXPECT_EQ(unit_times(order, stages_of(p)).front().back().end, time);  // stage 0 ends last
      EXPECT_DOUBLE_EQ(1 - 3.0 * m / time, (p - 1.0) / (m + p - 1)) << p << " stages " << m;
    }
    for (const int v : {2, 3}) {
      const Stages chunks = stages_of(p, v);
      const double time =
          unit_time(pipeline_order(PipelineSchedule::Interleaved, chunks, m), chunks);
      EXPECT_DOUBLE_EQ(1 - 3.0 * v * m / time, (p - 1.0) / (v * m + p - 1)) << p << " " << v;
    }
  }
}

/// Qi et al. 2023: with equal halves ZB-H1 leaves a third of 1f1b's bubble, (P-1) units; the V
/// schedule nearly none once there are enough micro-batches.
TEST(Schedules, ZeroBubbleLeavesAThirdOfTheBubble) {
  for (const auto& [p, m] : {std::pair(2, 4), std::pair(4, 8), std::pair(4, 16)}) {
    const double time =
        unit_time(pipeline_order(PipelineSchedule::ZeroBubble, stages_of(p), m), stages_of(p));
    EXPECT_LE(time, 3.0 * m + (p - 1)) << p << " stages " << m;
    const Stages folded = stages_of(p, 2, true);
    const double v = unit_time(pipeline_order(PipelineSchedule::ZeroBubbleV, folded, m), folded);
    EXPECT_LT(v - 6.0 * m, 2.0 * (p - 1)) << p << " stages " << m;
  }
}

TEST(Schedules, HoldAsManyMicroBatchesAsTheyPromise) {
  const Stages four = stages_of(4);
  EXPECT_THAT(live_micro_batches(pipeline_order(PipelineSchedule::GPipe, four, 16)),
              ElementsAre(16, 16, 16, 16));
  EXPECT_THAT(live_micro_batches(pipeline_order(PipelineSchedule::OneForwardOneBackward, four, 16)),
              ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(live_micro_batches(pipeline_order(PipelineSchedule::ZeroBubble, four, 16)),
              Each(Le(4)));  // 1f1b's first stage
  EXPECT_THAT(
      live_micro_batches(pipeline_order(PipelineSchedule::ZeroBubbleV, stages_of(4, 2, true), 16)),
      Each(Le(8)));  // of half a stage each
}

TEST(Schedules, AreCompleteAndNeverWaitForEachOther) {
  for (int p = 1; p <= 5; ++p) {
    for (int m = 1; m <= 9; ++m) {
      for (const auto schedule : {PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward,
                                  PipelineSchedule::ZeroBubble, PipelineSchedule::ZeroBubbleV,
                                  PipelineSchedule::Interleaved}) {
        const bool folded = schedule == PipelineSchedule::ZeroBubbleV;
        const bool interleaved = schedule == PipelineSchedule::Interleaved;
        if (interleaved && m % p != 0) {
          continue;
        }
        const Stages stages = stages_of(p, folded ? 2 : interleaved ? 3 : 1, folded);
        const PipelineOrder order = pipeline_order(schedule, stages, m);
        check_order(order, stages, m, "order");
        EXPECT_EQ(parse_pipeline(to_text(order, stages), "text", stages, m), order);
      }
    }
  }
}

std::string refusal(const std::string& text, const Stages& stages, int micro_batches) {
  try {
    (void)parse_pipeline(text, "s.txt", stages, micro_batches);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SchedulesAsText, AreRefusedWithTheirPlace) {
  const Stages two = stages_of(2);
  EXPECT_EQ(refusal("# ahead\nF0 F1 B0 B1\nF0 B0 F1 I1 W1\n", two, 2), "accepted");
  EXPECT_THAT(refusal("F0 X1\nF0\n", two, 2), HasSubstr("s.txt, line 1, column 4"));
  EXPECT_THAT(refusal("F0 F2\nF0\n", two, 2), HasSubstr("below 2"));
  EXPECT_THAT(refusal("F0 F99999999999\nF0\n", two, 2), HasSubstr("below 2"));
  EXPECT_THAT(refusal("F0,F1\n", two, 2), HasSubstr("a space stands between"));
  EXPECT_THAT(refusal("F0.1 B0\n", two, 1), HasSubstr("chunk is a number below 1"));
  EXPECT_THAT(refusal("F0 B0\n", two, 1), HasSubstr("1 lines for parallel.pp = 2"));
  EXPECT_THAT(refusal("F0 B0\nF0 B0\nF0 B0\n", two, 1), HasSubstr("more lines"));
  EXPECT_THAT(refusal("F0 B0 B0\nF0 B0\n", two, 1), HasSubstr("stage 0 does B0 twice"));
  EXPECT_THAT(refusal("F0 I0\nF0 B0\n", two, 1), HasSubstr("stage 0 must do F0"));
  EXPECT_THAT(refusal("F0 B0 F1 B1\nF1 B1 F0 B0\n", two, 2),
              HasSubstr("wait for each other for ever: stage 0 before B0, stage 1 before F1"));
}

/// Any text is a schedule or refused.
TEST(SchedulesAsText, NeverCrashTheParser) {
  std::mt19937_64 random(7);
  constexpr std::string_view kLetters = "FBIW01239. .\n\t\r#x-";
  const Stages two = stages_of(2, 2);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto length = random() % 40; length > 0; --length) {
      text += kLetters[random() % kLetters.size()];
    }
    EXPECT_NE(refusal(text, two, 2), "");
  }
}

/// Case C047: none is left out, whatever does not divide.
TEST(Stages, HoldEveryLayerOnceAndInOrder) {
  ModelConfig model;
  model.vocabulary = 16;
  model.hidden = model.feed_forward = 8;
  model.heads = model.kv_heads = 2;
  model.head_dim = 4;
  for (int layers = 1; layers <= 17; ++layers) {
    model.layers = layers;
    const ModelGraph graph = build(model, 1, 4, DType::Float32);
    for (int stages = 1; stages <= 8; ++stages) {
      for (int chunks = 1; chunks <= 3; ++chunks) {
        ParallelOptions options;
        options.layout.pp = stages;
        options.virtual_stages = chunks;
        options.pipeline =
            chunks > 1 ? PipelineSchedule::Interleaved : PipelineSchedule::OneForwardOneBackward;
        SCOPED_TRACE(fmt::format("{} layers on {} stages of {}", layers, stages, chunks));
        if (stages > 1 && stages * chunks > layers) {
          EXPECT_THROW((void)cut_into_stages(graph, options), ConfigError);
          continue;
        }
        const Stages cut = cut_into_stages(graph, options);
        EXPECT_THAT(cut.layers, Each(::testing::Ge(1)));
        EXPECT_EQ(std::accumulate(cut.layers.begin(), cut.layers.end(), 0), layers);
        int segment = 0;
        for (int layer = 0; layer < layers; ++layer) {
          EXPECT_GE(cut.segment_of_layer(layer), segment);
          segment = cut.segment_of_layer(layer);
        }
        EXPECT_EQ(segment, cut.segments() - 1);
      }
    }
  }
}

}  // namespace
}  // namespace sw
