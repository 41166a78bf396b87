#pragma once

#include <cstdint>
#include <string>
#include <utility>

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

/// Of an all_to_all with routing: elements of a slot's row, and the slots of this rank.
[[nodiscard]] std::pair<std::int64_t, std::int64_t> routed_rows(const Instruction& instruction);
/// Sizes of the collective that `instruction` (whose work is a CollectiveWork) does; with routing,
/// as if every expert were chosen equally often.
[[nodiscard]] CollectiveSizes sizes_of(const Instruction& instruction, Algorithm algorithm);
/// Bytes that this rank sends in it.
[[nodiscard]] std::int64_t sent_bytes(const Program& program, const Instruction& instruction,
                                      Algorithm algorithm);

/// The operand that holds the whole of segment `index`, and the one that holds a part or the whole
/// again (null for a send or receive).
[[nodiscard]] const Operand& whole_operand(const Instruction& instruction, std::size_t index);
[[nodiscard]] const Operand* other_operand(const Instruction& instruction, std::size_t index);

}  // namespace sw
