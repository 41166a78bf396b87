#include "device/team.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace sw {
namespace {

TEST(Team, RunsEveryTileOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    Team team(threads);
    ASSERT_EQ(team.threads(), threads);
    // Many rounds: a worker that missed or repeated a generation would show.
    for (const std::int64_t tiles : {0, 1, 2, 5, 1000}) {
      for (int round = 0; round < 50; ++round) {
        std::vector<int> count(static_cast<std::size_t>(tiles), 0);
        team.run(tiles, [&](std::int64_t tile, int thread) {
          ASSERT_GE(thread, 0);
          ASSERT_LT(thread, threads);
          ++count[static_cast<std::size_t>(tile)];
        });
        ASSERT_THAT(count, ::testing::Each(1));
      }
    }
  }
}

TEST(Team, OfOneThreadRunsInTheCaller) {
  Team team(1);
  std::set<std::thread::id> seen;
  team.run(10, [&](std::int64_t, int) { seen.insert(std::this_thread::get_id()); });
  EXPECT_THAT(seen, ::testing::ElementsAre(std::this_thread::get_id()));
}

TEST(Team, LetsThreadsWorkAtTheSameTime) {
  Team team(3);
  std::atomic<int> arrived{0};
  // Each tile waits for the two others: fewer than three threads would never get through.
  team.run(3, [&](std::int64_t, int) {
    arrived.fetch_add(1);
    while (arrived.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 3);
}

TEST(Team, MakesWhatTilesWroteVisibleToTheCaller) {
  Team team(2);
  std::vector<std::int64_t> values(257);
  for (std::int64_t round = 0; round < 1000; ++round) {
    team.run(257, [&](std::int64_t tile, int) {
      values[static_cast<std::size_t>(tile)] = tile * round;
    });
    for (std::int64_t i = 0; i < 257; ++i) {
      ASSERT_EQ(values[static_cast<std::size_t>(i)], i * round);
    }
  }
}

TEST(Team, RefusesToBeEmpty) { EXPECT_THROW(Team(0), InternalError); }

}  // namespace
}  // namespace sw
