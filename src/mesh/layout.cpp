#include "mesh/layout.hpp"

#include <set>

namespace sw {

std::vector<int> data_cuts(const ParallelOptions& parallel) {
  const Layout& layout = parallel.layout;
  std::set<int> cuts{layout.cp, layout.ep, parallel.zero_group, layout.dp * layout.cp};
  cuts.erase(cuts.begin(), cuts.upper_bound(1));
  return {cuts.begin(), cuts.end()};
}

}  // namespace sw
