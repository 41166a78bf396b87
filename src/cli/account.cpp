#include "plan/account.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/print_json.hpp"

namespace sw {
namespace {

struct AccountArguments {
  std::string name;
  std::vector<std::string> inputs;
  bool json = false;
};

Json parse_inputs(const std::vector<std::string>& texts) {
  Json inputs = Json::object();
  for (const std::string& text : texts) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw ConfigError(fmt::format("{} is not key=value, as in ranks=4 or message=120MB", text));
    }
    const std::string name = text.substr(0, equals);
    if (inputs.contains(name)) {
      throw ConfigError(fmt::format("{} is given twice", name));
    }
    inputs[name] = account_input(std::string_view(text).substr(equals + 1));
  }
  return inputs;
}

int show(const AccountArguments& a) {
  const Json inputs = parse_inputs(a.inputs);
  const AccountResult result = account(a.name, inputs);
  if (a.json) {
    print_json(to_json(inputs, result));
  } else {
    fmt::print("{}", to_text(result));
  }
  return kDone;
}

}  // namespace

Action add_account(Arguments& arguments) {
  auto a = std::make_shared<AccountArguments>();
  arguments.positional("NAME", a->name,
                       fmt::format("{}.", fmt::join(account_names(), ", ")).c_str());
  arguments.positional("INPUTS", a->inputs,
                       "key=value: a number with an optional unit (120MB, 10us, 25GB/s), a list, a "
                       "word.",
                       false);
  arguments.json(a->json);
  return [a](const Environment&) { return show(*a); };
}

}  // namespace sw
