#include <gmock/gmock.h>

#include <chrono>

#include "base/error.hpp"
#include "runtime/executor.hpp"
#include "tests/program/builder.hpp"
#include "tests/program/exchange.hpp"
#include "tests/runtime/ranks.hpp"

namespace sw {
namespace {

using test::Builder;
using test::RankRun;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Zeroes, and on another stream reduces `elements` over all ranks, which compute then waits for.
Program reduce_and_use(int rank, int ranks, std::int64_t elements) {
  Builder b(rank, ranks, {"compute", "communication"});
  const Operand x = b.state("x", {elements}, Lane::Window);
  std::vector<int> members;
  for (int r = 0; r < ranks; ++r) members.push_back(r);
  const GroupId dp = b.group("dp", 1, members);
  b.zero(x);
  b.collective(CollectiveKind::AllReduce, dp, x, x);
  b.kernel("add", {x, x}, b.tensor("y", {elements}));
  return b.finish();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A rank's world in which something outside of communication goes wrong at the third instruction.
class FailingWorld : public World {
 public:
  explicit FailingWorld(World& world) : world_(world) {}
  [[nodiscard]] int rank() const override { return world_.rank(); }
  [[nodiscard]] int size() const override { return world_.size(); }
  std::span<std::byte> allocate_window(std::int64_t bytes) override {
    return world_.allocate_window(bytes);
  }
  std::unique_ptr<Communicator> make_communicator(std::string name,
                                                  std::vector<int> members) override {
    return world_.make_communicator(std::move(name), std::move(members));
  }
  void publish_progress(std::int64_t instruction, const char* phase) override {
    if (instruction == 2) throw DeviceError("the device caught fire");
    world_.publish_progress(instruction, phase);
  }
  void abort(std::string_view message) override { world_.abort(message); }
  [[nodiscard]] std::string aborted() const override { return world_.aborted(); }

 private:
  World& world_;
};

TEST(ExecutorErrors, AnyErrorOfOneRankEndsTheOthersInTheirCollectives) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = test::run_worlds(2, {.deadline_s = 30}, [](World& world) {
    const Program program = reduce_and_use(world.rank(), 2, 8);
    FailingWorld failing(world);
    RankRun run(world.rank() == 1 ? failing : world, program);
    run.executor->run();
    run.executor->run();  // where rank 0 meets nobody
  });
  EXPECT_THAT(test::message_of(errors[0]), HasSubstr("caught fire"));
  EXPECT_THROW(std::rethrow_exception(errors[1]), DeviceError);
  EXPECT_LT(seconds_since(start), 15);
}

TEST(ExecutorErrors, AMismatchEndsAllStreamsOfAllRanksNamingBothSides) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = test::run_worlds(3, {.deadline_s = 30}, [](World& world) {
    const Program program = reduce_and_use(world.rank(), 3, world.rank() == 1 ? 9 : 8);
    RankRun run(world, program);
    run.executor->run();
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_THAT(test::message_of(error), HasSubstr("all_reduce"));
  }
  EXPECT_LT(seconds_since(start), 15) << "nobody waited out the deadline";
}

TEST(ExecutorErrors, ARankThatNeverComesEndsTheOthersAfterTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = test::run_worlds(3, {.deadline_s = 0.3}, [](World& world) {
    const Program program = reduce_and_use(world.rank(), 3, 8);
    RankRun run(world, program);
    if (world.rank() != 2) run.executor->run();
  });
  EXPECT_THAT(test::message_of(errors[0]), AllOf(HasSubstr("all_reduce"), HasSubstr("rank 2")));
  EXPECT_THAT(test::message_of(errors[1]), HasSubstr("rank 2"));
  EXPECT_EQ(test::message_of(errors[2]), "");
  EXPECT_LT(seconds_since(start), 20);
}

TEST(ExecutorErrors, AnAbortFromOutsideEndsTheRunAndTheExecutorIsOfNoUseThen) {
  const auto errors = test::run_worlds(2, {.deadline_s = 30}, [](World& world) {
    const Program program = reduce_and_use(world.rank(), 2, 8);
    RankRun run(world, program);
    if (world.rank() == 1) {
      world.abort("rank 1 has had enough");
      return;
    }
    EXPECT_THROW(run.executor->run(), CommError);
    EXPECT_THROW(run.executor->run(), InternalError);
    EXPECT_THAT(world.aborted(), HasSubstr("had enough"));
  });
  for (const std::exception_ptr& error : errors) EXPECT_EQ(test::message_of(error), "");
}

TEST(ExecutorErrors, TheDeadlineMessageSaysWhatTheMissingRankIsDoing) {
  // Rank 1 waits in a reduction with rank 2, which ends without it.
  const auto errors = test::run_worlds(3, {.deadline_s = 0.3}, [](World& world) {
    Builder b(world.rank(), 3);
    const Operand x = b.state("x", {8}, Lane::Window);
    const GroupId dp = world.rank() < 2 ? b.group("dp", 0, {0, 1}) : -1;
    const GroupId tp = world.rank() > 0 ? b.group("tp", 0, {1, 2}) : -1;
    b.zero(x);
    if (tp >= 0) {
      b.add("layers.7.norm", KernelWork{"add", {}, {false}}, {x, x}, {x});
      b.collective(CollectiveKind::AllReduce, tp, x, x);
    }
    if (dp >= 0) b.collective(CollectiveKind::AllReduce, dp, x, x);
    const Program program = b.finish();
    RankRun run(world, program);
    if (world.rank() != 2) run.executor->run();
  });
  EXPECT_THAT(test::message_of(errors[0]), HasSubstr("rank"));
  EXPECT_THAT(test::message_of(errors[1]), HasSubstr("rank"));
  EXPECT_THAT(test::message_of(errors[0]) + test::message_of(errors[1]),
              ::testing::AnyOf(HasSubstr("forward all_reduce"), HasSubstr("rank 2")));
}

TEST(ExecutorErrors, RefusesTheProgramOfAnotherRank) {
  const auto worlds = make_local_worlds(1, {});
  const Program program = reduce_and_use(1, 2, 8);
  const Program* programs[] = {&program};
  RankMemory memory(*worlds[0], programs);
  Team team(1);
  EXPECT_THROW(Executor(program, *worlds[0], memory, team, {}), InternalError);
}

TEST(ExecutorErrors, RefusesScratchThatIsTooSmall) {
  Builder b;
  const Operand q = b.state("q", {1, 8, 2, 4});
  const Operand positions = b.tensor("p", {1, 8}, Lane::Private, true, DType::Int32);
  const Operand o = b.state("o", {1, 8, 2, 4});
  const Operand lse = b.state("lse", {1, 8, 2});
  b.add("attention", KernelWork{"attention", kernels::AttentionParameters{}, {false, false}},
        {q, q, q, positions, positions, positions, positions}, {o, lse});
  const Program program = b.finish();
  const auto worlds = make_local_worlds(1, {});
  EXPECT_THROW(RankRun(*worlds[0], program), InternalError);
}

}  // namespace
}  // namespace sw
