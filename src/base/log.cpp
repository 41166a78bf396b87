#include "base/log.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace sw {

void warn(std::string_view message) { fmt::print(stderr, "shardwright: {}\n", message); }

}  // namespace sw
