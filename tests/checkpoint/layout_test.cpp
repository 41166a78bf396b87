#include <gmock/gmock.h>

#include <thread>

#include "checkpoint/reader.hpp"
#include "checkpoint/writer.hpp"
#include "tests/checkpoint/layouts.hpp"
#include "tests/checkpoint/recording_files.hpp"
#include "tests/checkpoint/scratch.hpp"
#include "tests/soak.hpp"

// Any layout into any other, to the bit.
namespace sw {
namespace {

using sw::testing::LogicalTensor;
using sw::testing::OwnedPiece;
using sw::testing::RankPieces;

class LayoutTest : public sw::testing::ScratchTest {
 protected:
  /// All ranks as threads of this process.
  void save(const TrainingState& state, const RankPieces& ranks, bool background) {
    sw::testing::RecordingFiles files;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < std::ssize(ranks); ++rank) {
      threads.emplace_back([&, rank] {
        CheckpointWriter writer(files, {.folder = folder_ / "checkpoints",
                                        .run = "run",
                                        .session = "session",
                                        .rank = rank,
                                        .ranks = static_cast<int>(std::ssize(ranks)),
                                        .keep = 3,
                                        .background = background,
                                        .deadline_s = 20});
        writer.save(state, views(ranks[static_cast<std::size_t>(rank)]));
        writer.wait();
      });
    }
  }
};

void expect_reads(const CheckpointReader& reader, const OwnedPiece& piece) {
  std::vector<std::byte> out(piece.values.size());
  reader.read(piece.about.tensor, piece.about.state, piece.range, out);
  EXPECT_EQ(out, piece.values) << piece.about.state << " of " << piece.about.tensor;
}

TEST_F(LayoutTest, WhatAnyRanksWroteAnyRanksReadToTheBit) {
  std::mt19937_64 random(3);
  const std::int64_t rounds = sw::testing::runs(12, 500);
  for (std::int64_t round = 0; round < rounds; ++round) {
    const auto tensors = sw::testing::random_tensors(random);
    const int writers = 1 + static_cast<int>(random() % 5);
    const TrainingState state{.step = round + 1, .consumed_samples = 17 * round, .seed = ~0ULL};
    save(state, random_layout(tensors, writers, random), round % 2 == 0);
    const CheckpointReader reader(folder_ / "checkpoints" / fmt::format("step-{:06}", round + 1));
    EXPECT_EQ(reader.ranks(), writers);
    EXPECT_EQ(reader.state(), state);
    EXPECT_EQ(reader.tensors().size(), tensors.size());
    for (const auto& rank : random_layout(tensors, 4, random)) {
      for (const OwnedPiece& piece : rank) {
        expect_reads(reader, piece);
      }
    }
  }
}

TEST_F(LayoutTest, TheDigestDependsOnTheValuesOnly) {
  std::mt19937_64 random(4);
  const auto tensors = sw::testing::random_tensors(random);
  for (int step = 1; step <= 3; ++step) {
    save({.step = step}, random_layout(tensors, step, random), false);
    const CheckpointReader reader(folder_ / "checkpoints" / fmt::format("step-{:06}", step));
    for (const LogicalTensor& tensor : tensors) {
      EXPECT_EQ(reader.digest(tensor.about.tensor, tensor.about.state), hash128(tensor.values));
    }
  }
}

TEST_F(LayoutTest, TheDigestOfATensorLongerThanABlockIsThatOfItsBytes) {
  LogicalTensor tensor{{"long", "weight", DType::Float32, {1000, 1000}}, {}};
  tensor.values.resize(4'000'000);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = static_cast<std::byte>(i * 7 % 253);
  }
  RankPieces ranks(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const PieceRange columns{{{0, 1000}, split(1000, 2, static_cast<std::int64_t>(rank))},
                             {0, 500'000}};
    ranks[rank].push_back({tensor.about, columns, values_of(tensor, columns)});
  }
  save({.step = 1}, ranks, false);
  EXPECT_EQ(CheckpointReader(folder_ / "checkpoints" / "step-000001").digest("long", "weight"),
            hash128(tensor.values));
}

}  // namespace
}  // namespace sw
