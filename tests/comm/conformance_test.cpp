#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/shape.hpp"
#include "comm/communicator.hpp"
#include "comm/traffic.hpp"
#include "device/stream.hpp"
#include "tests/comm/ranks.hpp"

/// One suite for every backend and world. Values are small integers wherever the order
/// of additions is not the point, so that sums are exact in every type and expected with ==.
namespace sw {
namespace {

using test::Backend;
using test::bytes_of;
using test::expect_ranks;
using test::first_ranks;
using test::Window;

/// Geometry of a segment: fewer rows than ranks, uneven, strided, empty.
const std::vector<Extent> kExtents = {{1, 1001, 1}, {1, 2, 3},  {3, 10, 2},
                                      {2, 7, 5},    {5, 14, 1}, {1, 0, 4}};

/// Conversions between a type's elements and the integers of the tests.
template <typename T>
T element(std::int64_t value) {
  return static_cast<T>(value);
}
template <>
BFloat16 element(std::int64_t value) {
  return to_bfloat16(static_cast<float>(value));
}
template <typename T>
double number(T value) {
  return static_cast<double>(value);
}
template <>
double number(BFloat16 value) {
  return to_float(value);
}

/// Element i of the whole buffer of segment s on a rank; sums over 7 ranks stay below 256, which
/// bfloat16 still counts exactly.
std::int64_t value_of(int rank, std::size_t segment, std::int64_t i) {
  return (i * 7 + std::int64_t{rank} * 3 + static_cast<std::int64_t>(segment) * 5) % 8 - 3;
}
std::int64_t reduced_value(ReduceOp op, int ranks, std::size_t segment, std::int64_t i) {
  std::int64_t result = value_of(0, segment, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t next = value_of(rank, segment, i);
    result = op == ReduceOp::Sum ? result + next : std::max(result, next);
  }
  return result;
}

/// Calls visit(index in the part of `rank`, index in the whole buffer).
void for_each_in_part(const Extent& extent, int ranks, int rank,
                      const std::function<void(std::int64_t, std::int64_t)>& visit) {
  const Range part = split(extent.length, ranks, rank);
  std::int64_t i = 0;
  for (std::int64_t o = 0; o < extent.outer; ++o) {
    for (std::int64_t l = part.begin; l < part.end; ++l) {
      for (std::int64_t t = 0; t < extent.trailing; ++t) {
        visit(i++, (o * extent.length + l) * extent.trailing + t);
      }
    }
  }
}
std::int64_t part_size(const Extent& extent, int ranks, int rank) {
  return extent.outer * split(extent.length, ranks, rank).size() * extent.trailing;
}
std::int64_t whole_size(const Extent& extent) {
  return extent.outer * extent.length * extent.trailing;
}

using Setting = std::tuple<Backend, int>;
/// Algorithm, in place.
constexpr std::array<std::pair<Algorithm, bool>, 4> kForms = {{{Algorithm::Direct, false},
                                                               {Algorithm::Direct, true},
                                                               {Algorithm::Ring, false},
                                                               {Algorithm::Ring, true}}};

class Conformance : public ::testing::TestWithParam<Setting> {
 protected:
  [[nodiscard]] test::Job job() const {
    return {.backend = std::get<0>(GetParam()), .ranks = std::get<1>(GetParam())};
  }
  [[nodiscard]] static Collective collective(CollectiveKind kind, DType dtype = DType::Float32,
                                             Algorithm algorithm = Algorithm::Direct) {
    return {.kind = kind, .algorithm = algorithm, .dtype = dtype, .name = "x"};
  }
  /// Runs it and holds the counted bytes to the formula.
  static void run(Communicator& group, const Collective& collective) {
    const CollectiveResult result = group.run(collective);
    EXPECT_EQ(result.sent_bytes, sent_bytes(sizes_of(collective), group.size(), group.rank()));
    EXPECT_EQ(result.calls, 1);
    EXPECT_GE(result.seconds, result.wait_seconds);
  }

