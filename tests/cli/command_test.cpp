#include "cli/command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/json.hpp"

namespace sw {
namespace {

using testing::HasSubstr;

struct Ran {
  int status = 0;
  std::string out;
  std::string error;
};

Ran run(std::vector<const char*> arguments, const Environment& environment = {}) {
  arguments.insert(arguments.begin(), "shardwright");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Ran ran;
  ran.status = run_command_line(static_cast<int>(arguments.size()), arguments.data(), environment);
  std::fflush(stdout);
  ran.out = testing::internal::GetCapturedStdout();
  ran.error = testing::internal::GetCapturedStderr();
  return ran;
}

void expect_one_line(const Ran& ran, int status) {
  EXPECT_EQ(ran.status, status);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(std::count(ran.error.begin(), ran.error.end(), '\n'), 1) << ran.error;
  EXPECT_THAT(ran.error, testing::StartsWith("shardwright: "));
}

TEST(Commands, WrongUsageIsOneLineAndStatusTwo) {
  expect_one_line(run({}), kRefused);
  expect_one_line(run({"fly"}), kRefused);
  expect_one_line(run({"train"}), kRefused);
  expect_one_line(run({"train", "/nonexistent/run.toml"}), kRefused);
  expect_one_line(run({"train", "run.toml", "--ranks", "0"}), kRefused);
  expect_one_line(run({"account", "ring", "message=3"}), kRefused);
  expect_one_line(run({"checkpoint", "eat", "x"}), kRefused);
}

TEST(Commands, HelpAndVersionEndWithZero) {
  EXPECT_EQ(run({"--help"}).status, kDone);
  EXPECT_THAT(run({"train", "--help"}).out, HasSubstr("RUN.toml"));
  EXPECT_EQ(run({"--version"}).status, kDone);
}

TEST(Commands, JsonIsOneDocumentOnStandardOutput) {
  const Ran ran = run({"account", "ring", "message=120MB", "ranks=4", "--json"});
  EXPECT_EQ(ran.status, kDone);
  EXPECT_EQ(ran.error, "");
  const Json json = parse_json(ran.out, "standard output");
  for (const char* key : {"inputs", "formula", "outputs", "notes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["outputs"]["sent_per_rank"], (Json{{"value", 180}, {"unit", "MB"}}));
}

TEST(Commands, AnAccountShowsItsFormula) {
  EXPECT_THAT(run({"account", "batch", "micro_batch=2", "grad_accum=4", "dp=4"}).out,
              testing::AllOf(HasSubstr("micro_batch * grad_accum * dp"), HasSubstr("32 samples")));
}

TEST(Commands, TrainUnderAnOuterLauncherIsRefusedInOneSentence) {
  Environment environment;
  environment.launcher = "mpirun (OMPI_COMM_WORLD_SIZE = 4)";
  const Ran ran = run({"train", "run.toml"}, environment);
  expect_one_line(ran, kRefused);
  EXPECT_THAT(ran.error, HasSubstr("mpirun (OMPI_COMM_WORLD_SIZE = 4)"));
}

std::map<std::string, std::string> variables;
const char* variable(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

TEST(Launchers, AreToldByTheirVariables) {
  variables = {};
  EXPECT_EQ(find_launcher(variable), "");
  variables = {{"OMPI_COMM_WORLD_SIZE", "4"}};
  EXPECT_EQ(find_launcher(variable), "mpirun (OMPI_COMM_WORLD_SIZE = 4)");
  variables = {{"PMI_SIZE", "2"}};
  EXPECT_THAT(find_launcher(variable), HasSubstr("mpiexec"));
  variables = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}};
  EXPECT_THAT(find_launcher(variable), HasSubstr("torchrun"));
  variables = {{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "8"}};
  EXPECT_THAT(find_launcher(variable), HasSubstr("srun"));
}

TEST(Launchers, ThatStartOneProcessAreNone) {
  variables = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(find_launcher(variable), "");
  // Inside a batch allocation, but not started by srun.
  variables = {{"SLURM_NTASKS", "8"}};
  EXPECT_EQ(find_launcher(variable), "");
}

TEST(Commands, TheDocumentedPageIsTheCommandsOwnHelp) {
  std::ifstream page(SW_SOURCE_DIR "/docs/commands.md");
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  EXPECT_EQ(text, command_reference())
      << "run: build/release/shardwright reference commands > docs/commands.md";
}

}  // namespace
}  // namespace sw
