#pragma once

#include <utility>
#include <vector>

#include "program/program.hpp"

namespace sw {

/// Instructions to put between those of a list, with edges from and to them: what a pass that adds
/// communication to emitted compute collects. `apply` renumbers everything.
class Insertions {
 public:
  /// An instruction of the list (its id), or an inserted one (negative).
  using Place = int;

  /// Puts `instruction` before the one that is at `position` now; those of one position keep the
  /// order of the calls.
  Place insert_before(std::size_t position, Instruction instruction);
  /// `later` starts only when `earlier` has ended. Both on one stream: their order says so already.
  void edge(Place earlier, Place later) { edges_.emplace_back(earlier, later); }
  /// Position before which an inserted instruction stands.
  [[nodiscard]] std::size_t position(Place inserted) const;
  void apply(std::vector<Instruction>& list);

 private:
  struct Inserted {
    std::size_t position = 0;
    Instruction instruction;
  };
  std::vector<Inserted> inserted_;
  std::vector<std::pair<Place, Place>> edges_;
};

}  // namespace sw
