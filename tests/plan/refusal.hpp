#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "plan/account.hpp"

namespace sw {

/// What account `name` says against `inputs`, or "accepted".
inline std::string refusal(std::string_view name, const Json& inputs) {
  try {
    (void)account(name, inputs);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace sw
