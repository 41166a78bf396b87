#include "runtime/executor.hpp"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "base/error.hpp"
#include "simulate/simulate.hpp"
#include "tests/allocations.hpp"
#include "tests/program/any_numbers.hpp"
#include "tests/program/builder.hpp"
#include "tests/program/exchange.hpp"
#include "tests/program/random_program.hpp"
#include "tests/runtime/ranks.hpp"

namespace sw {
namespace {

using test::Builder;
using test::Choices;
using test::Exchange;
using test::RankRun;
using ::testing::Each;

/// A world of one that refuses to communicate, and remembers what was published.
class LonelyWorld : public World {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  std::span<std::byte> allocate_window(std::int64_t bytes) override {
    window_ = Arena(bytes);
    return {window_.data(), static_cast<std::size_t>(bytes)};
  }
  std::unique_ptr<Communicator> make_communicator(std::string, std::vector<int>) override {
    throw InternalError("nobody to talk to");
  }
  void publish_progress(std::int64_t instruction, const char* phase) override {
    progress.emplace_back(instruction, phase);
  }
  void abort(std::string_view message) override { message_ = message; }
  [[nodiscard]] std::string aborted() const override { return message_; }

  std::vector<std::pair<std::int64_t, std::string>> progress;

 private:
  Arena window_;
  std::string message_;
};

std::vector<std::vector<float>> state_of(const Program& program, const RankMemory& memory) {
  std::vector<std::vector<float>> state;
  for (std::size_t b = 0; b < program.buffers.size() && program.buffers[b].persistent; ++b) {
    const Operand whole{static_cast<BufferId>(b), 0, DType::UInt8, {program.buffers[b].bytes}};
    const auto* begin = reinterpret_cast<const float*>(memory.address(program, whole));
    state.emplace_back(begin, begin + program.buffers[b].bytes / 4);
  }
  return state;
}

void set_state(const Program& program, const RankMemory& memory,
               const std::vector<std::vector<float>>& state) {
  for (std::size_t b = 0; b < state.size(); ++b) {
    const Operand whole{static_cast<BufferId>(b), 0, DType::UInt8, {program.buffers[b].bytes}};
    std::memcpy(memory.address(program, whole), state[b].data(), state[b].size() * 4);
  }
}

std::vector<std::vector<float>> first_state(const Program& program) {
  std::vector<std::vector<float>> state;
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.persistent) break;
    std::vector<float>& values = state.emplace_back();
    for (std::int64_t i = 0; i < buffer.bytes / 4; ++i) {
      values.push_back(1e-3F * static_cast<float>(1 + i + 1000 * static_cast<int>(state.size())));
    }
  }
  return state;
}

RC_GTEST_PROP(Executor, GivesOnSeveralStreamsWhatTheListGivesOneAfterTheOther, ()) {
  Program program = test::random_program(Choices(*test::any_numbers()));
  add_data_edges(program);
  map_memory(program);
  LonelyWorld world;
  RankRun run(world, program);
  std::vector<std::vector<float>> expected = first_state(program);
  set_state(program, run.memory, expected);
  for (int i = 0; i < 3; ++i) {
    expected = test::run_plainly(program, expected);
    run.executor->run();
    RC_ASSERT(state_of(program, run.memory) == expected);
  }
}

TEST(Executor, RunsAProgramOfOneRankWithoutCommunicationAndSaysWhatItIsIn) {
  Builder b;
  const Operand x = b.state("x", {5});
  b.zero(x);
  b.kernel("add", {x, x}, b.tensor("y", {5}));
  b.program().instructions[1].phase = Phase::Backward;
  const Program program = b.finish();
  LonelyWorld world;
  RankRun run(world, program);
  run.executor->run();
  EXPECT_THAT(world.progress, ::testing::ElementsAre(::testing::Pair(0, "forward zero"),
                                                     ::testing::Pair(1, "backward add")));
  EXPECT_TRUE(run.executor->ledger().empty());
}

