#include "cli/config.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "cli/keys.hpp"

namespace sw {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const char* const kSmall = R"(
[model]
preset = "llama-tiny"
[data]
train = ["corpus/*.txt"]
)";

RunOptions parse(const std::string& more, std::vector<std::string> sets = {}, int world = 0) {
  return parse_run_options(kSmall + more, "run.toml", sets, world);
}

/// The message of the ConfigError that `parse` throws.
std::string refusal(const std::string& more, std::vector<std::string> sets = {}, int world = 0) {
  try {
    (void)parse(more, std::move(sets), world);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string unsupported(const std::string& more, std::vector<std::string> sets = {}) {
  try {
    refuse_unsupported(parse(more, std::move(sets)), "run.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Config, DefaultsAreThoseOfTheStructs) {
  RunOptions expected;
  expected.model.preset = "llama-tiny";
  expected.data.train = {"corpus/*.txt"};
  expected.train.accumulation = 32 / 4;
  EXPECT_EQ(parse(""), expected);
}

TEST(Config, UnknownKeysSuggestTheNearestKeyWithFileAndLine) {
  EXPECT_EQ(refusal("[parallel]\nsequence_paralel = true\n"),
            "run.toml:7: unknown key parallel.sequence_paralel; the nearest known key is "
            "parallel.sequence_parallel");
  EXPECT_THAT(refusal("[train]\nlearning_rate = 1.0\n"), HasSubstr("optimizer.learning_rate"));
  EXPECT_THAT(refusal("[paralel]\ndp = 2\n"), HasSubstr("unknown key paralel"));
  EXPECT_THAT(refusal("", {"train.stepss=3"}),
              AllOf(HasSubstr("--set train.stepss=3"), HasSubstr("train.steps")));
}

TEST(Config, WrongTypesNameTheKeyTheValueAndTheTypeExpected) {
  EXPECT_EQ(refusal("[parallel]\ntp = \"two\"\n"),
            "run.toml:7: parallel.tp = 'two' has the wrong type; expected: integer");
  EXPECT_THAT(refusal("[parallel]\ntp = 2.0\n"), HasSubstr("expected: integer"));
  EXPECT_THAT(refusal("[parallel]\noverlap = 1\n"), HasSubstr("expected: boolean"));
  EXPECT_THAT(refusal("[train]\nfreeze = \"a\"\n"), HasSubstr("expected: list of strings"));
  EXPECT_THAT(refusal("[optimizer]\nbetas = [0.9]\n"), HasSubstr("expected: list of two numbers"));
  EXPECT_THAT(refusal("[train]\nprecision = \"fp32\"\n"),
              HasSubstr("it may be: float32, bfloat16, float16"));
}

TEST(Config, NumbersOutOfRangeAreRefused) {
  EXPECT_THAT(refusal("[parallel]\ntp = 0\n"), HasSubstr("parallel.tp = 0 is out of range"));
  EXPECT_THAT(refusal("[parallel]\nzero = 4\n"), HasSubstr("at least 0 and at most 3"));
  EXPECT_THAT(refusal("[optimizer]\nbetas = [0.9, 1.0]\n"), HasSubstr("out of range"));
  EXPECT_THAT(refusal("[optimizer]\nlearning_rate = nan\n"), HasSubstr("out of range"));
  EXPECT_THAT(refusal("[optimizer]\nlearning_rate = inf\n"), HasSubstr("out of range"));
  EXPECT_THAT(refusal("[train]\nseed = -1\n"), HasSubstr("out of range"));
}

TEST(Config, SyntaxErrorsNameLineAndColumn) {
  EXPECT_THAT(refusal("[train\n"), HasSubstr("run.toml:6:"));
}

TEST(Config, AMissingFileIsAConfigErrorWithItsPath) {
  try {
    (void)read_run_file("/nonexistent/run.toml");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/run.toml"));
  }
}

TEST(Config, PathsStartAtTheFilesFolderAndThoseOfSetAtTheCurrentDirectory) {
  const std::filesystem::path folder(testing::TempDir());
  const std::string path = folder / fmt::format("paths-{}.toml", ::getpid());
  std::ofstream(path) << "[model]\npath = \"m\"\n[data]\ntrain = [\"/a/*.txt\", \"b/../c\"]\n";
  const auto options = read_run_file(path, std::vector<std::string>{"data.tokenizer=t.json"});
  EXPECT_EQ(options.model.path, folder / "m");
  EXPECT_EQ(options.data.train[0], "/a/*.txt");
  EXPECT_EQ(options.data.train[1], folder / "c");
  EXPECT_EQ(options.data.tokenizer, std::filesystem::current_path() / "t.json");
}

TEST(Config, SetTakesATomlValueOrABareString) {
  const auto options =
      parse("", {"train.precision=bfloat16", "parallel.dp=2", "train.freeze=[\"a\", \"b\"]",
                 "optimizer.learning_rate=1", "data.tokenizer=123", "data.add_bos=true",
                 "model.preset=\"other\""});
  EXPECT_EQ(options.train.precision, DType::BFloat16);
  EXPECT_EQ(options.parallel.layout.dp, 2);
  EXPECT_EQ(options.train.freeze, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.optimizer.learning_rate, 1.0);
  EXPECT_EQ(options.data.tokenizer, "123");
  EXPECT_TRUE(options.data.add_bos);
  EXPECT_EQ(options.model.preset, "other");
}

TEST(Config, SetCannotBringInASecondKey) {
  EXPECT_THAT(refusal("", {"data.tokenizer=\"a\"\n[train]\nsteps = 3"}), HasSubstr("accepted"));
  EXPECT_EQ(parse("", {"data.tokenizer=\"a\"\nx = 3"}).data.tokenizer, "\"a\"\nx = 3");
  EXPECT_THAT(refusal("", {"train.steps"}), HasSubstr("expected key=value"));
  EXPECT_THAT(refusal("", {"parallel.tp=two"}), HasSubstr("parallel.tp = 'two'"));
}

TEST(Config, TheLastSetWins) {
  EXPECT_EQ(parse("", {"train.steps=3", "train.steps=5"}).train.steps, 5);
}

TEST(Config, AModelConfigurationBecomesJson) {
  const auto options = parse_run_options(
      "[model.config]\nmodel_type = \"llama\"\nhidden_size = 64\nrms_norm_eps = 1e-5\n"
      "[data]\ntrain = [\"x\"]\n",
      "run.toml", std::vector<std::string>{"model.config.hidden_size=128"});
  EXPECT_EQ(options.model.config,
            R"({"hidden_size":128,"model_type":"llama","rms_norm_eps":1e-05})");
}

TEST(Config, ExactlyOneModelSourceIsAsked) {
  EXPECT_THAT(refusal("", {"model.path=x"}),
              HasSubstr("model.preset and model.path contradict each other"));
  EXPECT_THAT(refusal("", {"model.preset="}), HasSubstr("no model"));
}

TEST(Config, StepsAndEpochsExcludeEachOther) {
  EXPECT_EQ(parse("[train]\nepochs = 2\n").train.steps, 0);
  EXPECT_THAT(refusal("[train]\nepochs = 2\nsteps = 5\n"),
              HasSubstr("train.steps = 5 and train.epochs = 2 contradict each other"));
  EXPECT_THAT(refusal("[train]\nsteps = 0\n"), HasSubstr("set one of them"));
}

TEST(Config, PartsOfTheHeadAreWholeCacheLines) {
  EXPECT_EQ(parse("[train]\nhead_chunk = 0\n").train.head_chunk, 0);
  EXPECT_THAT(refusal("[train]\nhead_chunk = 33\n"),
              HasSubstr("train.head_chunk = 33 is no multiple of 16; use 48"));
  EXPECT_THAT(refusal("[train]\nhead_chunk = 1\n"), HasSubstr("use 16"));
  EXPECT_THAT(refusal("[train]\nhead_chunk = -16\n"), HasSubstr("train.head_chunk"));
}

TEST(Config, AccumulationFollowsFromTheBatchAndLeavesTensorRanksOut) {
  const auto options =
      parse("[train]\nglobal_batch = 32\nmicro_batch = 2\n[parallel]\ndp = 4\ntp = 8\n");
  EXPECT_EQ(options.train.accumulation, 4);
}

TEST(Config, ABatchThatDoesNotDivideNamesTheNumbersAndSingleFieldRepairs) {
  // 64 = 4 x 6 x a has no whole a; 48 and 72 are the multiples of 24 around it; with dp = 6 no
  // micro-batch divides; with micro-batch 4 the largest dp up to 6 that divides 16 is 4.
  const std::string message =
      refusal("[train]\nglobal_batch = 64\nmicro_batch = 4\n[parallel]\ndp = 6\n");
  EXPECT_THAT(message,
              AllOf(HasSubstr("train.global_batch = 64"), HasSubstr("4 x 6"),
                    HasSubstr("train.global_batch = 48"), HasSubstr("train.global_batch = 72"),
                    HasSubstr("parallel.dp = 4"), testing::Not(HasSubstr("micro_batch = "))));
}

TEST(Config, DataParallelZeroTakesWhatIsLeftOfTheWorld) {
  EXPECT_EQ(parse("[parallel]\ndp = 0\ntp = 2\n", {}, 8).parallel.layout.dp, 4);
  EXPECT_THAT(refusal("[parallel]\ndp = 0\n"), HasSubstr("nothing says how large"));
  EXPECT_THAT(refusal("[parallel]\ndp = 0\ntp = 3\n", {}, 8), HasSubstr("multiple of 3"));
  EXPECT_THAT(refusal("[parallel]\ndp = 2\ntp = 2\n", {}, 8),
              HasSubstr("= 4 ranks, but 8 were asked for"));
}

TEST(Config, ContradictoryKeysAreRefused) {
  EXPECT_THAT(refusal("[optimizer]\nmomentum = 0.9\n"), HasSubstr("is for sgd"));
  EXPECT_THAT(refusal("[optimizer]\nname = \"sgd\"\nepsilon = 1e-5\n"), HasSubstr("is for adamw"));
  EXPECT_THAT(refusal("[optimizer]\nloss_scale = 1024\n"), HasSubstr("is for float16"));
  EXPECT_THAT(refusal("", {"data.validation=[\"v.txt\"]"}), HasSubstr("data.validation_every"));
  EXPECT_THAT(refusal("", {"data.validation_every=5"}), HasSubstr("data.validation names no file"));
}

TEST(Config, AGroupThatSharesNothingOutIsRefused) {
  EXPECT_THAT(refusal("", {"parallel.dp=4", "parallel.zero_group=1"}), HasSubstr("shares nothing"));
  EXPECT_THAT(refusal("", {"parallel.dp=4", "parallel.zero_group=2", "parallel.zero=0"}),
              HasSubstr("shares nothing"));
  EXPECT_THAT(refusal("", {"parallel.dp=4", "parallel.zero_group=3"}), HasSubstr("divide"));
  EXPECT_THAT(refusal("", {"parallel.dp=2", "parallel.zero=1", "parallel.offload=parameters"}),
              HasSubstr("use zero = 3 (or 0)"));
  EXPECT_EQ(refusal("", {"parallel.dp=2", "parallel.zero=3", "parallel.offload=parameters"}),
            "accepted");
  EXPECT_THAT(refusal("", {"parallel.offload_gb_per_s=10"}), HasSubstr("nothing is copied"));
}

TEST(Config, PipelinesThatContradictThemselvesAreRefused) {
  EXPECT_THAT(refusal("", {"parallel.pp=2", "parallel.virtual_stages=2"}),
              HasSubstr("parallel.virtual_stages = 2 needs parallel.pipeline"));
  EXPECT_THAT(refusal("", {"parallel.pp=2", "parallel.pipeline=gpipe", "parallel.pipeline_file=a"}),
              HasSubstr("contradict each other"));
  EXPECT_THAT(refusal("", {"parallel.pipeline_file=a"}), HasSubstr("parallel.pp of at least 2"));
}

TEST(Config, WhatIsNotBuiltIsRefusedByName) {
  EXPECT_EQ(unsupported("", {"parallel.communicator=mpi"}),
            "run.toml: parallel.communicator = \"mpi\": this communicator is not in this version");
  EXPECT_EQ(unsupported("", {"parallel.pipeline=pipedream"}), "accepted");
  EXPECT_EQ(unsupported("", {"parallel.cp=2"}), "accepted");
  for (const char* context : {"parallel.context=gather", "parallel.context=all_to_all"}) {
    EXPECT_EQ(unsupported("", {"parallel.cp=2", context}), "accepted");
  }
  for (const char* set :
       {"train.precision=float16", "parallel.communicator=mpi", "parallel.communicator=nccl"}) {
    const std::string path = std::string(set).substr(0, std::string(set).find('='));
    EXPECT_THAT(unsupported("", {set}), AllOf(HasSubstr(path), HasSubstr("not in this version")));
  }
  EXPECT_EQ(unsupported("", {"parallel.dp=4", "parallel.zero_group=2"}), "accepted");
}

TEST(Config, GroupsOfDataParallelRanksNest) {
  EXPECT_EQ(unsupported("", {"parallel.dp=4", "parallel.ep=2"}), "accepted");
  EXPECT_EQ(unsupported("", {"parallel.dp=2", "parallel.cp=2", "parallel.ep=4"}), "accepted");
  EXPECT_THAT(refusal("", {"parallel.dp=3", "parallel.ep=2"}), HasSubstr("does not divide"));
  EXPECT_EQ(unsupported("", {"parallel.dp=2", "parallel.cp=4", "parallel.ep=2"}), "accepted");
  for (const char* group : {"parallel.zero_group=2", "parallel.zero_group=4"}) {
    EXPECT_EQ(unsupported("", {"parallel.dp=2", "parallel.cp=4", "parallel.ep=4", group}),
              "accepted");
  }
  EXPECT_THAT(
      refusal("", {"parallel.dp=4", "parallel.cp=6", "parallel.ep=4"}),
      HasSubstr("ep = 4 and parallel.cp = 6 cut dp x cp = 4 x 6 ranks in groups that do not "
                "nest; use ep = 3 or ep = 6"));
  EXPECT_THAT(refusal("", {"parallel.dp=12", "parallel.ep=4", "parallel.zero_group=6"}),
              HasSubstr("zero_group = 6 and parallel.ep = 4 cut dp x cp = 12 x 1 ranks in groups "
                        "that do not nest; use zero_group = 4 or zero_group = 12"));
  EXPECT_THAT(refusal("", {"parallel.dp=2", "parallel.cp=3", "parallel.zero_group=2"}),
              HasSubstr("parallel.cp = 3 cut dp x cp = 2 x 3 ranks in groups that do not nest; use "
                        "zero_group = 3"));
  EXPECT_THAT(refusal("", {"parallel.ep=2"}), HasSubstr("does not divide dp x cp = 1 x 1 = 1; "
                                                        "leave it out"));
  EXPECT_THAT(refusal("", {"parallel.dp=2", "parallel.expert_buffer=3"}), HasSubstr("without ep"));
}

TEST(Config, TokensAreGatheredBeforeTheyGoToTheirExperts) {
  const auto refused = [](std::vector<std::string> sets) {
    sets.insert(sets.end(), {"parallel.dp=2", "parallel.tp=2"});
    return refusal("", sets);
  };
  EXPECT_THAT(refused({"parallel.ep=2"}), HasSubstr("gather_before_dispatch = true"));
  EXPECT_THAT(refused({"parallel.gather_before_dispatch=true"}), HasSubstr("leave it out"));
  for (const char* set :
       {"parallel.gather_before_dispatch=true", "parallel.sequence_parallel=false"}) {
    EXPECT_EQ(unsupported("", {"parallel.dp=2", "parallel.tp=2", "parallel.ep=2", set}),
              "accepted");
  }
}

TEST(Config, EveryKeySurvivesWritingAndReadingBack) {
  RunOptions options = parse(
      "[optimizer]\nlearning_rate = 0.1\nno_decay = [\"*norm*\", \"quote \\\" and \\\\ \\n\"]\n"
      "betas = [0.1, 0.3]\n[train]\nprecision = \"bfloat16\"\nseed = 9223372036854775807\n"
      "[parallel]\ndp = 4\nalgorithm = \"ring\"\nstage_layers = [1, 2]\ndeadline_s = 1\n");
  EXPECT_EQ(parse_run_options(to_toml(options), "written"), options);

  options.model = {};
  options.model.config = R"({"a":[1,2.5,"x",true],"b":{"c":1.0,"d":{"e":"f"}}})";
  EXPECT_EQ(parse_run_options(to_toml(options), "written"), options);
}

TEST(Config, EveryKeyCanBeSetToItsOwnValue) {
  RunOptions options = parse("");
  for (const Key& key : run_file_keys()) {
    if (key.section != "model") {
      const std::string set = key.path() + "=" + to_toml(key, options);
      EXPECT_EQ(parse("", {"data.validation_every=0", set}), options) << set;
    }
  }
}

TEST(Config, TheDocumentedPageIsTheTableOfKeys) {
  std::ifstream page(SW_SOURCE_DIR "/docs/run-file.md");
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  EXPECT_EQ(text, run_file_reference())
      << "run: build/release/shardwright reference run-file > docs/run-file.md";
}

}  // namespace
}  // namespace sw
