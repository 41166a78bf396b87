#include "base/error.hpp"

namespace sw::detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(
      fmt::format("internal error at {}:{}: {} ({})", file, line, message, condition));
}

}  // namespace sw::detail