class ExchangeTest : public ::testing::TestWithParam<std::tuple<int, Algorithm>> {
 protected:
  [[nodiscard]] static int ranks() { return std::get<0>(GetParam()); }
  [[nodiscard]] static ExecutorOptions options() {
    return {.algorithm = std::get<1>(GetParam()), .threads = 1, .may_spin = false};
  }
};

void write_inputs(const Exchange& e, const RankRun& run, int rank) {
  std::fill_n(run.data(e.ones), Exchange::kFlat, static_cast<float>(rank + 1));
  std::fill_n(run.data(e.sum), Exchange::kFlat, 0.0F);
  std::fill_n(run.data(e.scattered), elements(e.scattered.shape), 0.0F);
  for (std::int64_t i = 0; i < elements(e.gathered.shape); ++i) {
    run.data(e.gathered)[i] = static_cast<float>(i);
  }
  std::fill_n(run.data(e.passed), 7, static_cast<float>(10 + rank));
  std::fill_n(run.data(e.shared), 5, static_cast<float>(20 + rank));
}

TEST_P(ExchangeTest, CollectivesOnTwoStreamsGiveTheClosedForms) {
  const int n = ranks();
  test::run_ranks(n, [&](World& world) {
    const Exchange e = test::make_exchange(world.rank(), n);
    RankRun run(world, e.program, options());
    write_inputs(e, run, world.rank());
    run.executor->run();
    const auto values = [&](const Operand& operand) {
      return std::span(run.data(operand), static_cast<std::size_t>(elements(operand.shape)));
    };
    // 2 x (1 + ... + n) + (rank + 1)
    EXPECT_THAT(values(e.sum), Each(static_cast<float>(n * (n + 1) + world.rank() + 1)));
    EXPECT_THAT(values(e.passed), Each(static_cast<float>(world.rank() <= 1 ? 10 : 12)));
    EXPECT_THAT(values(e.shared), Each(static_cast<float>(20 + n - 1)));
    for (std::int64_t i = 0; i < elements(e.gathered.shape); ++i) {
      EXPECT_EQ(run.data(e.gathered)[i], static_cast<float>(n * i));
    }
    const Range mine = split(Exchange::kCut, n, world.rank());
    for (std::int64_t i = 0; i < elements(e.scattered.shape); ++i) {
      const std::int64_t row = e.part * Exchange::kInner;
      const std::int64_t from =
          i / row * Exchange::kCut * Exchange::kInner + mine.begin * Exchange::kInner + i % row;
      EXPECT_EQ(run.data(e.scattered)[i], static_cast<float>(n * from));
    }
  });
}

/// Calls and bytes; time is not compared.
std::vector<std::tuple<Traffic, std::string, std::int64_t, std::int64_t>> counts(
    const Ledger& ledger) {
  std::vector<std::tuple<Traffic, std::string, std::int64_t, std::int64_t>> list;
  for (const auto& [key, entry] : ledger) {
    list.emplace_back(key.first, key.second, entry.calls, entry.sent_bytes);
  }
  return list;
}

TEST_P(ExchangeTest, PlannedSimulatedAndExecutedLedgerAreTheSameIntegers) {
  const int n = ranks();
  const Algorithm algorithm = options().algorithm;
  const std::vector<Program> programs = test::exchange_programs(n);
  const Simulation simulation = simulate(programs, algorithm, Machine{});
  test::run_ranks(n, [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    RankRun run(world, programs[rank], options());
    const auto planned = counts(planned_ledger(programs[rank], algorithm));
    EXPECT_EQ(counts(simulation.ledgers[rank]), planned);
    for (int i = 0; i < 2; ++i) {
      run.executor->reset_ledger();
      run.executor->run();
      EXPECT_EQ(counts(run.executor->ledger()), planned);
    }
    run.executor->run();
    for (const auto& [key, entry] : run.executor->ledger()) {
      EXPECT_EQ(entry.calls, 2 * planned_ledger(programs[rank], algorithm).at(key).calls);
      EXPECT_GE(entry.seconds, entry.wait_seconds);
    }
  });
}