  template <typename T>
  static void all_reduce(World& world, DType dtype, ReduceOp op) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    for (const auto& [algorithm, in_place] : kForms) {
      all_reduce<T>(window, *group, dtype, op, algorithm, in_place);
    }
  }
  template <typename T>
  static void all_reduce(Window& window, Communicator& group, DType dtype, ReduceOp op,
                         Algorithm algorithm, bool in_place) {
    Collective call = collective(CollectiveKind::AllReduce, dtype, algorithm);
    call.op = op;
    std::vector<std::span<T>> outputs;
    for (std::size_t s = 0; s < kExtents.size(); ++s) {
      const std::int64_t size = whole_size(kExtents[s]);
      const auto input = window.take<T>(size);
      for (std::int64_t i = 0; i < size; ++i) {
        input[static_cast<std::size_t>(i)] = element<T>(value_of(group.rank(), s, i));
      }
      outputs.push_back(in_place ? input : window.take<T>(size));
      const Extent& e = kExtents[s];
      call.segments.push_back(
          {bytes_of(input), bytes_of(outputs.back()), e.outer, e.length, e.trailing});
    }
    run(group, call);
    for (std::size_t s = 0; s < kExtents.size(); ++s) {
      for (std::size_t i = 0; i < outputs[s].size(); ++i) {
        ASSERT_EQ(number(outputs[s][i]), static_cast<double>(reduced_value(
                                             op, group.size(), s, static_cast<std::int64_t>(i))))
            << to_text(dtype) << " segment " << s << " element " << i;
      }
    }
  }
};

TEST_P(Conformance, AllReduceSumsEveryTypeOfAllSegments) {
  expect_ranks(job(), [](World& world) {
    all_reduce<float>(world, DType::Float32, ReduceOp::Sum);
    all_reduce<double>(world, DType::Float64, ReduceOp::Sum);
    all_reduce<BFloat16>(world, DType::BFloat16, ReduceOp::Sum);
    all_reduce<std::int64_t>(world, DType::Int64, ReduceOp::Sum);
    all_reduce<std::int32_t>(world, DType::Int32, ReduceOp::Sum);
  });
}

TEST_P(Conformance, AllReduceTakesTheMaximumOfEveryType) {
  expect_ranks(job(), [](World& world) {
    all_reduce<float>(world, DType::Float32, ReduceOp::Max);
    all_reduce<double>(world, DType::Float64, ReduceOp::Max);
    all_reduce<BFloat16>(world, DType::BFloat16, ReduceOp::Max);
    all_reduce<std::int64_t>(world, DType::Int64, ReduceOp::Max);
    all_reduce<std::int32_t>(world, DType::Int32, ReduceOp::Max);
  });
}

/// Any float32, but reproducible: a multiplicative hash of rank and index.
float noise(int rank, std::size_t i) {
  const std::uint64_t x = (i * 8 + static_cast<std::uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15U;
  return (static_cast<float>(x >> 40U) - 8388608.0F) * 1e-3F;
}

TEST_P(Conformance, DirectAddsInRankOrderWhateverTheCut) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    constexpr std::int64_t kSize = 4999;
    const auto singles = window.take<float>(kSize);
    const auto halves = window.take<BFloat16>(kSize);
    // Whole, in two segments, and in buckets of which the last is short.
    for (const std::int64_t cut : {kSize, std::int64_t{2500}, std::int64_t{1024}}) {
      Collective of_singles = collective(CollectiveKind::AllReduce);
      Collective of_halves = collective(CollectiveKind::AllReduce, DType::BFloat16);
      for (std::size_t i = 0; i < singles.size(); ++i) {
        singles[i] = noise(world.rank(), i);
        halves[i] = to_bfloat16(noise(world.rank(), i));
      }
      for (std::int64_t begin = 0; begin < kSize; begin += cut) {
        const std::int64_t length = std::min(cut, kSize - begin);
        std::byte* single = bytes_of(singles.subspan(static_cast<std::size_t>(begin)));
        std::byte* half = bytes_of(halves.subspan(static_cast<std::size_t>(begin)));
        of_singles.segments.push_back({single, single, 1, length, 1});
        of_halves.segments.push_back({half, half, 1, length, 1});
      }
      run(*group, of_singles);
      run(*group, of_halves);
      for (std::size_t i = 0; i < singles.size(); ++i) {
        float single = noise(0, i);
        float half = to_float(to_bfloat16(noise(0, i)));
        for (int rank = 1; rank < world.size(); ++rank) {
          single += noise(rank, i);
          half += to_float(to_bfloat16(noise(rank, i)));
        }
        ASSERT_EQ(singles[i], single) << "element " << i << " cut at " << cut;
        ASSERT_EQ(halves[i].bits, to_bfloat16(half).bits) << "element " << i << " cut at " << cut;
      }
    }
  });
}

