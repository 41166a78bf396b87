#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "comm/communicator.hpp"

namespace sw {

/// Whether elements of this type can be summed and compared.
[[nodiscard]] bool can_reduce(DType dtype);

/// How a result is written. Streamed: past the caches, so that nothing is read for the sake of
/// being overwritten; for results that the caches would not keep until they are read.
enum class Stores : std::uint8_t { Cached, Streamed };

/// target[i] = operands[0][i] op operands[1][i] op …, in this order. Integers wrap; bfloat16 is
/// summed in float32 and rounded once; a NaN anywhere gives NaN, in the maximum too. The target may
/// be one of the operands, else they do not overlap.
void reduce_elements(DType dtype, ReduceOp op, std::byte* target,
                     std::span<const std::byte* const> operands, std::int64_t count,
                     Stores stores = Stores::Cached);

}  // namespace sw
