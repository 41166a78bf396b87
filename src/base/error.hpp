#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace sw {

/// What went wrong, told apart by who can act. A message is one sentence: what, where, both
/// numbers, the way out.
class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The run file, the command line, the data or a size is wrong. Found before ranks start; exit 2.
class ConfigError : public Error {
  using Error::Error;
};

/// A collective failed: a peer is missing, dead, late, or asked for something else. Exit 1.
class CommError : public Error {
  using Error::Error;
};

/// The device or its memory failed. Exit 1.
class DeviceError : public Error {
  using Error::Error;
};

/// A file is missing, damaged or could not be written after ranks started. Exit 1.
class DataError : public Error {
  using Error::Error;
};

/// A bug of ours. Exit 1.
class InternalError : public Error {
  using Error::Error;
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);
}

}  // namespace sw

/// Throws InternalError when `condition` does not hold, in release too. For bugs, never for input.
/// SW_CHECK(a == b, "a is {} and b is {}", a, b);
#define SW_CHECK(condition, ...)                                                              \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      ::sw::detail::check_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
    }                                                                                         \
  } while (false)
