#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string_view>

#include "cli/command.hpp"
#include "cli/rank_payload.hpp"
#include "train/launch.hpp"

namespace {

void stop_at_once(int) { ::_exit(sw::kStopped); }

/// Before ranks start, and once they have ended, a signal ends `train` at once with the status of a
/// stop. Set before anything else is done, so that a stop right after the start is one too.
void take_stop_signals() {
  std::signal(SIGTERM, stop_at_once);
  std::signal(SIGINT, stop_at_once);
}

}  // namespace

int main(int argc, char** argv) {
  if (sw::is_rank(argc, argv)) {
    return sw::run_rank_process(argc, argv);
  }
  // The command is the first word that is no option: a prompt may say "train" as well.
  char** const command =
      std::find_if(argv + 1, argv + argc, [](const char* word) { return *word != '-'; });
  if (command < argv + argc && std::string_view(*command) == "train") {
    take_stop_signals();
  }
  return sw::run_command_line(argc, argv, sw::read_environment());
}
