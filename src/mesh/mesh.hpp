#pragma once

#include <string>
#include <vector>

#include "base/shape.hpp"
#include "mesh/placement.hpp"

namespace sw {

/// The grid of ranks. Axes stand outermost first (pp, dp, cp, tp) and have at least two ranks: an
/// axis of size 1 can neither cost nor conflict, so it is not there. `dp` and `cp` are several
/// axes, "dp_out" and "dp_in" or "cp_out", "cp_mid" and "cp_in", where something lies on their
/// inner part only.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size = 1;
    bool experts = false;  ///< of `ep`: the experts of a layer are cut on it
    friend bool operator==(const Axis&, const Axis&) = default;
  };

  /// Drops axes of size 1.
  explicit Mesh(const std::vector<Axis>& axes);

  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }
  [[nodiscard]] int world() const { return world_; }
  /// Index of the axis, -1 if it is not there (size 1).
  [[nodiscard]] int find(const std::string& name) const;
  /// Indices of the axes that make up `name`: of "dp" all parts, of "ep" those with experts.
  [[nodiscard]] std::vector<int> parts(const std::string& name) const;
  [[nodiscard]] int size(const std::vector<int>& axes) const;
  /// Whether an axis is `name` or a part of it.
  [[nodiscard]] bool is_part(std::size_t axis, const std::string& name) const;
  /// Place of a rank on each axis.
  [[nodiscard]] std::vector<int> coordinates(int rank) const;
  /// The ranks that share `rank`'s coordinates on all other axes, ascending: the group over `axes`
  /// (indices).
  [[nodiscard]] std::vector<int> group(int rank, const std::vector<int>& axes) const;
  /// Index of `rank` in that group.
  [[nodiscard]] int place(int rank, const std::vector<int>& axes) const;
  /// Names joined by "+" in mesh order; all parts of dp are "dp".
  [[nodiscard]] std::string group_name(const std::vector<int>& axes) const;

 private:
  std::vector<Axis> axes_;
  int world_ = 1;
};

/// The box of a whole tensor that lies at `coordinates`: one range per dim. Axes that cut the same
/// dim nest in mesh order; each cut is balanced. Slots that are routed count as the even share that
/// their rank had before.
[[nodiscard]] std::vector<Range> local_box(const Shape& whole, const Sharding& sharding,
                                           const Mesh& mesh, const std::vector<int>& coordinates);
[[nodiscard]] Shape shape_of(const std::vector<Range>& box);
/// Elements of the largest local shape over the ranks.
[[nodiscard]] std::int64_t largest_local_elements(const Shape& whole, const Sharding& sharding,
                                                  const Mesh& mesh);

}  // namespace sw