TEST_P(Conformance, IntegerSumsWrapAround) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    const auto x = window.take<std::uint64_t>(3);
    std::fill(x.begin(), x.end(), std::numeric_limits<std::uint64_t>::max());
    Collective call = collective(CollectiveKind::AllReduce, DType::UInt64);
    call.segments = {{bytes_of(x), bytes_of(x), 1, 3, 1}};
    run(*group, call);
    // n (2^64 - 1) = -n modulo 2^64
    EXPECT_THAT(x, ::testing::Each(-static_cast<std::uint64_t>(world.size())));
  });
}

TEST_P(Conformance, TheMaximumKeepsNaN) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    for (int bad = 0; bad < world.size(); ++bad) {
      for (const Algorithm algorithm : {Algorithm::Direct, Algorithm::Ring}) {
        const auto x = window.take<float>(2);
        x[0] = world.rank() == bad ? std::nanf("") : 5.0F;
        x[1] = static_cast<float>(-1 - world.rank());
        Collective call = collective(CollectiveKind::AllReduce, DType::Float32, algorithm);
        call.op = ReduceOp::Max;
        call.segments = {{bytes_of(x), bytes_of(x), 1, 2, 1}};
        run(*group, call);
        EXPECT_TRUE(std::isnan(x[0])) << "NaN on rank " << bad;
        EXPECT_EQ(x[1], -1.0F);
      }
    }
  });
}

TEST_P(Conformance, ReduceScatterLeavesEachRankItsPart) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    for (const auto& [algorithm, in_place] : kForms) {
      Collective call = collective(CollectiveKind::ReduceScatter, DType::Float32, algorithm);
      std::vector<float*> outputs;
      for (std::size_t s = 0; s < kExtents.size(); ++s) {
        const Extent& e = kExtents[s];
        const auto input = window.take<float>(whole_size(e));
        for (std::size_t i = 0; i < input.size(); ++i) {
          input[i] = static_cast<float>(value_of(world.rank(), s, static_cast<std::int64_t>(i)));
        }
        const Range part = split(e.length, world.size(), world.rank());
        outputs.push_back(
            in_place && e.outer == 1
                ? input.data() + part.begin * e.trailing
                : window.take<float>(part_size(e, world.size(), world.rank())).data());
        call.segments.push_back({bytes_of(input), reinterpret_cast<std::byte*>(outputs.back()),
                                 e.outer, e.length, e.trailing});
      }
      run(*group, call);
      for (std::size_t s = 0; s < kExtents.size(); ++s) {
        for_each_in_part(
            kExtents[s], world.size(), world.rank(), [&](std::int64_t i, std::int64_t whole) {
              ASSERT_EQ(outputs[s][i],
                        static_cast<float>(reduced_value(ReduceOp::Sum, world.size(), s, whole)))
                  << "segment " << s << " element " << i;
            });
      }
    }
  });
}

TEST_P(Conformance, AllGatherPutsThePartsTogether) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    for (const auto& [algorithm, in_place] : kForms) {
      Collective call = collective(CollectiveKind::AllGather, DType::Float32, algorithm);
      std::vector<std::span<float>> outputs;
      for (std::size_t s = 0; s < kExtents.size(); ++s) {
        const Extent& e = kExtents[s];
        outputs.push_back(window.take<float>(whole_size(e)));
        const Range part = split(e.length, world.size(), world.rank());
        float* input = in_place && e.outer == 1
                           ? outputs.back().data() + part.begin * e.trailing
                           : window.take<float>(part_size(e, world.size(), world.rank())).data();
        for_each_in_part(e, world.size(), world.rank(), [&](std::int64_t i, std::int64_t whole) {
          input[i] = static_cast<float>(whole + static_cast<std::int64_t>(s));
        });
        call.segments.push_back({reinterpret_cast<std::byte*>(input), bytes_of(outputs.back()),
                                 e.outer, e.length, e.trailing});
      }
      run(*group, call);
      for (std::size_t s = 0; s < kExtents.size(); ++s) {
        for (std::size_t i = 0; i < outputs[s].size(); ++i) {
          ASSERT_EQ(outputs[s][i], static_cast<float>(i + s)) << "segment " << s;
        }
      }
    }
  });
}

