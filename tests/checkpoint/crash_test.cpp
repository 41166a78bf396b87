#include <gmock/gmock.h>

#include "tests/checkpoint/recording_files.hpp"
#include "tests/checkpoint/saving.hpp"

// Cases C050 and C055: a crash or a failing disk at any call of a save leaves the old or the new
// checkpoint, never a mixture, and the next save works.
namespace sw {
namespace {

namespace fs = std::filesystem;
using sw::testing::Call;
using sw::testing::data_error_of;
using sw::testing::holds;
using sw::testing::names_in;
using sw::testing::RankPieces;
using sw::testing::RecordingFiles;
using sw::testing::replay;
using sw::testing::salted_pieces;
using sw::testing::save_once;
using sw::testing::Survives;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 2;

class CrashTest : public sw::testing::ScratchTest {
 protected:
  WriterOptions options(const fs::path& root, const std::string& session) {
    return {.folder = root / "checkpoints",
            .run = "run",
            .session = session,
            .keep = 1,
            .background = false,
            .deadline_s = 20};
  }

  /// A folder with the old checkpoint.
  fs::path start(const std::string& name, std::int64_t step) {
    const fs::path root = folder_ / name;
    fs::remove_all(root);
    RecordingFiles files;
    save_once(files, options(root, "first"), {.step = step}, old_);
    return root;
  }

  std::vector<Call> record_a_save(const fs::path& root) {
    RecordingFiles files;
    save_once(files, options(root, "second"), {.step = 2}, new_);
    return files.calls();
  }

  /// The newest checkpoint is the old or the new one.
  bool expect_old_or_new(const fs::path& root, std::int64_t old_step) {
    const auto newest = find_newest(root / "checkpoints", [](const std::string&) {});
    if (!newest) {
      ADD_FAILURE() << "no checkpoint is left";
      return false;
    }
    const std::int64_t step = CheckpointReader(*newest).state().step;
    const bool is_new = step == 2 && holds(*newest, new_);
    const bool is_old = step == old_step && holds(*newest, old_);
    EXPECT_TRUE(is_new || is_old) << *newest;
    return is_new;
  }

  void expect_next_save_works(const fs::path& root) {
    RecordingFiles files;
    save_once(files, options(root, "third"), {.step = 2}, third_);
    EXPECT_THAT(names_in(root / "checkpoints"), ElementsAre("step-000002"));
    EXPECT_TRUE(holds(root / "checkpoints" / "step-000002", third_));
  }

  void try_every_prefix(std::int64_t old_step) {
    const fs::path recorded = start("recorded", old_step);
    const std::vector<Call> calls = record_a_save(recorded);
    ASSERT_GT(calls.size(), 20U);
    int found_new = 0;
    for (std::size_t count = 0; count <= calls.size(); ++count) {
      for (const Survives survives : {Survives::All, Survives::HalfOfLast, Survives::Synced}) {
        const bool torn = survives == Survives::HalfOfLast;
        if (torn && (count == 0 || calls[count - 1].kind != Call::Kind::Write)) {
          continue;  // the same as All
        }
        SCOPED_TRACE(fmt::format("{} of {} calls, mode {}", count, calls.size(),
                                 static_cast<int>(survives)));
        const fs::path root = folder_ / "replayed";
        fs::remove_all(root);
        fs::copy(start_, root, fs::copy_options::recursive);
        replay(calls, count, survives, recorded, root);
        found_new += expect_old_or_new(root, old_step) ? 1 : 0;
        if (survives == Survives::All) {
          expect_next_save_works(root);
        }
      }
    }
    EXPECT_GT(found_new, 0);
  }

  RankPieces old_ = salted_pieces(kRanks, 1);
  RankPieces new_ = salted_pieces(kRanks, 101);
  RankPieces third_ = salted_pieces(kRanks, 201);
  fs::path start_;
};

TEST_F(CrashTest, EveryPrefixOfASaveLeavesTheOldOrTheNewCheckpoint) {
  start_ = start("start", 1);
  try_every_prefix(1);
}

TEST_F(CrashTest, EveryPrefixOfASaveOverTheSameStepLeavesTheOldOrTheNewCheckpoint) {
  start_ = start("start", 2);
  try_every_prefix(2);
}

// What a replay cannot show: a directory whose names were not synced may lose them.
TEST_F(CrashTest, NamesAreDurableBeforeAnythingRestsOnThem) {
  const fs::path root = start("recorded", 1);
  const std::vector<Call> calls = record_a_save(root);
  const fs::path checkpoints = root / "checkpoints";
  const auto commit = std::ranges::find_if(calls, [&](const Call& call) {
    return call.kind == Call::Kind::Rename && call.to == checkpoints / "step-000002";
  });
  ASSERT_NE(commit, calls.end());
  std::map<fs::path, bool> durable;  // of the names in a directory
  for (auto call = calls.begin(); call != commit; ++call) {
    if (call->kind == Call::Kind::Create || call->kind == Call::Kind::Rename) {
      durable[call->path.parent_path()] = false;
    } else if (call->kind == Call::Kind::SyncDirectory) {
      durable[call->path] = true;
    }
  }
  EXPECT_TRUE(durable.at(commit->path)) << "names of the new checkpoint, before it is renamed";
  const auto next = std::next(commit);
  EXPECT_TRUE(next->kind == Call::Kind::SyncDirectory && next->path == checkpoints)
      << "the rename, before the old checkpoint is removed";
}

TEST_F(CrashTest, AFailureAtAnyCallIsReportedAndHarmsNoCheckpoint) {
  std::size_t calls = 1;
  for (std::size_t failing = 0; failing < calls; ++failing) {
    SCOPED_TRACE(fmt::format("call {}", failing));
    const fs::path root = start("failing", 1);
    RecordingFiles files;
    fs::path failed_path;
    files.fails = [&](std::size_t number, const Call& call) {
      failed_path = number == failing ? call.path : failed_path;
      return number == failing;
    };
    const std::string error =
        data_error_of([&] { save_once(files, options(root, "second"), {.step = 2}, new_); });
    calls = files.calls().size();
    if (failing < calls) {
      // Rank 0 may instead say that it gave up because the other rank failed.
      EXPECT_THAT(error, ::testing::AnyOf(HasSubstr(failed_path.string()), HasSubstr("aborted")));
    }
    expect_old_or_new(root, 1);
    expect_next_save_works(root);
  }
  EXPECT_GT(calls, 20U);
}

TEST_F(CrashTest, ADiskThatStaysFullNamesPathAndBytesAndLeavesNoHalfWrittenFolder) {
  const RankPieces old_alone = salted_pieces(1, 1);
  for (std::size_t full_from = 0; full_from < 12; ++full_from) {
    const fs::path root = folder_ / "full";
    fs::remove_all(root);
    save_once(real_files(), options(root, "first"), {.step = 1}, old_alone);
    RecordingFiles files;
    files.fails = [&](std::size_t number, const Call& call) {
      return number >= full_from && call.kind == Call::Kind::Write;
    };
    EXPECT_THAT(
        data_error_of(
            [&] { save_once(files, options(root, "second"), {.step = 2}, salted_pieces(1, 2)); }),
        ::testing::MatchesRegex(".*/checkpoints/.*could not write [0-9]+ bytes: No space.*"));
    EXPECT_THAT(names_in(root / "checkpoints"), ElementsAre("step-000001"));
    EXPECT_TRUE(holds(root / "checkpoints" / "step-000001", old_alone));
  }
}

}  // namespace
}  // namespace sw
