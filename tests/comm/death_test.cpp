#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <new>
#include <random>
#include <system_error>
#include <thread>

#include "comm/communicator.hpp"
#include "tests/comm/ranks.hpp"

/// Ranks that are killed or stopped, at moments nobody chose.
namespace sw {
namespace {

using test::Backend;
using test::bytes_of;
using test::first_ranks;
using test::Job;
using test::Outcome;
using test::run_ranks;
using test::Window;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// A counter that parent and ranks share.
class SharedCounter {
 public:
  SharedCounter()
      : memory_(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        value_(*new (memory_) std::atomic<std::int64_t>(0)) {}
  ~SharedCounter() { munmap(memory_, 4096); }
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;

  void add() { value_.fetch_add(1); }
  /// Ends early if the job does.
  void wait_for(std::int64_t count, const ShmJob& job) const {
    while (value_.load() < count && job.aborted().empty()) std::this_thread::yield();
  }

 private:
  void* memory_;
  std::atomic<std::int64_t>& value_;
};

/// Adds up for ever, at sizes of a few blocks, and says what it does.
std::function<void(World&)> train_for_ever(SharedCounter& calls) {
  return [&calls](World& world) {
    Window window(world);
    const auto group = world.make_communicator("dp", first_ranks(world.size()));
    const auto x = window.take<float>(30'000);
    std::fill(x.begin(), x.end(), 0.0F);
    Collective call{.kind = CollectiveKind::AllReduce, .name = "gradients"};
    call.segments = {{bytes_of(x), bytes_of(x), 1, static_cast<std::int64_t>(x.size()), 1}};
    const auto prepared = group->prepare(call);
    for (std::int64_t i = 0;; ++i) {
      world.publish_progress(i, "forward layers.2");
      prepared->run();
      calls.add();
    }
  };
}

/// Files of ours where other programs keep shared memory: a job must have none.
int files_in_dev_shm() {
  int count = 0;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", absent)) {
    count += entry.path().string().find("shardwright") != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(Death, SurvivorsOfAKilledRankEndAtOnceNamingItAndNothingIsLeft) {
  std::mt19937 random(20260101);
  for (int attempt = 0; attempt < 20; ++attempt) {
    constexpr int kRanks = 3;
    SharedCounter calls;
    const int victim = static_cast<int>(random() % kRanks);
    const std::int64_t moment = static_cast<std::int64_t>(random() % 45);
    Clock::time_point killed;
    const Job job{.backend = Backend::Shm,
                  .ranks = kRanks,
                  .options = {.deadline_s = 120},
                  .meanwhile = [&](ShmJob& shared, const std::vector<int>& processes) {
                    calls.wait_for(moment, shared);
                    // Up to 2 ms: somewhere inside a call, too.
                    killed = Clock::now() + std::chrono::microseconds(random() % 2000);
                    while (Clock::now() < killed) {
                    }
                    kill(processes[static_cast<std::size_t>(victim)], SIGKILL);
                  }};
    const auto outcomes = run_ranks(job, train_for_ever(calls));
    // Long before the deadline, on a busy machine too.
    EXPECT_LT(Clock::now() - killed, std::chrono::seconds(30));
    for (int rank = 0; rank < kRanks; ++rank) {
      const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      if (rank == victim) {
        EXPECT_EQ(outcome.signal, SIGKILL);
      } else {
        EXPECT_EQ(outcome.error, fmt::format("CommError: rank {} was killed by signal 9", victim));
      }
    }
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(files_in_dev_shm(), 0);
}

TEST(Death, WithoutASupervisorTheDeadlineNamesTheKilledRank) {
  std::mt19937 random(7);
  for (int attempt = 0; attempt < 2; ++attempt) {
    SharedCounter calls;
    const std::int64_t moment = 20 + static_cast<std::int64_t>(random() % 40);
    const Job job{.backend = Backend::Shm,
                  .ranks = 3,
                  .options = {.deadline_s = 2},
                  .meanwhile =
                      [&](ShmJob& shared, const std::vector<int>& processes) {
                        calls.wait_for(moment, shared);
                        kill(processes[1], SIGKILL);
                      },
                  .supervised = false};
    const auto outcomes = run_ranks(job, train_for_ever(calls));
    for (const std::size_t survivor : {0, 2}) {
      EXPECT_THAT(outcomes[survivor].error,
                  AllOf(HasSubstr("'gradients' on group dp: no arrival from rank 1 after 2 s"),
                        HasSubstr("rank 1 is in 'forward layers.2' (instruction ")));
    }
  }
}

// Case C084.
TEST(Death, AStoppedRankIsNamedWithinTheDeadline) {
  SharedCounter calls;
  const Job job{.backend = Backend::Shm,
                .ranks = 4,
                .options = {.deadline_s = 2},
                .meanwhile = [&](ShmJob& shared, const std::vector<int>& processes) {
                  calls.wait_for(30, shared);
                  kill(processes[2], SIGSTOP);
                  EXPECT_THAT(shared.progress(2), HasSubstr("is in 'forward layers.2'"));
                  const auto stopped = Clock::now();
                  while (shared.aborted().empty()) std::this_thread::yield();
                  // The deadline and the 5 s of case C084.
                  EXPECT_LT(Clock::now() - stopped, std::chrono::seconds(2 + 5));
                  kill(processes[2], SIGKILL);
                }};
  const auto outcomes = run_ranks(job, train_for_ever(calls));
  for (const std::size_t survivor : {0, 1, 3}) {
    EXPECT_THAT(outcomes[survivor].error,
                AllOf(HasSubstr("all_reduce #"), HasSubstr("'gradients' on group dp"),
                      HasSubstr("no arrival from rank 2 after 2 s"),
                      HasSubstr("rank 2 is in 'forward layers.2' (instruction ")));
  }
}

TEST(Death, ARankThatNeverJoinsIsNamed) {
  const Job job{
      .backend = Backend::Shm,
      .ranks = 3,
      .options = {.deadline_s = 2},
      .meanwhile = [](ShmJob&, const std::vector<int>& processes) { kill(processes[1], SIGKILL); },
      .supervised = false};
  const auto outcomes = run_ranks(job, [](World& world) {
    // Goes on only if the signal came after rank 1 had joined.
    const auto group = world.make_communicator("all", first_ranks(3));
    for (;;) group->run({.kind = CollectiveKind::Barrier});
  });
  for (const std::size_t survivor : {0, 2}) {
    EXPECT_THAT(outcomes[survivor].error, HasSubstr("no arrival from rank 1 after 2 s"));
  }
}

TEST(Death, ADescriptorThatIsNoJobIsRefused) {
  EXPECT_THROW((void)join_shm_world(0, 0), CommError);
  EXPECT_THROW((void)join_shm_world(-1, 0), CommError);
  const ShmJob job(2, {});
  EXPECT_THROW((void)join_shm_world(job.descriptor(), 2), CommError);
}

}  // namespace
}  // namespace sw
