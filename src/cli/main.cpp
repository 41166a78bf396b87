#include "cli/command.hpp"

int main(int argc, char** argv) { return sw::run_command_line(argc, argv, sw::read_environment()); }
