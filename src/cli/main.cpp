#include "cli/command.hpp"
#include "cli/rank_payload.hpp"
#include "train/launch.hpp"

int main(int argc, char** argv) {
  if (sw::is_rank(argc, argv)) {
    return sw::run_rank_process(argc, argv);
  }
  return sw::run_command_line(argc, argv, sw::read_environment());
}
