#include "checkpoint/writer.hpp"

#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>

#include "tests/checkpoint/recording_files.hpp"
#include "tests/checkpoint/saving.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;
using sw::testing::Call;
using sw::testing::data_error_of;
using sw::testing::holds;
using sw::testing::names_in;
using sw::testing::OwnedPiece;
using sw::testing::RecordingFiles;
using sw::testing::salted_pieces;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Holds back every write until it is opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }
  void set(bool open) {
    const std::scoped_lock lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class WriterTest : public sw::testing::ScratchTest {
 protected:
  WriterOptions options() {
    return {.folder = folder_ / "checkpoints", .run = "run", .session = "session", .keep = 0};
  }
  fs::path checkpoint(std::int64_t step) {
    return folder_ / "checkpoints" / fmt::format("step-{:06}", step);
  }
};

// Case C052.
TEST_F(WriterTest, ABackgroundSaveHoldsTheValuesOfItsStepThoughTrainingGoesOn) {
  Gate gate;
  RecordingFiles files;
  files.before = [&](const Call& call) {
    if (call.kind == Call::Kind::Write) {
      gate.pass();
    }
  };
  CheckpointWriter writer(files, options());
  auto live = salted_pieces(1, 0);
  for (std::uint8_t step = 1; step <= 30; ++step) {
    live = salted_pieces(1, step);  // the update
    gate.set(false);
    const auto at_save = live;
    writer.save({.step = step, .consumed_samples = step * 8}, views(live[0]));
    for (OwnedPiece& piece : live[0]) {  // the next update, while nothing is written yet
      std::ranges::fill(piece.values, std::byte{0xee});
    }
    EXPECT_FALSE(fs::exists(checkpoint(step)));
    gate.set(true);
    writer.wait();
    EXPECT_TRUE(holds(checkpoint(step), at_save)) << "step " << int{step};
    EXPECT_EQ(CheckpointReader(checkpoint(step)).state().consumed_samples, step * 8);
  }
}

TEST_F(WriterTest, BackgroundAndForegroundWriteTheSameBytes) {
  for (const bool background : {false, true}) {
    WriterOptions of_mode = options();
    of_mode.folder = folder_ / (background ? "background" : "foreground");
    of_mode.background = background;
    CheckpointWriter writer(real_files(), of_mode);
    writer.save({.step = 7}, views(salted_pieces(1, 9)[0]));
    writer.wait();
  }
  const auto names = names_in(folder_ / "foreground" / "step-000007");
  EXPECT_EQ(names.size(), 3U);
  for (const std::string& name : names) {
    EXPECT_EQ(sw::testing::read_file(folder_ / "foreground" / "step-000007" / name),
              sw::testing::read_file(folder_ / "background" / "step-000007" / name))
        << name;
  }
}

// Case C056: memory beyond the snapshot is one block at a time.
TEST_F(WriterTest, TheSnapshotIsThisRanksPiecesAndWritesAreBlocks) {
  std::vector<std::byte> values(12 << 20, std::byte{1});
  const std::int64_t elements = std::ssize(values) / 4;
  const std::vector<Piece> pieces{{"w",
                                   "weight",
                                   DType::Float32,
                                   {2, elements},
                                   {{{1, 2}, {0, elements}}, {0, elements}},
                                   values.data()},
                                  {"w",
                                   "weight",
                                   DType::Float32,
                                   {2, elements},
                                   {{{0, 1}, {0, elements}}, {0, elements}},
                                   values.data()}};
  EXPECT_EQ(CheckpointWriter::snapshot_bytes(pieces), 2 * std::ssize(values));
  RecordingFiles files;
  std::size_t largest = 0;
  files.before = [&](const Call& call) { largest = std::max(largest, call.bytes.size()); };
  CheckpointWriter writer(files, options());
  writer.save({.step = 1}, pieces);
  writer.wait();
  EXPECT_LE(largest, 8U << 20U);
}

TEST_F(WriterTest, AnErrorInTheBackgroundComesOutOnceAtTheNextCall) {
  RecordingFiles files;
  files.fails = [](std::size_t, const Call& call) { return call.kind == Call::Kind::Write; };
  CheckpointWriter writer(files, options());
  const auto pieces = salted_pieces(1, 1);
  writer.save({.step = 1}, views(pieces[0]));
  EXPECT_THAT(data_error_of([&] { writer.save({.step = 2}, views(pieces[0])); }),
              HasSubstr("No space left"));
  EXPECT_THAT(data_error_of([&] { writer.wait(); }), HasSubstr("no error"));
  files.fails = nullptr;
  writer.save({.step = 2}, views(pieces[0]));
  writer.wait();
  EXPECT_TRUE(holds(checkpoint(2), pieces));
}

TEST_F(WriterTest, AnErrorThatNobodyAskedForDoesNotEscapeTheDestructor) {
  RecordingFiles files;
  files.fails = [](std::size_t, const Call& call) { return call.kind == Call::Kind::Write; };
  CheckpointWriter writer(files, options());
  writer.save({.step = 1}, views(salted_pieces(1, 1)[0]));
}

TEST_F(WriterTest, RanksThatDoNotFinishAreNamedAfterTheDeadline) {
  WriterOptions waiting = options();
  waiting.ranks = 4;
  waiting.deadline_s = 0.05;
  CheckpointWriter rank0(real_files(), waiting);
  waiting.rank = 2;
  CheckpointWriter rank2(real_files(), waiting);
  const auto pieces = salted_pieces(4, 1);
  rank2.save({.step = 1}, views(pieces[2]));
  rank2.wait();
  rank0.save({.step = 1}, views(pieces[0]));
  EXPECT_THAT(data_error_of([&] { rank0.wait(); }),
              AllOf(HasSubstr("ranks 1, 3 have not finished"), HasSubstr("0.05 s")));
  EXPECT_THAT(names_in(folder_ / "checkpoints"), IsEmpty());
}

TEST_F(WriterTest, AnAbortedRunGivesTheSaveUp) {
  WriterOptions waiting = options();
  waiting.ranks = 2;
  waiting.background = false;
  std::atomic<int> asked = 0;
  waiting.aborted = [&] { return ++asked > 5; };
  CheckpointWriter rank0(real_files(), waiting);
  EXPECT_THAT(data_error_of([&] { rank0.save({.step = 1}, views(salted_pieces(2, 1)[0])); }),
              AllOf(HasSubstr("aborted"), HasSubstr("ranks 1 ")));
  EXPECT_THAT(names_in(folder_ / "checkpoints"), IsEmpty());
}

TEST_F(WriterTest, PiecesThatLeaveAHoleOrOverlapAreABugAndMakeNoCheckpoint) {
  WriterOptions foreground = options();
  foreground.background = false;
  CheckpointWriter writer(real_files(), foreground);
  auto hole = salted_pieces(2, 1)[0];  // the first half only
  EXPECT_THROW(writer.save({.step = 1}, views(hole)), InternalError);
  auto twice = salted_pieces(1, 1)[0];
  twice.push_back(twice.front());
  EXPECT_THROW(writer.save({.step = 1}, views(twice)), InternalError);
  EXPECT_THAT(names_in(folder_ / "checkpoints"), IsEmpty());
}

TEST_F(WriterTest, WhatAKilledWriterLeftIsClearedAndOtherFoldersAreNot) {
  const fs::path checkpoints = folder_ / "checkpoints";
  for (const auto* name :
       {".step-000005.dead-1.tmp", ".step-000005.my session-1.tmp", ".step-000004.removed",
        ".step-000009.session-1.tmp", "mine", ".step-x.tmp", "step-000005.bak"}) {
    fs::create_directories(checkpoints / name);
  }
  const CheckpointWriter writer(real_files(), options());
  EXPECT_THAT(names_in(checkpoints),
              ::testing::ElementsAre(".step-000009.session-1.tmp", ".step-x.tmp", "mine",
                                     "step-000005.bak"));
}

TEST_F(WriterTest, EveryFieldOfTheTrainingStateComesBack) {
  const TrainingState state{.step = 1,
                            .updates = 2,
                            .consumed_samples = std::int64_t{1} << 60U,
                            .skipped_steps = 4,
                            .skipped_in_a_row = 5,
                            .seed = ~std::uint64_t{0},
                            .loss_scale = 0.1,
                            .extra = {{"schedule", {{"name", "cosine"}, {"x", 1.0 / 3.0}}}}};
  CheckpointWriter writer(real_files(), options());
  writer.save(state, views(salted_pieces(1, 1)[0]));
  writer.wait();
  EXPECT_EQ(CheckpointReader(checkpoint(1)).state(), state);
}

}  // namespace
}  // namespace sw
