#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/config.hpp"

namespace sw {
namespace {

struct VerifyArguments {
  std::string run_file;
  std::vector<std::string> against;
  std::int64_t steps = 1;
  bool resume = false;
  std::string dump;
  bool json = false;
  std::vector<std::string> sets;
};

int verify(const VerifyArguments& a, const Environment& environment) {
  refuse_launcher(environment);
  const RunOptions options = read_run_file(a.run_file, a.sets);
  refuse_unsupported(options, a.run_file);
  throw ConfigError("verify is not in this version");
}

}  // namespace

Action add_verify(Arguments& arguments) {
  auto a = std::make_shared<VerifyArguments>();
  arguments.run_file(a->run_file);
  arguments.repeated("--against", a->against, "KEY=VALUE",
                     "A key of the reference; default: one rank.");
  arguments.option("--steps", a->steps, 1, "K", "Steps compared.");
  arguments.flag("--resume", a->resume,
                 "Compare one more step after saving with one after loading.");
  arguments.option("--dump", a->dump, "DIR",
                   "Both sides' gradients and weights as safetensors, into this folder.");
  arguments.sets(a->sets);
  arguments.json(a->json);
  return [a](const Environment& environment) { return verify(*a, environment); };
}

}  // namespace sw
