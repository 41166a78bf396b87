#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "comm/communicator.hpp"
#include "device/arena.hpp"
#include "tests/comm/ranks.hpp"

/// Ranks that ask for something else, do not come, come late, stop or die.
namespace sw {
namespace {

using test::Backend;
using test::bytes_of;
using test::expect_ranks;
using test::first_ranks;
using test::Job;
using test::Outcome;
using test::run_ranks;
using test::Window;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

class Faults : public ::testing::TestWithParam<Backend> {
 protected:
  [[nodiscard]] static Job job(int ranks, double deadline_s = 30) {
    return {.backend = GetParam(), .ranks = ranks, .options = {.deadline_s = deadline_s}};
  }
};

/// A sum of `count` elements of `x`, in place.
Collective sum_of(std::span<float> x, std::size_t count, std::string name) {
  Collective call{.kind = CollectiveKind::AllReduce, .name = std::move(name)};
  call.segments = {{bytes_of(x), bytes_of(x), 1, static_cast<std::int64_t>(count), 1}};
  return call;
}

/// What keeps a rank busy without a word: until somebody aborts the job.
void say_nothing_until_aborted(World& world) {
  while (world.aborted().empty()) std::this_thread::yield();
  throw CommError(world.aborted());
}

struct Mismatch {
  const char* what;
  void (*change)(Collective& call);
  std::vector<const char*> named;
};

/// Rank 2 of three changes a collective in one point.
const std::vector<Mismatch> kMismatches = {
    {"size", [](Collective& call) { call.segments[0].length = 9; }, {"[1][10][1]", "[1][9][1]"}},
    {"shape",
     [](Collective& call) {
       call.segments[0].length = 5;
       call.segments[0].trailing = 2;
     },
     {"[1][10][1]", "[1][5][2]"}},
    {"segments",
     [](Collective& call) { call.segments.push_back(call.segments[0]); },
     {"1 segments", "2 segments"}},
    {"kind",
     [](Collective& call) { call.kind = CollectiveKind::ReduceScatter; },
     {"all_reduce", "reduce_scatter"}},
    {"operation", [](Collective& call) { call.op = ReduceOp::Max; }, {"sum", "max"}},
    {"type", [](Collective& call) { call.dtype = DType::Int32; }, {"float32", "int32"}},
    {"algorithm", [](Collective& call) { call.algorithm = Algorithm::Ring; }, {"direct", "ring"}},
    {"name", [](Collective& call) { call.name = "layer 4"; }, {"layer 3", "layer 4"}},
    {"root",
     [](Collective& call) {
       call.kind = CollectiveKind::Broadcast;
       call.peer = 1;
     },
     {"all_reduce", "broadcast", "root 1"}},
};

TEST_P(Faults, RanksThatAskForDifferentThingsAreNamedBeforeAByteMoves) {
  for (const Mismatch& mismatch : kMismatches) {
    const auto outcomes = run_ranks(job(3), [&](World& world) {
      Window window(world);
      const auto group = world.make_communicator("dp", first_ranks(3));
      const auto x = window.take<float>(20);
      std::fill(x.begin(), x.end(), 1.0F);
      group->run(sum_of(x.subspan(10), 10, "before"));
      Collective call = sum_of(x, 10, "layer 3");
      // Out of place, so that an untouched output shows.
      const auto y = window.take<float>(20);
      std::fill(y.begin(), y.end(), -1.0F);
      call.segments[0].output = bytes_of(y);
      if (world.rank() == 2) mismatch.change(call);
      EXPECT_THROW(
          {
            try {
              group->run(call);
            } catch (const CommError&) {
              EXPECT_THAT(y, Each(-1.0F));
              throw;
            }
          },
          CommError);
      throw CommError(world.aborted());
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_FALSE(outcome.failed);
      EXPECT_THAT(outcome.error, AllOf(StartsWith("CommError: call #2 on group dp"),
                                       HasSubstr("rank 0"), HasSubstr("rank 2")))
          << mismatch.what;
      for (const char* named : mismatch.named) {
        EXPECT_THAT(outcome.error, HasSubstr(named)) << mismatch.what;
      }
    }
  }
}

TEST_P(Faults, CountsOfAnExchangeThatDoNotPairUpAreNamed) {
  const auto outcomes = run_ranks(job(3), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("ep", first_ranks(3));
    Collective call{.kind = CollectiveKind::AllToAll, .name = "dispatch"};
    call.input_counts = {1, 2, 3};
    call.output_counts = {1, 2, 3};
    // Rank r sends j + 1 to rank j, which is what rank j must expect; rank 1 expects it of itself
    // only.
    for (std::int64_t& count : call.output_counts) count = world.rank() + 1;
    if (world.rank() == 1) call.output_counts[2] = 7;
    call.segments = {{bytes_of(window.take<float>(6)), bytes_of(window.take<float>(16))}};
    group->run(call);
  });
  EXPECT_THAT(outcomes,
              Each(Field(&Outcome::error,
                         AllOf(StartsWith("CommError"), HasSubstr("all_to_all 'dispatch'"),
                               HasSubstr("rank 2 sends 2 elements to rank 1, which expects 7")))));
}

TEST_P(Faults, TwoSendsDoNotMakeAPair) {
  const auto outcomes = run_ranks(job(2), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("pp", first_ranks(2));
    const auto x = window.take<float>(4);
    Collective call{.kind = CollectiveKind::Send, .peer = 1 - world.rank(), .name = "grad"};
    call.segments = {{bytes_of(x), nullptr, 1, 4, 1}};
    group->run(call);
  });
  EXPECT_THAT(outcomes, Each(Field(&Outcome::error, AllOf(HasSubstr("rank 0 calls send 'grad'"),
                                                          HasSubstr("rank 1 calls send 'grad'")))));
}

// Case C084.
TEST_P(Faults, ARankThatSkipsACollectiveIsFoundOutByTheNext) {
  const auto outcomes = run_ranks(job(4), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("dp", first_ranks(4));
    const auto x = window.take<float>(10);
    for (int layer = 0; layer < 5; ++layer) {
      if (world.rank() == 1 && layer == 2) continue;
      group->run(sum_of(x, 10, fmt::format("gradients layers.{}", layer)));
    }
  });
  EXPECT_THAT(outcomes,
              Each(Field(&Outcome::error,
                         AllOf(HasSubstr("call #3 on group dp"),
                               HasSubstr("rank 0 calls all_reduce 'gradients layers.2'"),
                               HasSubstr("rank 1 calls all_reduce 'gradients layers.3'")))));
}

