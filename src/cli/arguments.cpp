#include "cli/arguments.hpp"

#include <CLI/CLI.hpp>
#include <limits>

namespace sw {
namespace {

/// CLI::Range without its bounds in the help.
template <typename Number>
CLI::Validator at_least(Number minimum) {
  return CLI::Validator(CLI::Range(minimum, std::numeric_limits<Number>::max())).description("");
}

}  // namespace

void Arguments::positional(const char* name, std::string& value, const char* doc) {
  app_.add_option(name, value, doc)->required()->type_name("");
}

void Arguments::positional(const char* name, std::string& value, std::vector<std::string> choices,
                           const char* doc) {
  app_.add_option(name, value, doc)
      ->required()
      ->check(CLI::IsMember(std::move(choices)))
      ->type_name("");
}

void Arguments::positional(const char* name, std::vector<std::string>& values, const char* doc,
                           bool required) {
  app_.add_option(name, values, doc)->required(required)->type_name("");
}

void Arguments::flag(const char* name, bool& value, const char* doc) {
  app_.add_flag(name, value, doc);
}

void Arguments::option(const char* name, std::string& value, const char* type, const char* doc,
                       bool required) {
  app_.add_option(name, value, doc)->required(required)->type_name(type);
}

void Arguments::option(const char* name, std::int64_t& value, std::int64_t minimum,
                       const char* type, const char* doc) {
  app_.add_option(name, value, doc)->check(at_least(minimum))->type_name(type);
}

void Arguments::option(const char* name, double& value, double minimum, const char* type,
                       const char* doc) {
  app_.add_option(name, value, doc)->check(at_least(minimum))->type_name(type);
}

void Arguments::repeated(const char* name, std::vector<std::string>& values, const char* type,
                         const char* doc) {
  app_.add_option(name, values, doc)->allow_extra_args(false)->type_name(type);
}

}  // namespace sw
