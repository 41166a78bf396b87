#pragma once

#include <string>
#include <vector>

#include "base/shape.hpp"
#include "mesh/placement.hpp"

namespace sw {

/// The grid of ranks. Axes stand outermost first (pp, dp, cp, tp) and have at least two ranks: an
/// axis of size 1 can neither cost nor conflict, so it is not there.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size = 1;
    friend bool operator==(const Axis&, const Axis&) = default;
  };

  /// Drops axes of size 1.
  explicit Mesh(const std::vector<Axis>& axes);

  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }
  [[nodiscard]] int world() const { return world_; }
  /// Index of the axis, -1 if it is not there (size 1).
  [[nodiscard]] int find(const std::string& name) const;
  /// Place of a rank on each axis.
  [[nodiscard]] std::vector<int> coordinates(int rank) const;
  /// The ranks that share `rank`'s coordinates on all other axes, ascending: the group over `axes`
  /// (indices).
  [[nodiscard]] std::vector<int> group(int rank, const std::vector<int>& axes) const;
  /// Names joined by "+" in mesh order; "world" when all ranks are meant.
  [[nodiscard]] std::string group_name(const std::vector<int>& axes) const;

 private:
  std::vector<Axis> axes_;
  int world_ = 1;
};

/// The box of a whole tensor that lies at `coordinates`: one range per dim. Axes that cut the same
/// dim nest in mesh order; each cut is balanced.
[[nodiscard]] std::vector<Range> local_box(const Shape& whole, const Sharding& sharding,
                                           const Mesh& mesh, const std::vector<int>& coordinates);
[[nodiscard]] Shape shape_of(const std::vector<Range>& box);
/// Elements of the largest local shape over the ranks.
[[nodiscard]] std::int64_t largest_local_elements(const Shape& whole, const Sharding& sharding,
                                                  const Mesh& mesh);

}  // namespace sw