// Case C084.
TEST_P(Faults, ARankThatDoesNotComeIsNamedWithWhatItDoes) {
  const auto outcomes = run_ranks(job(4, 1), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("dp", first_ranks(4));
    const auto x = window.take<float>(10);
    group->run(sum_of(x, 10, "first"));
    world.publish_progress(117, "forward layers.2.attention");
    if (world.rank() == 3) say_nothing_until_aborted(world);
    group->run(sum_of(x, 10, "gradients layers.3"));
  });
  EXPECT_THAT(outcomes,
              Each(Field(&Outcome::error,
                         AllOf(HasSubstr("all_reduce #2 'gradients layers.3' on group dp: no "
                                         "arrival from rank 3 after 1 s (ranks 0, 1, 2 there)"),
                               HasSubstr("rank 3 is in 'forward layers.2.attention' (instruction "
                                         "117, ")))));
}

// Case C084.
TEST_P(Faults, ASlowRankThatPublishesProgressIsLateAndNotLost) {
  constexpr double kDeadline_s = 1;
  expect_ranks(job(3, kDeadline_s), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("dp", first_ranks(3));
    const auto x = window.take<float>(10);
    group->run(sum_of(x, 10, "first"));
    if (world.rank() == 0) {
      const auto end = Clock::now() + std::chrono::duration<double>(2.5 * kDeadline_s);
      for (int i = 0; Clock::now() < end; ++i) {
        world.publish_progress(i, "reading data");
        std::this_thread::yield();
      }
    }
    group->run(sum_of(x, 10, "second"));
  });
}

TEST_P(Faults, WhoKeepsOthersWaitingIsNamedAndNotWhoWaits) {
  // Rank 0 waits for rank 1, which waits for rank 2, which says nothing.
  const auto outcomes = run_ranks(job(3, 1), [](World& world) {
    const auto low = world.rank() < 2 ? world.make_communicator("low", {0, 1}) : nullptr;
    const auto high = world.rank() > 0 ? world.make_communicator("high", {1, 2}) : nullptr;
    const Collective barrier{.kind = CollectiveKind::Barrier};
    if (world.rank() == 2) {
      high->run(barrier);
      say_nothing_until_aborted(world);
    }
    if (world.rank() == 1) {
      high->run(barrier);
      high->run(barrier);
    }
    low->run(barrier);
  });
  EXPECT_THAT(outcomes, Each(Field(&Outcome::error,
                                   HasSubstr("rank 1: barrier #2 on group high: no arrival from "
                                             "rank 2"))));
}

TEST_P(Faults, RanksThatWaitForEachOtherAreNamedToo) {
  const auto outcomes = run_ranks(job(2, 0.5), [](World& world) {
    const auto a = world.make_communicator("a", first_ranks(2));
    const auto b = world.make_communicator("b", first_ranks(2));
    (world.rank() == 0 ? a : b)->run({.kind = CollectiveKind::Barrier});
  });
  EXPECT_THAT(outcomes,
              Each(Field(&Outcome::error, AllOf(HasSubstr("no arrival from rank"),
                                                HasSubstr("waiting in barrier #1 on group ")))));
}