TEST_P(Conformance, AllToAllDeliversUnevenPieces) {
  const auto count = [](int from, int to) { return std::int64_t{(from * 3 + to * 5) % 4}; };
  expect_ranks(job(), [&](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    Collective call = collective(CollectiveKind::AllToAll, DType::Int32);
    for (int other = 0; other < world.size(); ++other) {
      call.input_counts.push_back(count(world.rank(), other));
      call.output_counts.push_back(count(other, world.rank()));
    }
    const auto total = [](const std::vector<std::int64_t>& counts) {
      return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    };
    const auto input = window.take<std::int32_t>(total(call.input_counts));
    const auto output = window.take<std::int32_t>(total(call.output_counts));
    // Element k of what i sends to j is i * 100 + j * 10 + k.
    std::size_t at = 0;
    for (int other = 0; other < world.size(); ++other) {
      for (int k = 0; k < count(world.rank(), other); ++k) {
        input[at++] = world.rank() * 100 + other * 10 + k;
      }
    }
    call.segments = {{bytes_of(input), bytes_of(output)}};
    run(*group, call);
    at = 0;
    for (int other = 0; other < world.size(); ++other) {
      for (int k = 0; k < count(other, world.rank()); ++k) {
        EXPECT_EQ(output[at++], other * 100 + world.rank() * 10 + k);
      }
    }
  });
}

// Element k of what i sends to j in a call is call * 1000 + i * 100 + j * 10 + k; pieces lie apart
// in the input, and in the output the other way round.
TEST_P(Conformance, AllToAllTakesItsCountsWithEachRun) {
  const auto count = [](int run, int from, int to) {
    return std::int64_t{(run * 2 + from * 3 + to * 5) % 4};
  };
  expect_ranks(job(), [&](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    const auto ranks = static_cast<std::size_t>(world.size());
    Collective call = collective(CollectiveKind::AllToAll, DType::Int32);
    const auto input = window.take<std::int32_t>(world.size() * 5);
    const auto output = window.take<std::int32_t>(world.size() * 4);
    call.segments = {{bytes_of(input), bytes_of(output), 1, world.size() * 5, 1}};
    call.output_room = world.size() * 4;
    const auto prepared = group->prepare(call);
    for (int run = 0; run < 4; ++run) {
      std::vector<Range> from(ranks);
      std::vector<Range> to(ranks);
      std::int64_t sent = 0;
      for (int other = 0; other < world.size(); ++other) {
        const auto at = static_cast<std::size_t>(other);
        const std::int64_t begin = (world.size() - 1 - other) * 4;
        from[at] = {other * 5, other * 5 + count(run, world.rank(), other)};
        to[at] = {begin, begin + count(run, other, world.rank())};
        sent += other == world.rank() ? 0 : from[at].size() * 4;
        for (std::int64_t k = 0; k < from[at].size(); ++k) {
          input[static_cast<std::size_t>(from[at].begin + k)] =
              run * 1000 + world.rank() * 100 + other * 10 + static_cast<std::int32_t>(k);
        }
      }
      std::fill(output.begin(), output.end(), -1);
      prepared->reset();
      prepared->set_ranges(from, to);
      prepared->run();
      EXPECT_EQ(prepared->result().sent_bytes, sent);
      for (int other = 0; other < world.size(); ++other) {
        for (std::int64_t k = 0; k < 4; ++k) {
          const Range& piece = to[static_cast<std::size_t>(other)];
          const std::int32_t expected =
              run * 1000 + other * 100 + world.rank() * 10 + static_cast<std::int32_t>(k);
          EXPECT_EQ(output[static_cast<std::size_t>(piece.begin + k)],
                    k < piece.size() ? expected : -1);
        }
      }
    }
  });
}

