#pragma once

#include <set>
#include <string>

#include "train/run_options.hpp"

namespace sw {

/// What resolving knows beside the options.
struct ResolveContext {
  std::string file;             ///< for messages
  std::set<std::string> given;  ///< paths of keys that the user wrote
  int world = 0;                ///< ranks asked for; 0 = what the layout says
};

/// Fills in what follows from the rest and refuses contradictions (see parse_run_options).
void resolve(RunOptions& options, const ResolveContext& context);

}  // namespace sw
