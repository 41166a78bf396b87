#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <random>

#include "base/error.hpp"
#include "program/program.hpp"
#include "tests/program/any_numbers.hpp"
#include "tests/program/builder.hpp"
#include "tests/program/exchange.hpp"
#include "tests/program/random_program.hpp"
#include "tests/soak.hpp"

namespace sw {
namespace {

using test::Builder;
using test::Choices;
using ::testing::HasSubstr;

TEST(ProgramText, IsReadable) {
  Builder b(0, 2, {"compute", "communication"});
  const Operand w = b.state("layers.0.w", {4, 2}, Lane::Window);
  const Operand x = b.tensor("x", {3, 4});
  const Operand y = b.tensor("y \"quoted\"", {3, 2}, Lane::Private, false, DType::BFloat16);
  const GroupId dp = b.group("dp", 1, {0, 1});
  b.zero(x);
  b.add("layers.0.project", KernelWork{"einsum", kernels::EinsumParameters{"ab,bc->ac"}, {false}},
        {x, w}, {y});
  b.program().instructions[1].flops = 48;
  b.program().instructions[1].micro_batch = 0;
  b.collective(CollectiveKind::AllReduce, dp, w, w);
  b.program().notes = {"one note"};
  EXPECT_EQ(to_text(b.finish()), R"(program name "test" world 2 private_bytes 76 window_bytes 32
note "one note"
stream "compute"  # 0
stream "communication"  # 1
group axis "dp" stream 1 members [0, 1]  # 0
buffer name "layers.0.w" lane window persistent true bytes 32 offset 0  # 0
buffer name "x" bytes 48 offset 0  # 1
buffer name "y \"quoted\"" bytes 12 offset 64  # 2

instruction name "zero"  # 0
  zero
  output buffer 1 shape [3, 4]  # "x"

instruction name "layers.0.project" micro_batch 0 flops 48  # 1
  kernel op "einsum" accumulate [false] einsum spec "ab,bc->ac"
  input buffer 1 shape [3, 4]  # "x"
  input buffer 0 shape [4, 2]  # "layers.0.w"
  output buffer 2 dtype bfloat16 shape [3, 2]  # "y \"quoted\""

instruction name "all_reduce" stream 1 after [1]  # 2
  collective dims [-1]
  input buffer 0 shape [4, 2]  # "layers.0.w"
  output buffer 0 shape [4, 2]  # "layers.0.w"
)");
}

/// Every field of every struct set to something, by chance.
class Scatter {
 public:
  explicit Scatter(Choices choices) : choices_(std::move(choices)) {}

  Program program() {
    Program p;
    p.name = text();
    p.rank = choices_.below(100);
    p.world = choices_.below(100);
    p.streams = list<std::string>([&] { return text(); });
    p.groups = list<Group>([&] {
      return Group{text(), integer(), list<int>([&] { return integer(); })};
    });
    p.buffers = list<Buffer>([&] {
      return Buffer{text(), pick<Lane>(2), pick<Category>(6), choices_.coin(), large(), large()};
    });
    p.batches = list<BatchSlot>([&] {
      return BatchSlot{operand(), operand(), operand(), operand()};
    });
    p.host = {operand(), operand(), operand(), operand(), operand(),
              operand(), operand(), operand(), operand()};
    p.private_bytes = large();
    p.window_bytes = large();
    p.notes = list<std::string>([&] { return text(); });
    while (!choices_.exhausted()) p.instructions.push_back(instruction());
    return p;
  }

