#pragma once

#include <cstdint>
#include <string>

#include "comm/traffic.hpp"
#include "program/program.hpp"

/// What a Program's collectives are in the words of comm/traffic; the ledger, the verifier, the
/// simulator and the executor all ask here.
namespace sw {

/// "dp@compute": the same on all members, and different for groups with the same members on another
/// stream.
[[nodiscard]] std::string communicator_name(const Program& program, const Group& group);
/// This rank's place among the members.
[[nodiscard]] int rank_in(const Program& program, const Group& group);
[[nodiscard]] const Group& group_of(const Program& program, const CollectiveWork& work);

/// Sizes of the collective that `instruction` (whose work is a CollectiveWork) does.
[[nodiscard]] CollectiveSizes sizes_of(const Instruction& instruction, Algorithm algorithm);
/// Bytes that this rank sends in it.
[[nodiscard]] std::int64_t sent_bytes(const Program& program, const Instruction& instruction,
                                      Algorithm algorithm);

/// The operand that holds the whole of segment `index`, and the one that holds a part or the whole
/// again (null for a send or receive).
[[nodiscard]] const Operand& whole_operand(const Instruction& instruction, std::size_t index);
[[nodiscard]] const Operand* other_operand(const Instruction& instruction, std::size_t index);

}  // namespace sw