/// 4 KB at 1 MB/s take 4 ms, whatever this machine's memory does.
TEST(Copies, CrossTheLinkCountedAndNoFasterThanItIs) {
  Builder b(0, 1, {"compute", "to_host", "to_device"});
  const Operand x = b.state("x", {1000});
  const Operand kept = b.state("kept", {1000}, Lane::Host);
  const Operand sum = b.state("sum", {500});
  const Operand back = b.tensor("back", {500});
  b.add("out", CopyWork{}, {x}, {kept}, 1);
  b.add("in", CopyWork{}, {test::part(kept, 500, 500)}, {back}, 2);
  b.kernel("add", {back, back}, sum);
  const Program program = b.finish();
  verify(program);
  const auto worlds = make_local_worlds(1, {});
  RankRun run(*worlds[0], program, {.host_link_bytes_per_s = 1e6});
  for (int i = 0; i < 1000; ++i) run.data(x)[i] = static_cast<float>(i);
  run.executor->run();
  for (int i = 0; i < 500; ++i) ASSERT_EQ(run.data(sum)[i], static_cast<float>(2 * (500 + i)));
  EXPECT_EQ(run.memory.measured_host(), memory_account(program).host);
  EXPECT_EQ(run.memory.measured_peak(), memory_account(program).peak);
  const Ledger ledger = run.executor->ledger();
  EXPECT_EQ(counts(ledger), counts(planned_ledger(program, Algorithm::Direct)));
  EXPECT_GE(ledger.at({CopyDirection::ToHost, "host"}).seconds, 4e-3);
  EXPECT_GE(ledger.at({CopyDirection::ToDevice, "host"}).seconds, 2e-3);
}