 private:
  template <typename T, typename Make>
  std::vector<T> list(Make make) {
    std::vector<T> result;
    for (int i = choices_.below(4); i > 0; --i) result.push_back(make());
    return result;
  }
  template <typename Enum>
  Enum pick(int count) {
    return static_cast<Enum>(choices_.below(count));
  }
  std::string text() {
    std::string result;
    for (int i = choices_.below(8); i > 0; --i) result += static_cast<char>(choices_.below(256));
    return result;
  }
  int integer() { return choices_.below(2000) - 1000; }
  std::int64_t large() {
    return std::int64_t{choices_.below(1 << 30)} * choices_.below(1 << 30) - integer();
  }
  double number() {
    switch (choices_.below(4)) {
      case 0:
        return std::numeric_limits<double>::infinity();
      case 1:
        return std::numeric_limits<double>::denorm_min() * integer();
      case 2:
        return 1.0 / (integer() + 0.1);
      default:
        return static_cast<double>(large()) * 1e10;
    }
  }
  Operand operand() {
    return {integer(), large(), pick<DType>(8), list<std::int64_t>([&] { return large(); })};
  }
  kernels::Parameters parameters() {
    switch (choices_.below(13)) {
      case 0:
        return kernels::NoParameters{};
      case 1:
        return kernels::EinsumParameters{text()};
      case 2:
        return kernels::NormParameters{number()};
      case 3:
        return kernels::RopeParameters{number(), text(), number(), number(), number(), number()};
      case 4:
        return kernels::AttentionParameters{number(), large(), large(), large(), large()};
      case 5:
        return kernels::GeluParameters{choices_.coin()};
      case 6:
        return kernels::VocabularyParameters{large()};
      case 7:
        return kernels::RouteParameters{large(), choices_.coin()};
      case 8:
        return kernels::DispatchParameters{large()};
      case 9:
        return kernels::LoadParameters{large()};
      case 10:
        return kernels::TermParameters{number()};
      case 11:
        return kernels::CapacityParameters{large(), number()};
      default:
        return kernels::DropoutParameters{number(), large(),
                                          list<std::int64_t>([&] { return large(); }),
                                          list<std::int64_t>([&] { return large(); })};
    }
  }
  Work work() {
    switch (choices_.below(9)) {
      case 0:
        return KernelWork{text(), parameters(), list<bool>([&] { return choices_.coin(); })};
      case 1:
        return SliceWork{integer(), large()};
      case 2:
        return CollectiveWork{pick<CollectiveKind>(8),
                              pick<ReduceOp>(2),
                              integer(),
                              list<int>([&] { return integer(); }),
                              integer(),
                              list<std::int64_t>([&] { return large(); }),
                              list<std::int64_t>([&] { return large(); }),
                              pick<Routing>(3)};
      case 3:
        return WindowWork{pick<WindowKind>(4), number()};
      case 4:
        return OptimizerWork{
            text(),   number(),  number(),        number(),
            number(), integer(), choices_.coin(), list<double>([&] {
                               return number(); })};
      case 5:
        return CopyWork{};
      case 6:
        return JoinWork{integer()};
      case 7:
        return SlotWork{pick<SlotKind>(4), integer(), large()};
      default:
        return ZeroWork{};
    }
  }
  Instruction instruction() {
    return {text(),
            pick<Phase>(3),
            integer(),
            integer(),
            work(),
            list<Operand>([&] { return operand(); }),
            list<Operand>([&] { return operand(); }),
            operand(),
            list<InstructionId>([&] { return integer(); }),
            number(),
            integer(),
            operand()};
  }

  Choices choices_;
};

/// Numbers of any size; RapidCheck's own start small and seldom grow.
std::vector<std::uint32_t> numbers_from(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> numbers(count);
  for (std::uint32_t& number : numbers) number = static_cast<std::uint32_t>(random() >> 32U);
  return numbers;
}

TEST(ProgramText, ReadsBackEveryFieldThatItWrote) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Program program = Scatter(Choices(numbers_from(seed, 10 + seed * 2))).program();
    const std::string text = to_text(program);
    const Program again = program_from_text(text);
    ASSERT_EQ(to_text(again), text);
    ASSERT_TRUE(again == program) << text;
  }
}