TEST_P(Conformance, BroadcastCopiesFromEachRoot) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    for (int root = 0; root < world.size(); ++root) {
      const bool is_root = root == world.rank();
      const auto apart = window.take<std::uint8_t>(101);
      const auto together = window.take<std::uint8_t>(7);
      const auto input = window.take<std::uint8_t>(is_root ? 101 : 0);
      std::fill(input.begin(), input.end(), static_cast<std::uint8_t>(root + 1));
      std::fill(together.begin(), together.end(), static_cast<std::uint8_t>(world.rank() + 50));
      Collective call = collective(CollectiveKind::Broadcast, DType::UInt8);
      call.peer = root;
      call.segments = {{is_root ? bytes_of(input) : nullptr, bytes_of(apart), 1, 101, 1},
                       {bytes_of(together), bytes_of(together), 1, 7, 1}};
      run(*group, call);
      EXPECT_THAT(apart, ::testing::Each(root + 1));
      EXPECT_THAT(together, ::testing::Each(root + 50));
    }
  });
}

TEST_P(Conformance, MessagesGoRoundPairByPair) {
  expect_ranks(job(), [](World& world) {
    if (world.size() == 1) return;
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    const int right = (world.rank() + 1) % world.size();
    const int left = (world.rank() + world.size() - 1) % world.size();
    const auto mine = window.take<float>(6);
    const auto theirs = window.take<float>(6);
    std::iota(mine.begin(), mine.end(), static_cast<float>(world.rank() * 10));
    Collective send = collective(CollectiveKind::Send);
    send.peer = right;
    send.segments = {{bytes_of(mine), nullptr, 2, 3, 1}};
    Collective receive = collective(CollectiveKind::Receive);
    receive.name = "another name";
    receive.peer = left;
    receive.segments = {{nullptr, bytes_of(theirs), 2, 3, 1}};
    for (int round = 0; round < 3; ++round) {
      std::fill(theirs.begin(), theirs.end(), 0.0F);
      // A send ends when it was received, so somebody must begin by receiving.
      if (world.rank() == 0) {
        run(*group, receive);
        run(*group, send);
      } else {
        run(*group, send);
        run(*group, receive);
      }
      for (std::size_t i = 0; i < theirs.size(); ++i) {
        EXPECT_EQ(theirs[i], static_cast<float>(left * 10) + static_cast<float>(i));
      }
    }
  });
}

TEST_P(Conformance, ABarrierWaitsForAll) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    // Two barriers and a sum between them: nobody adds a later round's value too early.
    const auto x = window.take<std::int32_t>(1);
    for (int round = 0; round < 20; ++round) {
      run(*group, collective(CollectiveKind::Barrier));
      x[0] = round;
      Collective call = collective(CollectiveKind::AllReduce, DType::Int32);
      call.segments = {{bytes_of(x), bytes_of(x), 1, 1, 1}};
      run(*group, call);
      EXPECT_EQ(x[0], round * world.size());
    }
  });
}

TEST_P(Conformance, GroupsOfPartOfTheWorldWorkAtOnce) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    // Rows and columns of a grid that does not come out even, and the odd group of all but one.
    std::vector<int> row;
    std::vector<int> column;
    std::vector<int> not_first;
    for (int rank = 0; rank < world.size(); ++rank) {
      if (rank / 3 == world.rank() / 3) row.push_back(rank);
      if (rank % 3 == world.rank() % 3) column.push_back(rank);
      if (rank > 0) not_first.push_back(rank);
    }
    const auto rows = world.make_communicator("row", row);
    const auto columns = world.make_communicator("column", column);
    const auto others =
        world.rank() > 0 ? world.make_communicator("not first", not_first) : nullptr;
    const auto sum = [&](Communicator& group, const std::vector<int>& members) {
      const auto x = window.take<std::int64_t>(5);
      std::fill(x.begin(), x.end(), world.rank() + 1);
      Collective call = collective(CollectiveKind::AllReduce, DType::Int64);
      call.segments = {{bytes_of(x), bytes_of(x), 1, 5, 1}};
      run(group, call);
      const std::int64_t expected = std::accumulate(members.begin(), members.end(),
                                                    static_cast<std::int64_t>(members.size()));
      EXPECT_THAT(x, ::testing::Each(expected));
    };
    for (int round = 0; round < 10; ++round) {
      sum(*rows, row);
      if (others != nullptr) sum(*others, not_first);
      sum(*columns, column);
    }
  });
}

