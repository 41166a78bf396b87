#include "cli/print_json.hpp"

#include <fmt/format.h>

namespace sw {

void print_json(const Json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace sw
