#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"

namespace sw {
namespace {

struct GenerateArguments {
  std::string model;
  std::string prompt;
  std::int64_t tokens = 64;
  double temperature = 1;
  std::int64_t seed = 1;
  bool json = false;
};

}  // namespace

Action add_generate(Arguments& arguments) {
  auto a = std::make_shared<GenerateArguments>();
  arguments.positional("MODEL", a->model, "A checkpoint or a Hugging Face folder.");
  arguments.option("--prompt", a->prompt, "TEXT", "The text to go on from.", true);
  arguments.option("--tokens", a->tokens, 1, "N", "Tokens to add.");
  arguments.option("--temperature", a->temperature, 0, "T", "0 = the likeliest token.");
  arguments.option("--seed", a->seed, 0, "N", "Of the sampling.");
  arguments.json(a->json);
  return [a](const Environment&) -> int { throw ConfigError("generate is not in this version"); };
}

}  // namespace sw