TEST_P(ExchangeTest, PlannedMemoryIsTheHighestByteTouched) {
  const int n = ranks();
  test::run_ranks(n, [&](World& world) {
    const Exchange e = test::make_exchange(world.rank(), n);
    RankRun run(world, e.program, options());
    EXPECT_LT(run.memory.measured_peak(), memory_account(e.program).peak) << "nothing ran yet";
    write_inputs(e, run, world.rank());
    run.executor->run();
    EXPECT_EQ(run.memory.measured_peak(), memory_account(e.program).peak);
    // One byte past the plan shows.
    std::byte* end =
        run.memory.address(e.program, {0, 0, DType::UInt8, {0}}) -  // start of the lane
        e.program.buffers[0].offset + e.program.private_bytes;
    *end = std::byte{0x55};
    *(end + 1) = std::byte{0x55};
    EXPECT_GT(run.memory.measured_peak(), memory_account(e.program).peak);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeTest,
                         ::testing::Combine(::testing::Values(2, 3),
                                            ::testing::Values(Algorithm::Direct, Algorithm::Ring)));

TEST(Executor, ATimelineKeepsTheOrder) {
  test::run_ranks(2, [](World& world) {
    const Exchange e = test::make_exchange(world.rank(), 2);
    RankRun run(world, e.program);
    run.executor->run();
    run.executor->run();
    const Timeline& timeline = run.executor->timeline();
    const Order order(e.program);
    ASSERT_EQ(timeline.size(), e.program.instructions.size());
    for (std::size_t i = 0; i < timeline.size(); ++i) {
      EXPECT_EQ(timeline[i].instruction, static_cast<InstructionId>(i));
      EXPECT_LE(timeline[i].start, timeline[i].end);
      for (const InstructionId before : order.predecessors(static_cast<InstructionId>(i))) {
        EXPECT_LE(timeline[static_cast<std::size_t>(before)].end, timeline[i].start);
      }
    }
  });
}

TEST(Executor, ARunAllocatesNothing) {
  Builder b(0, 1, {"compute", "other"});
  const Operand x = b.state("x", {64, 64});
  const Operand y = b.state("y", {64, 64});
  b.zero(y);
  b.add("slice", SliceWork{1, 2}, {x}, {b.tensor("slice", {64, 8})}, 1);
  b.kernel("add", {x, y}, y, 1);
  const kernels::EinsumParameters parameters{"ab,cb->ac"};
  const InstructionId einsum =
      b.add("einsum", KernelWork{"einsum", parameters, {true}}, {x, x}, {y});
  const kernels::View view{nullptr, DType::Float32, {64, 64}};
  const std::int64_t scratch =
      kernels::scratch_bytes({"einsum", parameters, {view, view}, {view}, {true}}, 2);
  b.set_scratch(einsum, b.tensor("scratch", {scratch}, Lane::Private, false, DType::UInt8));
  b.kernel("swiglu", {x, y}, b.tensor("z", {64, 64}));
  const Program program = b.finish();
  LonelyWorld world;
  RankRun run(world, program, {.algorithm = Algorithm::Direct, .threads = 2, .may_spin = false});
  std::fill_n(run.data(x), 64 * 64, 1.0F);
  run.executor->run();
  world.progress.clear();
  world.progress.reserve(100);
  const std::int64_t before = test::allocations();
  for (int i = 0; i < 3; ++i) run.executor->run();
  // The world of this test copies each phase into a string: long ones are its allocations.
  std::int64_t of_the_world = 0;
  for (const auto& [instruction, phase] : world.progress) of_the_world += phase.size() > 15 ? 1 : 0;
  EXPECT_EQ(test::allocations() - before, of_the_world);
}

TEST(Executor, ASliceCopiesItsRowsOnAnyDim) {
  for (const int dim : {0, 1, 2}) {
    Builder b;
    const Operand x = b.state("x", {4, 5, 6});
    Shape shape = x.shape;
    shape[static_cast<std::size_t>(dim)] = 2;
    const Operand y = b.state("y", shape);
    b.add("slice", SliceWork{dim, 1}, {x}, {y});
    const Program program = b.finish();
    verify(program);
    LonelyWorld world;
    RankRun run(world, program);
    for (int i = 0; i < 4 * 5 * 6; ++i) run.data(x)[i] = static_cast<float>(i);
    run.executor->run();
    int position = 0;
    for (int i = 0; i < shape[0]; ++i) {
      for (int j = 0; j < shape[1]; ++j) {
        for (int k = 0; k < shape[2]; ++k) {
          const int from = (i + (dim == 0)) * 30 + (j + (dim == 1)) * 6 + k + (dim == 2);
          EXPECT_EQ(run.data(y)[position++], static_cast<float>(from)) << dim;
        }
      }
    }
  }
}

TEST(Executor, AJoinPutsItsInputsSideBySideOnAnyDim) {
  for (const std::size_t dim : {0U, 1U, 2U}) {
    Builder b;
    const Shape whole{4, 5, 6};
    std::vector<Operand> parts;
    for (const std::int64_t size : {std::int64_t{1}, std::int64_t{2}, whole[dim] - 3}) {
      Shape shape = whole;
      shape[dim] = size;
      parts.push_back(b.state(fmt::format("part {}", size), shape));
    }
    const Operand y = b.state("y", whole);
    b.add("join", JoinWork{static_cast<int>(dim)}, parts, {y});
    const Program program = b.finish();
    verify(program);
    LonelyWorld world;
    RankRun run(world, program);
    // Every element says where it belongs.
    std::int64_t start = 0;
    for (const Operand& part : parts) {
      int position = 0;
      for (std::int64_t i = 0; i < part.shape[0]; ++i) {
        for (std::int64_t j = 0; j < part.shape[1]; ++j) {
          for (std::int64_t k = 0; k < part.shape[2]; ++k) {
            const std::int64_t at = i * 30 + j * 6 + k + start * (dim == 0 ? 30 : dim == 1 ? 6 : 1);
            run.data(part)[position++] = static_cast<float>(at);
          }
        }
      }
      start += part.shape[dim];
    }
    run.executor->run();
    for (int i = 0; i < 4 * 5 * 6; ++i) EXPECT_EQ(run.data(y)[i], static_cast<float>(i)) << dim;
  }
}

}  // namespace
}  // namespace sw
