#include <fmt/format.h>

#include <string_view>

#include "base/error.hpp"
#include "cli/config.hpp"
#include "cli/keys.hpp"

namespace sw {
namespace {

/// A key that only does something with machinery this version does not have.
struct Missing {
  std::string_view path;
  std::string_view what;
  bool (*asked)(const RunOptions&);
};

// The one list of what is not built yet; whoever builds it removes the line.
const Missing kMissing[] = {
    {"parallel.communicator", "this communicator",
     [](const RunOptions& o) {
       return o.parallel.communicator != Backend::Local && o.parallel.communicator != Backend::Shm;
     }},
    {"train.precision", "float16",
     [](const RunOptions& o) { return o.train.precision == DType::Float16; }},
};

}  // namespace

void refuse_unsupported(const RunOptions& options, const std::string& file) {
  RunOptions copy = options;
  for (const Missing& missing : kMissing) {
    if (missing.asked(options)) {
      throw ConfigError(fmt::format("{}: {} = {}: {} is not in this version", file, missing.path,
                                    to_toml(*find_key(missing.path), copy), missing.what));
    }
  }
}

}  // namespace sw
