#include "train/verify.hpp"

#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/config.hpp"
#include "cli/print_json.hpp"

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

/// Both sides see the layout's samples, so the reference cannot have others; --resume has no
/// reference at all.
void check_reference(const VerifyArguments& a) {
  if (a.resume && !a.against.empty()) {
    throw ConfigError("--resume compares the layout with itself; remove --against or --resume");
  }
  for (const std::string& set : a.against) {
    if (set.starts_with("data.")) {
      throw ConfigError(fmt::format(
          "--against {}: both sides are compared on the same samples; use --set {}", set, set));
    }
  }
}

/// The options of the reference: what --against says on top of the run file, else one rank.
RunOptions reference_options(const VerifyArguments& a, const RunOptions& options) {
  if (a.against.empty()) {
    RunOptions reference = options;
    reference.train.micro_batch *= options.parallel.layout.dp;
    reference.parallel = one_rank(options.parallel);
    return reference;
  }
  std::vector<std::string> sets = a.sets;
  sets.insert(sets.end(), a.against.begin(), a.against.end());
  RunOptions reference = read_run_file(a.run_file, sets);
  refuse_unsupported(reference, a.run_file);
  if (reference.train.accumulation != options.train.accumulation ||
      reference.train.global_batch != options.train.global_batch) {
    throw ConfigError(
        fmt::format("{}: the reference has {} micro-batches of a window of {}, the layout {} of "
                    "{}; give --against train.micro_batch=… so "
                    "that both are the same",
                    a.run_file, reference.train.accumulation, reference.train.global_batch,
                    options.train.accumulation, options.train.global_batch));
  }
  return reference;
}

Json to_json(const Comparison& result, std::int64_t steps) {
  const auto worst = [](const WorstTensor& tensor) {
    return Json{{"name", tensor.name}, {"relative_error", tensor.relative_error}};
  };
  Json json;
  json["equal"] = result.equal;
  json["steps"] = steps;
  json["loss"] = {result.loss[0], result.loss[1]};
  json["valid_tokens"] = {result.valid_tokens[0], result.valid_tokens[1]};
  json["worst_gradient"] = worst(result.worst_gradient);
  json["worst_weight"] = worst(result.worst_weight);
  json["bit_identical"] = result.bit_identical;
  json["bound"] = result.bound;
  return json;
}

void print_text(const Comparison& result, const std::string& layout, const std::string& reference) {
  fmt::print("{} against {}: {}\n", layout, reference, result.equal ? "equal" : "DIFFERENT");
  fmt::print("  loss            {:.9g}  {:.9g}\n", result.loss[0], result.loss[1]);
  fmt::print("  valid tokens    {}  {}\n", result.valid_tokens[0], result.valid_tokens[1]);
  fmt::print("  worst gradient  {:.3g}  {}\n", result.worst_gradient.relative_error,
             result.worst_gradient.name);
  fmt::print("  worst weight    {:.3g}  {}\n", result.worst_weight.relative_error,
             result.worst_weight.name);
  fmt::print("  bound           {:.3g}{}\n", result.bound,
             result.bit_identical ? "  (bit-identical)" : "");
}

std::string describe(const RunOptions& options) {
  const ParallelOptions& parallel = options.parallel;
  const Layout& layout = parallel.layout;
  const auto axis = [](const char* name, int ranks) {
    return ranks > 1 ? fmt::format("{} {} x ", name, ranks) : "";
  };
  return fmt::format("{}dp {} x {}tp {}{}{}, ZeRO-{}", axis("pp", layout.pp), layout.dp,
                     axis("cp", layout.cp), layout.tp,
                     parallel.sequence_parallel && layout.tp > 1 ? " + sequence" : "",
                     layout.ep > 1 ? fmt::format(", ep {}", layout.ep) : "", parallel.zero);
}

int verify(const VerifyArguments& a, const Environment& environment) {
  refuse_launcher(environment);
  const RunOptions options = read_run_file(a.run_file, a.sets);
  refuse_unsupported(options, a.run_file);
  check_reference(a);
  if (options.model.expert_capacity > 0 && !a.resume) {
    throw ConfigError(
        fmt::format("{}: model.expert_capacity = {} drops slots by what a rank has, so that the "
                    "result depends on "
                    "the layout and no two are equal; verify with --set model.expert_capacity=0",
                    a.run_file, options.model.expert_capacity));
  }
  VerifyRequest request;
  request.layout = options;
  request.reference = a.resume ? options : reference_options(a, options);
  request.base = std::filesystem::absolute(a.run_file).parent_path();
  request.steps = a.steps;
  request.dump = a.dump;
  const Comparison result = naming_file(
      a.run_file, [&] { return a.resume ? verify_resume(request) : verify_layout(request); });
  if (a.json) {
    print_json(to_json(result, a.steps));
  } else {
    print_text(result, a.resume ? "after loading" : describe(options),
               a.resume ? "without a break" : describe(request.reference));
  }
  return result.equal ? kDone : kComparisonFailed;
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