TEST_P(Faults, AnAbortWakesEverybodyWithTheFirstMessage) {
  const auto outcomes = run_ranks(job(4), [](World& world) {
    const auto group = world.make_communicator("dp", first_ranks(4));
    const auto pair =
        world.make_communicator("pair", {world.rank() / 2 * 2, world.rank() / 2 * 2 + 1});
    group->run({.kind = CollectiveKind::Barrier});
    if (world.rank() == 3) {
      world.abort("the disk is full");
      world.abort("a later complaint");
      return;
    }
    (world.rank() == 0 ? group : pair)->run({.kind = CollectiveKind::Barrier});
    group->run({.kind = CollectiveKind::Barrier});
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(outcomes[rank].error, "CommError: the disk is full");
  }
}

TEST_P(Faults, AWindowThatDoesNotFitIsRefusedOnEveryRankAndASmallerOneGoesOn) {
  expect_ranks(job(2), [](World& world) {
    constexpr std::int64_t kTooMuch = std::int64_t{1} << 46;
    try {
      // `local` ranks ask alone, `shm` ranks together.
      (void)world.allocate_window(kTooMuch);
      ADD_FAILURE() << "64 TiB were there";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), HasSubstr("70368744177664"));
    }
    Window window(world);
    const auto group = world.make_communicator("dp", first_ranks(2));
    const auto x = window.take<float>(10);
    std::fill(x.begin(), x.end(), 1.0F);
    group->run(sum_of(x, 10, "after"));
    EXPECT_THAT(x, Each(2.0F));
  });
}

TEST_P(Faults, WrongArgumentsAreRefusedWithoutCommunication) {
  expect_ranks(job(2), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("dp", first_ranks(2));
    const auto x = window.take<float>(16);
    const auto refuse = [&](auto change, auto expected) {
      Collective call = sum_of(x, 8, "x");
      change(call);
      EXPECT_THROW((void)group->prepare(call), decltype(expected));
    };
    const InternalError bug("");
    const ConfigError unsupported("");
    refuse([](Collective& c) { c.segments[0].output += 4; }, bug);  // overlap
    refuse([](Collective& c) { c.segments[0].output = nullptr; }, bug);
    refuse([](Collective& c) { c.segments[0].input += 33; }, bug);  // alignment
    refuse([](Collective& c) { c.segments[0].length = -1; }, unsupported);
    refuse([](Collective& c) { c.segments[0].outer = std::int64_t{1} << 62; }, unsupported);
    refuse([](Collective& c) { c.dtype = DType::Float16; }, unsupported);
    refuse(
        [](Collective& c) {
          c.kind = CollectiveKind::Broadcast;
          c.peer = 2;
        },
        bug);
    refuse(
        [](Collective& c) {
          c.kind = CollectiveKind::Send;
          c.peer = 2;
        },
        bug);
    refuse(
        [](Collective& c) {
          c.kind = CollectiveKind::Broadcast;
          c.peer = 0;
          c.algorithm = Algorithm::Ring;
        },
        unsupported);
    refuse([](Collective& c) { c.kind = CollectiveKind::AllToAll; }, bug);  // no counts
    if (GetParam() == Backend::Shm) {
      std::vector<float> outside(8);
      refuse([&](Collective& c) { c.segments[0].input = bytes_of(std::span(outside)); }, bug);
    }
    EXPECT_THROW((void)world.make_communicator("x", {1, 0}), InternalError);
    EXPECT_THROW((void)world.make_communicator("x", {0, 1, 2}), InternalError);
  });
}

std::string name_of(const ::testing::TestParamInfo<Backend>& info) {
  return std::string(to_text(info.param));
}
INSTANTIATE_TEST_SUITE_P(Backends, Faults, ::testing::Values(Backend::Local, Backend::Shm),
                         name_of);

/// An arena is unmapped when it goes, so that a late read crashes.
TEST(LocalFaults, NobodyReadsTheMemoryOfARankThatGaveUp) {
  std::mt19937 random(3);
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::atomic<int> calls = 0;
    const auto moment = std::chrono::microseconds(random() % 20'000);
    const auto outcomes = run_ranks({.backend = Backend::Local, .ranks = 3}, [&](World& world) {
      std::thread complainer;
      if (world.rank() == 0) {
        // Not in step with the collectives: the abort may come while ranks read.
        complainer = std::thread([&] {
          while (calls < 1) std::this_thread::yield();
          const auto then = Clock::now() + moment;
          while (Clock::now() < then) {
          }
          world.abort("enough");
        });
      }
      try {
        const auto group = world.make_communicator("dp", first_ranks(3));
        const Arena own(1 << 24);
        const std::span x(reinterpret_cast<float*>(own.data()), std::size_t{1} << 22);
        for (;;) {
          group->run(sum_of(x, x.size(), "own memory"));
          ++calls;
        }
      } catch (const CommError&) {
        if (complainer.joinable()) complainer.join();
        throw;
      }
    });
    EXPECT_THAT(outcomes, Each(Field(&Outcome::error, "CommError: enough")));
  }
}

}  // namespace
}  // namespace sw
