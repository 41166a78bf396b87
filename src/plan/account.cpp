#include "plan/account.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "plan/account_rules.hpp"

namespace sw {
namespace {

using accounts::Rule;

std::vector<Rule> joined(std::vector<Rule> a, const std::vector<Rule>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Entry {
  std::string_view name;
  std::vector<Rule> (*rules)();
};

const Entry kAccounts[] = {
    {"ring", [] { return joined(accounts::ring_rules(), accounts::scaling_rules()); }},
    {"scaling", accounts::scaling_rules},
    {"zero", [] { return joined(accounts::memory_rules(), accounts::zero_rules()); }},
    {"memory", accounts::memory_rules},
    {"batch", accounts::batch_rules},
    {"loss", accounts::loss_rules},
    {"pipeline", accounts::pipeline_rules},
    {"offload", accounts::offload_rules},
    {"tensor", accounts::tensor_rules},
    {"staleness", accounts::staleness_rules},
    {"context", accounts::context_rules},
    {"expert", accounts::expert_rules},
};

std::vector<Rule> rules_of(std::string_view name) {
  for (const Entry& entry : kAccounts) {
    if (entry.name == name) {
      return entry.rules();
    }
  }
  throw ConfigError(
      fmt::format("there is no account {}; there are {}", name, fmt::join(account_names(), ", ")));
}

std::vector<std::string_view> inputs_of(const Rule& rule) {
  std::vector<std::string_view> names = rule.needs;
  names.insert(names.end(), rule.optional.begin(), rule.optional.end());
  return names;
}

bool applies(const Rule& rule, const Json& inputs) {
  const auto there = [&](std::string_view name) { return inputs.contains(std::string(name)); };
  // A rule that needs nothing states a fact; it does not join in when something was asked.
  const bool asked = !rule.needs.empty() || inputs.empty();
  return asked && std::ranges::all_of(rule.needs, there) &&
         std::ranges::none_of(rule.absent, there);
}

[[noreturn]] void refuse_input(std::string_view account, const std::vector<Rule>& rules,
                               const std::string& name) {
  std::string nearest;
  std::int64_t best = 1 << 30;
  for (const Rule& rule : rules) {
    for (const std::string_view known : inputs_of(rule)) {
      if (const auto distance = edit_distance(name, known); distance < best) {
        best = distance;
        nearest = known;
      }
    }
  }
  if (best == 0) {
    throw ConfigError(
        fmt::format("account {}: {} has no meaning together with the other inputs\n{}", account,
                    name, account_usage(account)));
  }
  throw ConfigError(fmt::format("account {}: unknown input {}; the nearest known one is {}",
                                account, name, nearest));
}

std::string shown(const Json& quantity) {
  const Json& value = quantity.at("value");
  const auto& unit = quantity.at("unit").get_ref<const std::string&>();
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return unit.empty() || unit == "1" ? text : fmt::format("{} {}", text, unit);
}

}  // namespace

std::vector<std::string_view> account_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kAccounts) {
    names.push_back(entry.name);
  }
  return names;
}

AccountResult account(std::string_view name, const Json& inputs) {
  const std::vector<Rule> rules = rules_of(name);
  AccountResult result;
  accounts::Outputs outputs(result);
  const accounts::Inputs values(std::string(name), inputs);
  std::set<std::string_view> used;
  for (const Rule& rule : rules) {
    if (applies(rule, inputs)) {
      rule.apply(values, outputs);
      result.formulas.emplace_back(rule.formula);
      used.merge([&] {
        const auto names = inputs_of(rule);
        return std::set<std::string_view>(names.begin(), names.end());
      }());
    }
  }
  for (const auto& item : inputs.items()) {
    const std::string& input = item.key();
    const bool known = used.contains(input);
    if (!known && !(result.formulas.empty() && std::ranges::any_of(rules, [&](const Rule& rule) {
                      return std::ranges::count(inputs_of(rule), input) > 0;
                    }))) {
      refuse_input(name, rules, input);
    }
  }
  if (result.formulas.empty()) {
    throw ConfigError(fmt::format("account {}: inputs are missing; {}", name, account_usage(name)));
  }
  return result;
}

Json account_input(std::string_view text) {
  Json parsed = Json::parse(text, nullptr, false);
  if (!parsed.is_discarded()) {
    return parsed;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (error == std::errc() && accounts::unit_factor(unit) != 0) {
    const Json number = Json::parse(text.substr(0, text.size() - unit.size()), nullptr, false);
    return {{"value", number.is_discarded() ? Json(value) : number}, {"unit", unit}};
  }
  return std::string(text);
}

std::string account_usage(std::string_view name) {
  std::vector<std::string> lines;
  for (const Rule& rule : rules_of(name)) {
    if (!rule.needs.empty()) {
      lines.push_back(fmt::format("{}{}{}{}", fmt::join(rule.needs, " "),
                                  rule.optional.empty() ? "" : " [", fmt::join(rule.optional, " "),
                                  rule.optional.empty() ? "" : "]"));
    }
  }
  return fmt::format("it takes {}", fmt::join(lines, ", or "));
}

Json to_json(const Json& inputs, const AccountResult& result) {
  return {{"inputs", inputs},
          {"formula", fmt::format("{}", fmt::join(result.formulas, "; "))},
          {"outputs", result.outputs},
          {"wrong_values", result.wrong_values},
          {"notes", result.notes}};
}

std::string to_text(const AccountResult& result) {
  std::string out;
  for (const std::string& formula : result.formulas) {
    out += fmt::format("formula  {}\n", formula);
  }
  for (const auto& [name, quantity] : result.outputs.items()) {
    out += fmt::format("{:<28} {}\n", name, shown(quantity));
  }
  for (const std::string& note : result.notes) {
    out += fmt::format("note     {}\n", note);
  }
  return out;
}

}  // namespace sw
