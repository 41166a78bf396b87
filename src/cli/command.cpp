#include "cli/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "cli/config.hpp"

namespace sw {
namespace {

constexpr Command kCommands[] = {
    {"train", "Trains the model of a run file.", add_train},
    {"plan", "Predicts memory, bytes, calls and time of a run, per rank.", add_plan},
    {"verify", "Compares a layout with a reference, from the same state on the same samples.",
     add_verify},
    {"report", "Puts plan and run of a run folder side by side.", add_report},
    {"checkpoint", "Looks into, checks, converts and prunes checkpoints.", add_checkpoint},
    {"generate", "Samples text from a checkpoint or a Hugging Face folder.", add_generate},
    {"tokenize", "Turns text or JSONL into a memory-mapped token set.", add_tokenize},
    {"calibrate", "Measures this machine and writes a cluster file.", add_calibrate},
    {"account", "The field's hand calculations, with the formula shown.", add_account},
    {"doctor", "Names what is wrong or wasteful in a run file or a finished run.", add_doctor},
};

struct Parser {
  CLI::App app{"Trains transformer language models on many ranks and accounts for every byte."};
  bool debug = false;
  std::vector<std::pair<CLI::App*, Action>> actions;
};

/// Prints a page of docs/ from the tables it is made of.
Action add_reference(Arguments& arguments) {
  auto page = std::make_shared<std::string>();
  arguments.positional("PAGE", *page, {"run-file", "commands"}, "Which page.");
  return [page](const Environment&) {
    fmt::print("{}", *page == "commands" ? command_reference() : run_file_reference());
    return kDone;
  };
}

std::unique_ptr<Parser> make_parser() {
  auto parser = std::make_unique<Parser>();
  CLI::App& app = parser->app;
  app.name("shardwright");
  app.set_version_flag("--version", SW_VERSION);
  app.add_flag("--debug", parser->debug, "Let an error end the process where it happened.");
  app.require_subcommand(1);
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->fallthrough();
    Arguments arguments(*sub);
    parser->actions.emplace_back(sub, command.add(arguments));
  }
  CLI::App* reference = app.add_subcommand("reference", "");
  reference->group("");
  Arguments arguments(*reference);
  parser->actions.emplace_back(reference, add_reference(arguments));
  return parser;
}

int print_error(const char* message, int status) {
  std::string line(message);
  std::ranges::replace(line, '\n', ' ');
  fmt::print(stderr, "shardwright: {}\n", line);
  return status;
}

int run_parsed(const Parser& parser, const Environment& environment) {
  for (const auto& [app, action] : parser.actions) {
    if (app->parsed()) {
      return action(environment);
    }
  }
  return kRefused;
}

}  // namespace

std::span<const Command> commands() { return kCommands; }

int run_command_line(int argc, const char* const* argv, const Environment& environment) {
  const auto parser = make_parser();
  try {
    parser->app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return parser->app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return print_error(fmt::format("{}; see shardwright --help", error.what()).c_str(), kRefused);
  }
  if (parser->debug) {
    return run_parsed(*parser, environment);
  }
  try {
    return run_parsed(*parser, environment);
  } catch (const ConfigError& error) {
    return print_error(error.what(), kRefused);
  } catch (const std::bad_alloc&) {
    return print_error("out of memory", kFailed);
  } catch (const std::exception& error) {
    return print_error(error.what(), kFailed);
  }
}

std::string command_reference() {
  const auto parser = make_parser();
  std::string out =
      "# The commands\n\n"
      "Exit status: 0 done, 1 the run failed, 2 the configuration, data or usage is wrong (nothing "
      "was written), 3 a comparison did not hold, 75 stopped by a signal (run again with "
      "`--resume`). An error is one line on standard error.\n\n"
      "Written by `shardwright reference commands`; a test holds this page to it.\n";
  for (const auto& [app, action] : parser->actions) {
    if (!app->get_group().empty()) {
      out += fmt::format("\n## {}\n\n```text\n{}```\n", app->get_name(), app->help("shardwright"));
    }
  }
  return out;
}

}  // namespace sw