TEST_P(Conformance, GroupsOfTheSameMembersRunOnSeveralStreams) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    constexpr int kStreams = 3;
    constexpr int kRuns = 20;
    std::vector<std::unique_ptr<Communicator>> groups;
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<PreparedCollective>> calls;
    std::vector<std::span<std::uint64_t>> values;
    for (int i = 0; i < kStreams; ++i) {
      // The last two share the name, too: told apart by the order in which they are made.
      groups.push_back(world.make_communicator(i == 0 ? "a" : "b", first_ranks(world.size())));
      streams.push_back(make_thread_stream("stream", false));
      values.push_back(window.take<std::uint64_t>(33));
      std::fill(values.back().begin(), values.back().end(), i + 1);
      Collective call = collective(CollectiveKind::AllReduce, DType::UInt64);
      call.segments = {{bytes_of(values.back()), bytes_of(values.back()), 1, 33, 1}};
      calls.push_back(groups.back()->prepare(call));
    }
    // Ranks begin with different streams.
    for (int i = 0; i < kStreams; ++i) {
      const auto at = static_cast<std::size_t>((i + world.rank()) % kStreams);
      for (int run = 0; run < kRuns; ++run) streams[at]->enqueue(calls[at]->task());
    }
    for (int i = 0; i < kStreams; ++i) {
      const auto at = static_cast<std::size_t>(i);
      streams[at]->synchronize();
      EXPECT_EQ(calls[at]->result().calls, kRuns);
      std::uint64_t expected = static_cast<std::uint64_t>(i) + 1;
      for (int run = 0; run < kRuns; ++run) expected *= static_cast<std::uint64_t>(world.size());
      EXPECT_THAT(values[at], ::testing::Each(expected));
    }
  });
}

TEST_P(Conformance, APreparedCollectiveAddsUpItsResults) {
  expect_ranks(job(), [](World& world) {
    Window window(world);
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    const auto x = window.take<float>(10);
    std::fill(x.begin(), x.end(), 0.0F);
    Collective call = collective(CollectiveKind::AllReduce);
    call.segments = {{bytes_of(x), bytes_of(x), 1, 10, 1}};
    const auto prepared = group->prepare(call);
    for (int run = 0; run < 3; ++run) prepared->run();
    EXPECT_EQ(prepared->result().calls, 3);
    EXPECT_EQ(prepared->result().sent_bytes,
              3 * sent_bytes(sizes_of(call), world.size(), world.rank()));
    prepared->reset();
    EXPECT_EQ(prepared->result().calls, 0);
    prepared->run();
    EXPECT_EQ(prepared->result().sent_bytes,
              sent_bytes(sizes_of(call), world.size(), world.rank()));
  });
}

TEST_P(Conformance, AWindowCanBeReplaced) {
  expect_ranks(job(), [](World& world) {
    const auto group = world.make_communicator("all", first_ranks(world.size()));
    for (const std::int64_t kib : {64, 4096, 0, 128}) {
      // Ranks ask for different sizes.
      Window window(world, (kib + world.rank()) * 1024 + 192);
      const auto x = window.take<float>(33);
      std::fill(x.begin(), x.end(), 2.0F);
      Collective call = collective(CollectiveKind::AllReduce);
      call.segments = {{bytes_of(x), bytes_of(x), 1, 33, 1}};
      run(*group, call);
      EXPECT_THAT(x, ::testing::Each(2.0F * static_cast<float>(world.size())));
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<Setting>& info) {
  const auto [backend, ranks] = info.param;
  return fmt::format("{}_{}_ranks", to_text(backend), ranks);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Conformance,
                         ::testing::Combine(::testing::Values(Backend::Local, Backend::Shm),
                                            ::testing::Values(1, 2, 3, 4, 7)),
                         name_of);

}  // namespace
}  // namespace sw
