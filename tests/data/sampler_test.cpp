#include "data/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "tests/data/scratch.hpp"

namespace sw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using LastWindow = DataOptions::LastWindow;

std::vector<std::int64_t> zero_to(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> ids) {
  std::ranges::sort(ids);
  return ids;
}

/// Takes windows from a position on until the epoch ends, and returns the ids and the position.
std::pair<std::vector<std::int64_t>, std::int64_t> rest_of_epoch(const Sampler& sampler,
                                                                 std::int64_t position,
                                                                 std::int64_t epoch) {
  std::vector<std::int64_t> ids;
  for (Window window = sampler.window(position); window.epoch == epoch;
       window = sampler.window(position)) {
    ids.insert(ids.end(), window.samples.begin(), window.samples.begin() + window.consumed);
    position = window.next;
  }
  return {ids, position};
}

TEST(Sampler, ThreeEpochsOfFortyArePermutationsAndDiffer) {  // case C010
  const Sampler sampler(40, 8, 1, LastWindow::Pad);
  std::set<std::vector<std::int64_t>> orders;
  std::int64_t position = 0;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto [ids, next] = rest_of_epoch(sampler, position, epoch);
    EXPECT_EQ(sorted(ids), zero_to(40));
    EXPECT_NE(ids, zero_to(40));
    orders.insert(ids);
    position = next;
  }
  EXPECT_EQ(orders.size(), 3U);
  const Sampler other_seed(40, 8, 2, LastWindow::Pad);
  EXPECT_FALSE(orders.contains(rest_of_epoch(other_seed, 0, 0).first));
}

TEST(Sampler, ResumingAfterTwentyOfSixtyFourRepeatsAndMissesNone) {  // case C012
  std::vector<std::int64_t> ids;
  std::int64_t position = 0;
  {
    const Sampler before(64, 4, 9, LastWindow::Pad);
    for (int step = 0; step < 5; ++step) {
      const Window window = before.window(position);
      ids.insert(ids.end(), window.samples.begin(), window.samples.end());
      position = window.next;
    }
  }
  EXPECT_EQ(ids.size(), 20U);
  const auto [rest, end] = rest_of_epoch(Sampler(64, 4, 9, LastWindow::Pad), position, 0);
  ids.insert(ids.end(), rest.begin(), rest.end());
  EXPECT_EQ(sorted(ids), zero_to(64));
}

TEST(Sampler, OneHundredAndOneInWindowsOfEightKeepOrDropTheLastFive) {  // case C008
  const Sampler keep(101, 8, 1, LastWindow::Pad);
  EXPECT_EQ(keep.windows_per_epoch(), 13);
  const Window last = keep.window(96);
  EXPECT_EQ(last.consumed, 5);
  EXPECT_EQ(last.samples.size(), 8U);
  EXPECT_EQ(std::ranges::count(last.samples, -1), 3);
  EXPECT_EQ(last.next, 101);

  const Sampler drop(101, 8, 1, LastWindow::Drop);
  EXPECT_EQ(drop.windows_per_epoch(), 12);
  const Window first_of_second_epoch = drop.window(96);
  EXPECT_EQ(first_of_second_epoch.epoch, 1);
  EXPECT_EQ(first_of_second_epoch.dropped, 5);
  EXPECT_EQ(first_of_second_epoch.consumed, 8);
  EXPECT_EQ(first_of_second_epoch.next, 101 + 8);
  EXPECT_EQ(first_of_second_epoch.samples, drop.window(101).samples);
}

TEST(Sampler, ADatasetSmallerThanAWindowIsPaddedOrRefusedWithBothNumbers) {  // case C015
  for (const std::int64_t samples : {1, 7}) {
    EXPECT_THAT(message_of<ConfigError>([&] { Sampler(samples, 8, 1, LastWindow::Drop); }),
                AllOf(HasSubstr(fmt::format("data.train has {} sample(s)", samples)),
                      HasSubstr("train.global_batch = 8"),
                      HasSubstr(fmt::format("to at most {}", samples))));
    const Window window = Sampler(samples, 8, 1, LastWindow::Pad).window(0);
    EXPECT_EQ(window.consumed, samples);
    EXPECT_EQ(window.samples.size(), 8U);
  }
  for (const LastWindow last : {LastWindow::Drop, LastWindow::Pad}) {
    EXPECT_THAT(message_of<ConfigError>([&] { Sampler(0, 8, 1, last); }),
                HasSubstr("the dataset is empty: 0 samples"));
    EXPECT_THAT(message_of<ConfigError>([&] { Sampler(8, 0, 1, last); }),
                HasSubstr("train.global_batch = 0"));
  }
}

