#pragma once

#include <cstdint>
#include <string_view>

#include "comm/communicator.hpp"
#include "comm/rank_context.hpp"

namespace sw {

/// Checks what one rank can check alone: sizes, counts, root, alignment, buffers inside the window,
/// legal overlaps. Throws ConfigError for what no version of Shardwright does (a ring broadcast, a
/// float16 sum), InternalError for the rest.
void check_collective(const Collective& collective, const RankContext& context,
                      std::string_view group, int ranks, int rank);

}  // namespace sw
