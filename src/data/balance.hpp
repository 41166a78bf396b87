#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/corpus.hpp"
#include "data/sampler.hpp"

/// Which rows of a window go together, so that ranks do not wait for the one with most to do.
namespace sw {

/// Indices of `work`, group after group, as many in each: largest first, each into the group that
/// has least of those with room, and of these into the first (Graham 1969). Deterministic. The
/// number of groups must divide that of indices.
[[nodiscard]] std::vector<std::size_t> balanced_groups(std::span<const double> work,
                                                       std::size_t groups);

/// Reorders a window's samples, padding among them, so that each of `groups` runs of rows (what a
/// rank has of a micro-batch) has about the same of what `by` says; None leaves them. All ranks
/// must call it with the same arguments: everything follows from these.
void balance(Window& window, const Corpus& corpus, DataOptions::Balance by, std::int64_t groups);

}  // namespace sw
