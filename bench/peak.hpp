#pragma once

#include "device/team.hpp"

namespace sw::bench {

/// float32 operations per second (a multiply-add is two) of all threads of a team at once, by a
/// loop of independent multiply-adds in registers, with the widest vectors of the machine: what no
/// product can exceed. Written in assembly: what a compiler makes of such a loop measures the
/// compiler. 0 on a machine without such instructions.
[[nodiscard]] double multiply_add_peak(Team& team);

/// A clock for differences.
[[nodiscard]] double now_s();

}  // namespace sw::bench