RC_GTEST_PROP(Sampler, EverySampleOfAnEpochComesOnceAndWindowsNeverCrossEpochs, ()) {
  const auto samples = *rc::gen::inRange<std::int64_t>(1, 300);
  const auto batch = *rc::gen::inRange<std::int64_t>(1, 40);
  const Sampler sampler(samples, batch, *rc::gen::arbitrary<std::uint64_t>(), LastWindow::Pad);
  std::int64_t position = 0;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    RC_ASSERT(position == epoch * samples);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < sampler.windows_per_epoch(); ++i) {
      const Window window = sampler.window(position);
      RC_ASSERT(window.epoch == epoch);
      RC_ASSERT(window.dropped == 0);
      RC_ASSERT(window.next == position + window.consumed);
      RC_ASSERT(std::ssize(window.samples) == batch);
      for (std::int64_t row = 0; row < batch; ++row) {
        RC_ASSERT((window.samples[static_cast<std::size_t>(row)] == -1) ==
                  (row >= window.consumed));
      }
      ids.insert(ids.end(), window.samples.begin(), window.samples.begin() + window.consumed);
      position = window.next;
    }
    RC_ASSERT(sorted(ids) == zero_to(samples));
  }
}

RC_GTEST_PROP(Sampler, AnyChangeOfBatchAtAnyStepStillUsesEachSampleOnce, ()) {  // C012, C026
  const auto samples = *rc::gen::inRange<std::int64_t>(1, 200);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  std::vector<std::int64_t> ids;
  std::int64_t position = 0;
  while (position < samples) {
    const auto batch = *rc::gen::inRange<std::int64_t>(1, 30);
    const Window window = Sampler(samples, batch, seed, LastWindow::Pad).window(position);
    RC_ASSERT(window.epoch == 0);
    ids.insert(ids.end(), window.samples.begin(), window.samples.begin() + window.consumed);
    position = window.next;
  }
  RC_ASSERT(position == samples);
  RC_ASSERT(sorted(ids) == zero_to(samples));
}

RC_GTEST_PROP(Sampler, DroppingLeavesOutOnlyTheEndOfEachEpoch, ()) {
  const auto batch = *rc::gen::inRange<std::int64_t>(1, 30);
  const auto samples = *rc::gen::inRange<std::int64_t>(batch, 200);
  const Sampler sampler(samples, batch, *rc::gen::arbitrary<std::uint64_t>(), LastWindow::Drop);
  std::int64_t position = 0;
  std::int64_t used = 0;
  for (std::int64_t i = 0; i < 3 * sampler.windows_per_epoch(); ++i) {
    const Window window = sampler.window(position);
    RC_ASSERT(window.epoch == i / sampler.windows_per_epoch());
    RC_ASSERT(window.consumed == batch);
    RC_ASSERT(std::ranges::count(window.samples, -1) == 0);
    used += window.dropped + window.consumed;
    position = window.next;
    RC_ASSERT(position == used);
  }
}

RC_GTEST_PROP(Sampler, WindowsLeftAreTheWindowsThatCome, ()) {
  const auto batch = *rc::gen::inRange<std::int64_t>(1, 20);
  const auto samples = *rc::gen::inRange<std::int64_t>(batch, 100);
  const auto epochs = *rc::gen::inRange<std::int64_t>(0, 4);
  const Sampler sampler(samples, batch, 1, *rc::gen::element(LastWindow::Pad, LastWindow::Drop));
  const auto start = *rc::gen::inRange<std::int64_t>(0, 3 * samples);
  std::int64_t position = start;
  std::int64_t windows = 0;
  while (sampler.window(position).epoch < epochs) {
    position = sampler.window(position).next;
    ++windows;
  }
  RC_ASSERT(sampler.windows_left(start, epochs) == windows);
}

RC_GTEST_PROP(Sampler, TheUnionOverRanksIsTheSameWindowForEveryNumberOfRanks, ()) {
  const auto ranks = *rc::gen::element<std::int64_t>(1, 2, 3, 4, 6, 12);
  const Sampler sampler(101, 12, *rc::gen::arbitrary<std::uint64_t>(), LastWindow::Pad);
  for (std::int64_t position = 0; position < 101;) {
    const Window whole = sampler.window(position);
    std::vector<std::int64_t> joined;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      // Each rank computes the window for itself from the same integer and takes its rows.
      const auto rows = Sampler(sampler).window(position).samples;
      joined.insert(joined.end(), rows.begin() + rank * 12 / ranks,
                    rows.begin() + (rank + 1) * 12 / ranks);
    }
    RC_ASSERT(joined == whole.samples);
    position = whole.next;
  }
}

}  // namespace
}  // namespace sw
