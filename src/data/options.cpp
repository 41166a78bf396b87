#include "data/options.hpp"

#include "base/error.hpp"

namespace sw {

void check(const DataOptions& options) {
  if (options.train.empty()) {
    throw ConfigError("data.train names no files; give patterns such as [\"corpus/*.txt\"]");
  }
  if (options.sequence_length < 1) {
    throw ConfigError(fmt::format("data.sequence_length = {} is not a length; use 1 or more",
                                  options.sequence_length));
  }
  if (options.sequence_length > INT32_MAX) {
    throw ConfigError(fmt::format("data.sequence_length = {} is more than the largest position, {}",
                                  options.sequence_length, INT32_MAX));
  }
  if (options.validation_every < 0) {
    throw ConfigError(
        fmt::format("data.validation_every = {} is negative; use 0 for never, or a number of steps",
                    options.validation_every));
  }
  if (options.validation_every > 0 && options.validation.empty()) {
    throw ConfigError(
        fmt::format("data.validation_every = {} but data.validation names no files; name some, or "
                    "set data.validation_every = 0",
                    options.validation_every));
  }
  if (options.max_bad_lines < 0) {
    throw ConfigError(fmt::format("data.max_bad_lines = {} is negative", options.max_bad_lines));
  }
}

}  // namespace sw
