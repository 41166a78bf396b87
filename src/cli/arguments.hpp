#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace sw {

/// The options of one command, bound to the variables that parsing fills.
class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(app) {}

  void positional(const char* name, std::string& value, const char* doc);
  void positional(const char* name, std::string& value, std::vector<std::string> choices,
                  const char* doc);
  void positional(const char* name, std::vector<std::string>& values, const char* doc,
                  bool required = true);
  void flag(const char* name, bool& value, const char* doc);
  void option(const char* name, std::string& value, const char* type, const char* doc,
              bool required = false);
  void option(const char* name, std::int64_t& value, std::int64_t minimum, const char* type,
              const char* doc);
  void option(const char* name, double& value, double minimum, const char* type, const char* doc);
  void repeated(const char* name, std::vector<std::string>& values, const char* type,
                const char* doc);

  // Shared by several commands.
  void run_file(std::string& path) { positional("RUN.toml", path, "The run file."); }
  void sets(std::vector<std::string>& sets) {
    repeated("--set", sets, "KEY=VALUE",
             "A key of the run file, with a TOML value or a bare string.");
  }
  void json(bool& json) {
    flag("--json", json, "Print one JSON document and nothing else on standard output.");
  }

 private:
  CLI::App& app_;
};

}  // namespace sw
