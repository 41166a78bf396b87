// The commands as a user runs them, on a small model and a small text.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/json.hpp"
#include "tests/cli/process.hpp"

namespace sw {
namespace {

using test::Ended;
using test::Process;
using test::shardwright;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class Run : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / fmt::format("sw-{}-{}", ::getpid(), info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream text(folder_ / "text.txt");
    for (int line = 0; line < 400; ++line) {
      text << "Line " << line << " says that " << line * line << " is a square.\n";
    }
    std::ofstream(folder_ / "run.toml") << R"(
[model.config]
model_type = "llama"
vocab_size = 259
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[data]
train = ["text.txt"]
sequence_length = 32
[train]
steps = 6
global_batch = 8
micro_batch = 2
[parallel]
dp = 2
deadline_s = 20
[checkpoint]
every = 2
)";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<std::string> train(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"train", path("run.toml"), "--out", path("run")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::vector<Json> metrics() const {
    std::ifstream file(path("run/metrics.jsonl"));
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) {
      lines.push_back(parse_json(line, "metrics.jsonl"));
    }
    return lines;
  }
  Json json(const std::string& name) const {
    std::ifstream file(path("run/" + name));
    return parse_json(std::string((std::istreambuf_iterator<char>(file)), {}), name);
  }

  fs::path folder_;
};

void expect_refused(const Ended& ended, const std::string& why) {
  EXPECT_EQ(ended.status, 2) << ended.error;
  EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 1) << ended.error;
  EXPECT_THAT(ended.error, AllOf(testing::StartsWith("shardwright: "), HasSubstr(why)));
}

TEST_F(Run, TrainsAndLeavesARunFolderWhoseAccountIsExact) {
  const Ended ended = shardwright(train());
  ASSERT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 6) << "a line a step";
  for (const char* name : {"run.toml", "plan.json", "metrics.jsonl", "ledger.json", "trace.json",
                           "checkpoints/step-000006"}) {
    EXPECT_TRUE(fs::exists(folder_ / "run" / name)) << name;
  }
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), 6U);
  for (const char* key :
       {"step", "loss", "tokens", "valid_tokens", "samples", "unique_samples", "consumed_samples",
        "skipped_steps", "learning_rate", "gradient_norm", "step_seconds", "tokens_per_second",
        "mfu", "communication_seconds", "exposed_communication_seconds", "wait_seconds",
        "slowest_rank", "peak_bytes"}) {
    EXPECT_TRUE(lines.back().contains(key)) << key;
  }
  EXPECT_LT(lines.back().at("loss"), lines.front().at("loss"));
  EXPECT_EQ(lines.back().at("consumed_samples"), 6 * 8);
  const Json ledger = json("ledger.json");
  for (const Json& row : ledger.at("collectives")) {
    for (const char* key : {"calls", "sent_bytes_per_rank", "sent_bytes"}) {
      EXPECT_EQ(row.at("planned").at(key), row.at("measured").at(key)) << row;
    }
  }
  for (const Json& row : ledger.at("memory")) {
    EXPECT_EQ(row.at("planned_peak"), row.at("measured_peak"));
  }
  const Ended report = shardwright({"report", path("run")});
  EXPECT_EQ(report.status, 0);
  EXPECT_THAT(report.out, HasSubstr("Every planned byte, call and peak is what was measured"));
}

TEST_F(Run, TheRunFileAsResolvedTrainsTheSame) {
  ASSERT_EQ(shardwright(train({"--set", "train.steps=2"})).status, 0);
  ASSERT_EQ(shardwright({"train", path("run/run.toml"), "--out", path("again")}).status, 0);
  const auto first = metrics();
  fs::rename(folder_ / "again" / "metrics.jsonl", folder_ / "run" / "metrics.jsonl");
  EXPECT_EQ(first.back().at("loss"), metrics().back().at("loss"));
}

TEST_F(Run, AFolderThatHoldsARunIsRefusedWithoutResume) {
  ASSERT_EQ(shardwright(train({"--set", "train.steps=2"})).status, 0);
  expect_refused(shardwright(train()), "--resume");
}

TEST_F(Run, ResumingToMoreStepsGivesTheLossesOfARunThatNeverStopped) {
  ASSERT_EQ(shardwright(train({"--set", "optimizer.schedule=constant"})).status, 0);
  const auto whole = metrics();
  fs::remove_all(folder_ / "run");
  ASSERT_EQ(shardwright(train({"--set", "optimizer.schedule=constant", "--set", "train.steps=3",
                               "--set", "checkpoint.every=1"}))
                .status,
            0);
  const Ended resumed = shardwright(train({"--set", "optimizer.schedule=constant", "--resume"}));
  ASSERT_EQ(resumed.status, 0) << resumed.error;
  EXPECT_THAT(resumed.error, HasSubstr("step-000003"));
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), whole.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("step"), whole[i].at("step"));
    EXPECT_EQ(lines[i].at("loss"), whole[i].at("loss")) << "step " << i + 1;
  }
}

