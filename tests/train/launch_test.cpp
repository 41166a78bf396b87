#include "train/launch.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

namespace sw {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LaunchResult launch(const std::string& role, const std::string& payload = "") {
  LaunchOptions options;
  options.ranks = 3;
  options.role = role;
  options.payload = payload;
  options.world.deadline_s = 5;
  options.executable = SW_LAUNCH_CHILD;
  return launch_ranks(options);
}

TEST(Launch, RanksGetTheirPayloadAndEndWithZero) {
  EXPECT_EQ(launch("payload", "every\nbyte").status, 0);
}

TEST(Launch, AKilledRankIsNamedWithItsSignalAndWhatItWasDoing) {
  const LaunchResult result = launch("killed");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.message, AllOf(HasSubstr("rank 1 on "), HasSubstr("killed by signal 9"),
                                    HasSubstr("instruction 117"), HasSubstr("forward layers.2")));
}

TEST(Launch, ARankThatThrowsIsNamedWithItsMessage) {
  const LaunchResult result = launch("throw");
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.message, "rank 1: out of luck");
}

TEST(Launch, ARankThatLeavesWithoutAWordIsNamedWithItsExitStatus) {
  const LaunchResult result = launch("exits");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.message, AllOf(HasSubstr("rank 1 on "), HasSubstr("exit status 5")));
  EXPECT_THAT(launch("leaves").message, HasSubstr("exit status 1"));
}

TEST(Launch, AStatusThatAllRanksEndWithIsTheResult) { EXPECT_EQ(launch("differs").status, 3); }

/// Decision 0014.
TEST(Launch, NoThreadOfARankCanBeInterruptedByAStop) { EXPECT_EQ(launch("mask").status, 0); }

TEST(Launch, ASignalBecomesAStopThatRanksAgreeOn) {
  const LaunchResult result = launch("stop");
  EXPECT_EQ(result.status, 75);
  EXPECT_EQ(result.message, "");
}

TEST(Launch, ASecondSignalEndsRanksThatDoNotStop) {
  const LaunchResult result = launch("deaf");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.message, HasSubstr("second signal"));
}

TEST(Launch, RanksDieWithTheirLauncher) {
  // Orphans come to this process, so that their end can be waited for.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    (void)launch("orphan", std::to_string(ends[1]));
    ::_exit(0);
  }
  std::set<pid_t> waited_for = {launcher};
  for (int rank = 0; rank < 3; ++rank) {
    pid_t id = 0;
    ASSERT_EQ(::read(ends[0], &id, sizeof(id)), static_cast<ssize_t>(sizeof(id)));
    waited_for.insert(id);
  }
  ::kill(launcher, SIGKILL);
  while (!waited_for.empty()) {
    int status = 0;
    const pid_t id = ::waitpid(-1, &status, 0);
    ASSERT_GT(id, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    waited_for.erase(id);
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(LocalRanks, AreThreadsThatReportTheFirstError) {
  WorldOptions options;
  options.deadline_s = 5;
  EXPECT_EQ(
      run_local_ranks(3, options, [](World& world) { return world.size() == 3 ? 0 : 1; }).status,
      0);
  const LaunchResult result = run_local_ranks(3, options, [](World& world) -> int {
    const auto group = world.make_communicator("world", {0, 1, 2});
    if (world.rank() == 2) {
      throw std::runtime_error("out of luck");
    }
    Collective barrier;
    group->run(barrier);
    return 0;
  });
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.message, "rank 2: out of luck");
}

TEST(LocalRanks, CannotBeInterruptedByAStop) {
  const auto body = [](World&) {
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    return sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGINT) == 1 ? 0 : 1;
  };
  EXPECT_EQ(run_local_ranks(2, {}, body).status, 0);
}

}  // namespace
}  // namespace sw
