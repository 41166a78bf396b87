#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

/// The field's hand calculations. An account is a list of rules; a rule whose inputs are all there
/// gives its outputs.
namespace sw {

struct AccountResult {
  std::vector<std::string> formulas;  ///< of the rules that applied
  Json outputs = Json::object();      ///< {"name": {"value": …, "unit": "…"}}
  /// What a wrong method gives, by output: {"name": [{"value": …, "unit": …, "why": "…"}]}.
  Json wrong_values = Json::object();
  std::vector<std::string> notes;
};

/// "ring", "zero", …
[[nodiscard]] std::vector<std::string_view> account_names();

/// Applies account `name` to `inputs`: {"message": {"value": 120, "unit": "MB"}, "ranks": 4}. A
/// bare number has the unit of its kind: B, s, B/s, 1. Outputs take the units of the inputs. Throws
/// ConfigError for unknown names and inputs, and for inputs that the account must reject.
[[nodiscard]] AccountResult account(std::string_view name, const Json& inputs);

/// "120MB", "2", "[4.0, 6.0]", "true", "none" as an input.
[[nodiscard]] Json account_input(std::string_view text);

/// The page of one account: its rules with what they need.
[[nodiscard]] std::string account_usage(std::string_view name);

/// {"inputs", "formula", "outputs", "wrong_values", "notes"}
[[nodiscard]] Json to_json(const Json& inputs, const AccountResult& result);
[[nodiscard]] std::string to_text(const AccountResult& result);

}  // namespace sw
