#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/exit_status.hpp"
#include "cli/arguments.hpp"
#include "cli/environment.hpp"

namespace sw {

/// A parsed command, ready to run; returns the exit status, throws what `main` prints.
using Action = std::function<int(const Environment&)>;

/// One command: `add` puts its options on its sub-command and returns what runs it.
struct Command {
  const char* name;
  const char* summary;
  Action (*add)(Arguments& arguments);
};

/// All of them, in the order of the help.
[[nodiscard]] std::span<const Command> commands();

Action add_train(Arguments& arguments);
Action add_plan(Arguments& arguments);
Action add_verify(Arguments& arguments);
Action add_report(Arguments& arguments);
Action add_checkpoint(Arguments& arguments);
Action add_generate(Arguments& arguments);
Action add_tokenize(Arguments& arguments);
Action add_calibrate(Arguments& arguments);
Action add_account(Arguments& arguments);
Action add_doctor(Arguments& arguments);

/// Parses the command line, runs the command, prints errors as one line; returns the exit status.
int run_command_line(int argc, const char* const* argv, const Environment& environment);

/// docs/commands.md, from the commands' own options.
[[nodiscard]] std::string command_reference();

}  // namespace sw
