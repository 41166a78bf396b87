#pragma once

#include "base/json.hpp"

namespace sw {

/// The one JSON document of a command with --json, on standard output.
void print_json(const Json& document);

}  // namespace sw
