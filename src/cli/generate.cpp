#include "train/generate.hpp"

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/print_json.hpp"
#include "data/tokenizers/tokenizer.hpp"

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

constexpr std::int64_t kLongest = 1024;

int generate(const GenerateArguments& a) {
  const LoadedModel model = load_model(a.model);
  const auto tokenizer = make_tokenizer(model.tokenizer, model.folder);
  std::vector<std::int32_t> prompt = tokenizer->encode(a.prompt);
  if (prompt.empty()) {
    throw ConfigError("--prompt is empty; give at least one character");
  }
  for (const std::int32_t token : prompt) {
    if (token >= model.config.vocabulary) {
      throw ConfigError(
          fmt::format("--prompt has token {}, but the model's vocabulary is {}: it was trained "
                      "with another tokenizer than {}",
                      token, model.config.vocabulary, model.tokenizer));
    }
  }
  const auto wanted = static_cast<std::int64_t>(prompt.size()) + a.tokens;
  const std::int64_t most =
      model.config.max_positions > 0 ? std::min(kLongest, model.config.max_positions) : kLongest;
  Generator generator(model.config, std::min(wanted, most), model.read);
  SamplingOptions options;
  options.tokens = a.tokens;
  options.temperature = a.temperature;
  options.seed = static_cast<std::uint64_t>(a.seed);
  options.stop = tokenizer->special().end.value_or(-1);
  const std::string text = tokenizer->decode(sample(generator, prompt, options));
  if (a.json) {
    print_json({{"prompt", a.prompt}, {"text", text}});
  } else {
    fmt::print("{}{}\n", a.prompt, text);
  }
  return kDone;
}

}  // namespace

Action add_generate(Arguments& arguments) {
  auto a = std::make_shared<GenerateArguments>();
  arguments.positional("MODEL", a->model, "A checkpoint or a Hugging Face folder.");
  arguments.option("--prompt", a->prompt, "TEXT", "The text to go on from.", true);
  arguments.option("--tokens", a->tokens, 1, "N", "Tokens to add.");
  arguments.option("--temperature", a->temperature, 0, "T", "0 = the likeliest token.");
  arguments.option("--seed", a->seed, 0, "N", "Of the sampling.");
  arguments.json(a->json);
  return [a](const Environment&) { return generate(*a); };
}

}  // namespace sw
