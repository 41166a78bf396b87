#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "comm/communicator.hpp"
#include "tests/allocations.hpp"
#include "tests/comm/ranks.hpp"

namespace sw {
namespace {

// Ranks are processes, so that each counts for itself.
TEST(PreparedCollectives, AllocateNothingAwakeOrAsleep) {
  test::expect_ranks({.backend = test::Backend::Shm, .ranks = 2}, [](World& world) {
    using Clock = std::chrono::steady_clock;
    test::Window window(world);
    const auto group = world.make_communicator("all", test::first_ranks(2));
    const auto x = window.take<float>(1001);
    std::fill(x.begin(), x.end(), 1.0F);
    std::byte* bytes = test::bytes_of(x);
    const auto prepared = group->prepare({.kind = CollectiveKind::AllReduce,
                                          .segments = {{bytes, bytes, 1, 1001, 1}},
                                          .name = "a name longer than a short string"});
    for (const int late : {0, 1}) {
      // Long enough for the other to fall asleep over.
      const auto begin = Clock::now() + std::chrono::milliseconds(world.rank() == late ? 50 : 0);
      while (Clock::now() < begin) {
      }
      const std::int64_t before = test::allocations();
      prepared->run();
      EXPECT_EQ(test::allocations(), before) << "late: rank " << late;
    }
    EXPECT_EQ(x[0], 4.0F);
  });
}

}  // namespace
}  // namespace sw
