#include <gtest/gtest.h>

#include <barrier>
#include <random>

#include "tests/allocations.hpp"
#include "tests/program/builder.hpp"
#include "tests/runtime/ranks.hpp"

/// Slots that travel to the ranks of their experts and back, in as many rounds as they need.
namespace sw {
namespace {

using test::Builder;
using test::RankRun;

constexpr std::int64_t kSlots = 12;
constexpr std::int64_t kWidth = 3;
constexpr std::int64_t kChosen = 2;  ///< slots of a token
constexpr std::int64_t kOfRank = 2;  ///< experts

/// Every round: pack, to the experts, and what came back again.
struct Trip {
  Program program;
  Operand choice, rows, result, rounds;
  std::vector<Operand> arrived;  ///< by round: the choices of what came, int32 [room]
  std::vector<Operand> here;     ///< by round: the rows, [room, kWidth]
};

InstructionId slots(Builder& b, SlotKind kind, std::vector<Operand> inputs,
                    std::vector<Operand> outputs, int rank = 0, std::int64_t chosen = 1) {
  return b.add("slots", SlotWork{kind, rank, chosen}, std::move(inputs), std::move(outputs));
}

Trip make_trip(int rank, int ranks, std::int64_t room) {
  Builder b(rank, ranks);
  Trip trip;
  const auto numbers = [&](const char* name, const Shape& shape, Lane lane = Lane::Private) {
    return b.tensor(name, shape, lane, true, DType::Int32);
  };
  const int most = static_cast<int>((ranks * kSlots + room - 1) / room);
  trip.choice = numbers("choice", {kSlots});
  trip.rows = b.state("rows", {kSlots / kChosen, kWidth});
  trip.result = b.state("result", {kSlots, kWidth});
  trip.rounds = numbers("rounds", {1});
  for (int round = 0; round < most; ++round) {
    trip.arrived.push_back(numbers("arrived", {room}));
    trip.here.push_back(b.state("here", {room, kWidth}, Lane::Window));
  }
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  const GroupId ep = b.group("ep", 0, all);
  const auto window = [&](const char* name, const Shape& shape, DType dtype) {
    return b.tensor(name, shape, Lane::Window, false, dtype);
  };
  const Operand order = b.tensor("order", {kSlots}, Lane::Private, false, DType::Int32);
  const Operand counts = window("counts", {1, ranks * kOfRank}, DType::Int32);
  const Operand table = window("table", {ranks, ranks * kOfRank}, DType::Int32);
  const Operand packed = window("packed", {kSlots, kWidth}, DType::Float32);
  const Operand back = window("back", {kSlots, kWidth}, DType::Float32);
  slots(b, SlotKind::Order, {trip.choice}, {order, counts});
  b.collective(CollectiveKind::AllGather, ep, counts, table, 0);
  slots(b, SlotKind::Pack, {trip.rows, order}, {packed}, 0, kChosen);
  for (std::size_t round = 0; round < trip.here.size(); ++round) {
    const std::size_t first = b.program().instructions.size();
    std::vector<Operand> made{trip.arrived[round]};
    if (round == 0) made.push_back(trip.rounds);
    slots(b, SlotKind::Arrivals, {table}, made, rank);
    CollectiveWork there;
    there.kind = CollectiveKind::AllToAll;
    there.group = ep;
    there.dims = {-1};
    there.routing = Routing::ToExperts;
    CollectiveWork home = there;
    home.routing = Routing::FromExperts;
    b.add("there", there, {packed, table}, {trip.here[round]});
    b.add("home", home, {trip.here[round], table}, {back});
    for (std::size_t i = first; round > 0 && i < b.program().instructions.size(); ++i) {
      b.program().instructions[i].round = static_cast<int>(round);
      b.program().instructions[i].rounds = trip.rounds;
    }
  }
  slots(b, SlotKind::Unpack, {back, order}, {trip.result});
  trip.program = b.finish();
  return trip;
}

using ChosenExperts = std::vector<std::vector<std::int32_t>>;  ///< [rank][slot]

/// (rank, slot) of all that comes to rank `to`, in the order in which it stands there.
std::vector<std::pair<int, int>> arrivals(const ChosenExperts& choices, int to) {
  std::vector<std::pair<int, int>> list;
  for (int from = 0; from < static_cast<int>(choices.size()); ++from) {
    for (std::int64_t expert = to * kOfRank; expert < (to + 1) * kOfRank; ++expert) {
      for (int slot = 0; slot < kSlots; ++slot) {
        if (choices[static_cast<std::size_t>(from)][static_cast<std::size_t>(slot)] == expert) {
          list.emplace_back(from, slot);
        }
      }
    }
  }
  return list;
}

float element(int rank, std::int64_t slot, std::int64_t column) {
  return static_cast<float>(rank * 1000 + slot * 10 + column);
}

void check_what_came(const RankRun& run, const Trip& trip, const ChosenExperts& choices) {
  const int rank = trip.program.rank;
  const std::int64_t room = trip.here[0].shape[0];
  const auto expected = arrivals(choices, rank);
  std::size_t most = 1;
  for (int to = 0; to < static_cast<int>(choices.size()); ++to) {
    most = std::max(most, arrivals(choices, to).size());
  }
  const std::int64_t rounds = (static_cast<std::int64_t>(most) + room - 1) / room;
  EXPECT_EQ(*run.data<std::int32_t>(trip.rounds), rounds);
  for (std::int64_t at = 0; at < rounds * room; ++at) {
    const auto round = static_cast<std::size_t>(at / room);
    const std::int32_t chosen = run.data<std::int32_t>(trip.arrived[round])[at % room];
    if (at >= static_cast<std::int64_t>(expected.size())) {
      EXPECT_EQ(chosen, -1);
      continue;
    }
    const auto [from, slot] = expected[static_cast<std::size_t>(at)];
    EXPECT_EQ(chosen + rank * kOfRank,
              choices[static_cast<std::size_t>(from)][static_cast<std::size_t>(slot)]);
    for (std::int64_t column = 0; column < kWidth; ++column) {
      EXPECT_EQ(run.data(trip.here[round])[at % room * kWidth + column],
                element(from, slot / kChosen, column));
    }
  }
}

ChosenExperts drawn(int ranks, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ChosenExperts choices(static_cast<std::size_t>(ranks), std::vector<std::int32_t>(kSlots));
  // Seed 0: all choose the last expert; 1: all the first rank's; then ever less alike.
  for (auto& of_rank : choices) {
    for (std::int32_t& choice : of_rank) {
      const auto experts = static_cast<std::uint64_t>(ranks * kOfRank);
      choice = seed == 0 ? ranks * static_cast<std::int32_t>(kOfRank) - 1
                         : static_cast<std::int32_t>(random() % std::min(seed + 1, experts));
      if (seed > 2 && random() % 4 == 0) choice = -1;  // taken by no expert
    }
  }
  return choices;
}

TEST(Slots, GoToTheRanksOfTheirExpertsAndBackInAsManyRoundsAsTheyNeed) {
  for (const int ranks : {2, 3, 4}) {
    for (const std::int64_t room : {5, 12, 24, 48}) {
      std::vector<Trip> trips;
      std::vector<Program> programs;
      for (int rank = 0; rank < ranks; ++rank) {
        trips.push_back(make_trip(rank, ranks, room));
        verify(trips.back().program);
        EXPECT_EQ(program_from_text(to_text(trips.back().program)), trips.back().program);
        programs.push_back(trips.back().program);
      }
      verify(programs);
      test::run_ranks(ranks, [&](World& world) {
        const Trip& trip = trips[static_cast<std::size_t>(world.rank())];
        RankRun run(world, trip.program);
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
          const ChosenExperts choices = drawn(ranks, seed);
          std::copy_n(choices[static_cast<std::size_t>(world.rank())].begin(), kSlots,
                      run.data<std::int32_t>(trip.choice));
          for (std::int64_t i = 0; i < kSlots / kChosen * kWidth; ++i) {
            run.data(trip.rows)[i] = element(world.rank(), i / kWidth, i % kWidth);
          }
          run.executor->reset_ledger();
          run.executor->run();
          check_what_came(run, trip, choices);
          for (std::int64_t i = 0; i < kSlots * kWidth; ++i) {
            const bool taken = run.data<std::int32_t>(trip.choice)[i / kWidth] >= 0;
            EXPECT_EQ(run.data(trip.result)[i],
                      taken ? element(world.rank(), i / kWidth / kChosen, i % kWidth) : 0);
          }
          const std::pair<Traffic, std::string> key{CollectiveKind::AllToAll, "ep"};
          const LedgerEntry counted = run.executor->ledger().at(key);
          const LedgerEntry routed = run.executor->routed().at(key);
          EXPECT_EQ(counted.sent_bytes, routed.sent_bytes);
          EXPECT_EQ(counted.calls, routed.calls);
          EXPECT_EQ(counted.calls, 2 * *run.data<std::int32_t>(trip.rounds));
        }
        EXPECT_EQ(run.memory.measured_peak(), memory_account(trip.program).peak);
      });
    }
  }
}

TEST(Slots, TravelWithoutAllocation) {
  std::barrier together(2);
  test::run_ranks(2, [&](World& world) {
    const Trip trip = make_trip(world.rank(), 2, 8);
    RankRun run(world, trip.program);
    std::fill_n(run.data<std::int32_t>(trip.choice), kSlots, world.rank());
    std::fill_n(run.data(trip.rows), kSlots / kChosen * kWidth, 1.0F);
    run.executor->run();
    together.arrive_and_wait();
    const std::int64_t before = test::allocations();
    run.executor->run();
    together.arrive_and_wait();
    EXPECT_EQ(test::allocations() - before, 0);
    together.arrive_and_wait();
  });
}

}  // namespace
}  // namespace sw
