#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"

namespace sw {
namespace {

struct TokenizeArguments {
  std::vector<std::string> files;
  std::string tokenizer;
  std::string out;
  bool json = false;
};

}  // namespace

Action add_tokenize(Arguments& arguments) {
  auto a = std::make_shared<TokenizeArguments>();
  arguments.positional("FILES", a->files, "Text or JSONL.");
  arguments.option("--tokenizer", a->tokenizer, "T", "bytes, or a tokenizer.json.", true);
  arguments.option("--out", a->out, "DATA", "The token set.", true);
  arguments.json(a->json);
  return [a](const Environment&) -> int { throw ConfigError("tokenize is not in this version"); };
}

}  // namespace sw
