#pragma once

#include "simulate/simulate.hpp"

namespace sw {

/// Measures what one rank with `threads` threads does on this machine, with the kernels and
/// collectives that a run uses: products, a streaming kernel, and collectives between two threads.
/// Takes about a second. `peak_flops_per_s` is the fastest product seen: the yardstick of the MFU
/// until a probe of the arithmetic units replaces it.
[[nodiscard]] Machine calibrate(int threads);

}  // namespace sw