TEST_F(Run, ARankThatIsKilledEndsTheRunWithItsName) {
  Process process(train({"--set", "train.steps=100000"}));
  ASSERT_TRUE(process.wait_for("step 4/"));
  const auto ranks = process.children();
  ASSERT_EQ(ranks.size(), 2U);
  ::kill(ranks[1], SIGKILL);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.error, AllOf(HasSubstr("rank 1 on "), HasSubstr("killed by signal 9")));
  for (const pid_t rank : ranks) {
    EXPECT_EQ(::kill(rank, 0), -1) << "a rank is left";
  }
  const Ended resumed = shardwright(train({"--resume", "--set", "train.steps=8"}));
  EXPECT_TRUE(resumed.status == 0) << resumed.error;
}

TEST_F(Run, ASignalSavesACheckpointAndEndsWith75) {
  Process process(train({"--set", "train.steps=100000", "--set", "checkpoint.every=0"}));
  ASSERT_TRUE(process.wait_for("step 3/"));
  ::kill(process.id(), SIGTERM);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.status, 75) << ended.error;
  EXPECT_THAT(ended.error, HasSubstr("--resume"));
  const auto step = metrics().back().at("step").get<int>();
  const Ended inspect = shardwright({"checkpoint", "inspect", path("run/checkpoints"), "--json"});
  EXPECT_EQ(inspect.status, 0) << inspect.error;
  EXPECT_THAT(inspect.out, HasSubstr(std::to_string(step)));
  const Ended resumed =
      shardwright(train({"--resume", "--set", "train.steps=" + std::to_string(step + 2)}));
  EXPECT_EQ(resumed.status, 0) << resumed.error;
  EXPECT_EQ(metrics().back().at("step"), step + 2);
}

TEST_F(Run, BadInputIsRefusedBeforeAnythingIsWritten) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"data.train=[\"nothing.txt\"]", "nothing.txt"},
      {"parallel.tp=3", "3"},
      {"train.global_batch=7", "7"},
      {"parallel.pipeline=pipedream", "parallel.pp of at least 2"},
      {"parallel.communicator=mpi", "not in this version"},
      {"parallel.pp=3", "decoder layers"},
      {"model.config.vocab_size=100", "100"},
      {"train.freeze=[\"nothing*\"]", "nothing*"},
  };
  for (const auto& [set, why] : wrong) {
    expect_refused(shardwright(train({"--set", set})), why);
    EXPECT_FALSE(fs::exists(folder_ / "run")) << set;
  }
  expect_refused(shardwright(train({"--ranks", "3"})), "3");
  fs::resize_file(folder_ / "text.txt", 0);
  expect_refused(shardwright(train()), "data.train");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(Run, PlanVerifyAndAccountsPrintOneJsonDocument) {
  const Ended plan = shardwright({"plan", path("run.toml"), "--json"});
  ASSERT_EQ(plan.status, 0) << plan.error;
  const Json planned = parse_json(plan.out, "plan --json");
  EXPECT_EQ(planned.at("world"), 2);
  for (const char* key : {"parameters", "gradients", "optimizer", "activations", "communication",
                          "workspace", "peak"}) {
    EXPECT_TRUE(planned.at("ranks").at(1).at("memory").contains(key)) << key;
  }
  const Ended verify = shardwright({"verify", path("run.toml"), "--json"});
  EXPECT_EQ(verify.status, 0) << verify.error;
  const Json verified = parse_json(verify.out, "verify --json");
  EXPECT_EQ(verified.at("equal"), true);
  for (const char* key : {"steps", "loss", "valid_tokens", "worst_gradient", "worst_weight",
                          "bit_identical", "bound"}) {
    EXPECT_TRUE(verified.contains(key)) << key;
  }
}

TEST_F(Run, GeneratesFromWhatItLearnt) {
  ASSERT_EQ(shardwright(train({"--set", "train.steps=2"})).status, 0);
  const Ended ended = shardwright({"generate", path("run"), "--prompt", "Line ", "--tokens", "4"});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_THAT(ended.out, HasSubstr("Line "));
}

TEST_F(Run, ATokenSetTrainsAsItsTextDoes) {
  ASSERT_EQ(shardwright(train({"--set", "train.steps=2"})).status, 0);
  const auto from_text = metrics();
  fs::remove_all(folder_ / "run");
  const Ended tokenized = shardwright(
      {"tokenize", path("text.txt"), "--tokenizer", "bytes", "--out", path("text.tokens")});
  ASSERT_EQ(tokenized.status, 0) << tokenized.error;
  const Ended trained = shardwright(
      train({"--set", "train.steps=2", "--set", "data.train=[\"" + path("text.tokens") + "\"]"}));
  ASSERT_EQ(trained.status, 0) << trained.error;
  EXPECT_EQ(metrics().back().at("loss"), from_text.back().at("loss"));
}

}  // namespace
}  // namespace sw