RC_GTEST_PROP(ProgramText, ReadsBackProgramsThatRun, ()) {
  Program program = test::random_program(Choices(*test::any_numbers()));
  add_data_edges(program);
  map_memory(program);
  RC_ASSERT(program_from_text(to_text(program)) == program);
}

std::string refusal(const std::string& text) {
  try {
    (void)program_from_text(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(ProgramText, SaysWhereItCannotBeRead) {
  EXPECT_THAT(refusal(""), HasSubstr("expected a line 'program"));
  EXPECT_THAT(refusal("stream \"a\"\n"), HasSubstr("line 1, column 1: expected a line 'program"));
  EXPECT_THAT(refusal("program\nprogram\n"), HasSubstr("line 2, column 1"));
  EXPECT_THAT(refusal("program rank x\n"),
              HasSubstr("line 1, column 14: expected a whole number and found 'x'"));
  EXPECT_THAT(
      refusal("program\n\nbuffer lane wimdow\n"),
      HasSubstr("line 3, column 13: expected one of private, window, host and found 'wimdow'"));
  EXPECT_THAT(refusal("program rank 99999999999\n"), HasSubstr("a whole number that fits"));
  EXPECT_THAT(refusal("program\nbuffer bytes 1 lane window\n"),
              HasSubstr("line 2, column 16: expected the end of the line"));
  EXPECT_THAT(refusal("program name \"a\n"), HasSubstr("column 16: expected a quote"));
  EXPECT_THAT(refusal("program name \"\\q\"\n"), HasSubstr("two hexadecimal digits"));
  EXPECT_THAT(refusal("program\ngroup members [1 2]\n"),
              HasSubstr("line 2, column 18: expected ','"));
  EXPECT_THAT(refusal("program\ngroup members [1,\n"), HasSubstr("the end of the line"));
  EXPECT_THAT(refusal("program\n  input buffer 0\n"), HasSubstr("line 2, column 3"));
  EXPECT_THAT(refusal("program\ninstruction\n  zero\n  zero\n"), HasSubstr("one line of work"));
  EXPECT_THAT(refusal("program\ninstruction\n  kernel op \"add\" spec\n"),
              HasSubstr("the kind of the kernel's parameters"));
}

/// Texts with a few bytes, words or lines changed, taken away or doubled: the parser reads them or
/// says where it cannot, and what it reads is written back the same.
TEST(ProgramText, NoDamagedTextBreaksTheParser) {
  const std::int64_t count = sw::testing::runs(3'000, 1'000'000);
  std::vector<std::string> texts;
  for (const Program& program : test::exchange_programs(2)) texts.push_back(to_text(program));
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    texts.push_back(to_text(Scatter(Choices(numbers_from(seed, 300))).program()));
  }
  std::mt19937_64 random(1);
  const auto below = [&](std::size_t bound) { return bound == 0 ? 0 : random() % bound; };
  std::int64_t read = 0;
  for (std::int64_t run = 0; run < count; ++run) {
    std::string text = texts[below(texts.size())];
    for (std::size_t change = 1 + below(3); change > 0; --change) {
      const std::size_t at = below(text.size());
      const std::string& other = texts[below(texts.size())];
      switch (below(6)) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, below(20));
          break;
        case 2:
          text.insert(at, text.substr(below(text.size()), below(40)));
          break;
        case 3:
          text.insert(at, other.substr(below(other.size()), below(80)));
          break;
        case 4:
          text.insert(at, std::string(1 + below(30), "-0123456789[],\"\\# \n\0e.x"[below(23)]));
          break;
        default:
          text.resize(at + 1);
      }
    }
    try {
      const std::string again = to_text(program_from_text(text));
      ASSERT_EQ(to_text(program_from_text(again)), again);
      ++read;
    } catch (const ConfigError& error) {
      ASSERT_THAT(error.what(), HasSubstr("program text"));
    }
  }
  // Some must get through, else the damage is too great to test anything.
  EXPECT_GT(read, count / 50);
}

}  // namespace
}  // namespace sw
