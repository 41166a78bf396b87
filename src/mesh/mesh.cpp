#include "mesh/mesh.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace sw {

std::string to_text(Placement placement) {
  switch (placement.kind) {
    case Placement::Kind::Replicate:
      return "R";
    case Placement::Kind::Shard:
      return fmt::format("S({})", placement.dim);
    case Placement::Kind::Partial:
      return placement.op == ReduceOp::Max ? "Pmax" : "P";
    case Placement::Kind::Routed:
      return fmt::format("E({})", placement.dim);
  }
  return "?";
}

std::string to_text(const Sharding& sharding) {
  std::vector<std::string> parts;
  for (const Placement placement : sharding) {
    parts.push_back(to_text(placement));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

Mesh::Mesh(const std::vector<Axis>& axes) {
  for (const Axis& axis : axes) {
    SW_CHECK(axis.size >= 1, "axis {} has size {}", axis.name, axis.size);
    if (axis.size > 1) {
      axes_.push_back(axis);
      world_ *= axis.size;
    }
  }
}

int Mesh::find(const std::string& name) const {
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

bool Mesh::is_part(std::size_t axis, const std::string& name) const {
  const Axis& at = axes_.at(axis);
  return name == "ep" ? at.experts : at.name == name || at.name.starts_with(name + "_");
}

std::vector<int> Mesh::parts(const std::string& name) const {
  std::vector<int> result;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (is_part(i, name)) {
      result.push_back(static_cast<int>(i));
    }
  }
  return result;
}

int Mesh::size(const std::vector<int>& axes) const {
  int ranks = 1;
  for (const int axis : axes) {
    ranks *= axes_.at(static_cast<std::size_t>(axis)).size;
  }
  return ranks;
}

std::vector<int> Mesh::coordinates(int rank) const {
  std::vector<int> result(axes_.size());
  for (std::size_t i = axes_.size(); i-- > 0;) {
    result[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return result;
}

std::vector<int> Mesh::group(int rank, const std::vector<int>& axes) const {
  const std::vector<int> mine = coordinates(rank);
  std::vector<int> members;
  for (int other = 0; other < world_; ++other) {
    const std::vector<int> theirs = coordinates(other);
    bool same = true;
    for (int i = 0; i < static_cast<int>(axes_.size()); ++i) {
      const bool free = std::find(axes.begin(), axes.end(), i) != axes.end();
      same = same &&
             (free || mine[static_cast<std::size_t>(i)] == theirs[static_cast<std::size_t>(i)]);
    }
    if (same) {
      members.push_back(other);
    }
  }
  return members;
}

int Mesh::place(int rank, const std::vector<int>& axes) const {
  const std::vector<int> members = group(rank, axes);
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

std::string Mesh::group_name(const std::vector<int>& axes) const {
  std::vector<std::string> names;
  for (const int axis : axes) {
    const std::string& name = axes_[static_cast<std::size_t>(axis)].name;
    const std::string whole = name.substr(0, name.find('_'));
    const std::vector<int> all = parts(whole);
    if (!std::includes(axes.begin(), axes.end(), all.begin(), all.end())) {
      names.push_back(name);
    } else if (names.empty() || names.back() != whole) {
      names.push_back(whole);
    }
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

std::vector<Range> local_box(const Shape& whole, const Sharding& sharding, const Mesh& mesh,
                             const std::vector<int>& coordinates) {
  std::vector<Range> box;
  for (const std::int64_t size : whole) {
    box.push_back({0, size});
  }
  for (std::size_t i = 0; i < sharding.size(); ++i) {
    if (sharding[i].is_shard() || sharding[i].is_routed()) {
      Range& range = box.at(static_cast<std::size_t>(sharding[i].dim));
      const Range part = split(range.size(), mesh.axes()[i].size, coordinates[i]);
      range = {range.begin + part.begin, range.begin + part.end};
    }
  }
  return box;
}

Shape shape_of(const std::vector<Range>& box) {
  Shape shape;
  for (const Range& range : box) {
    shape.push_back(range.size());
  }
  return shape;
}

std::int64_t largest_local_elements(const Shape& whole, const Sharding& sharding,
                                    const Mesh& mesh) {
  // A balanced split gives its first part the extra element, so coordinate 0 everywhere is the
  // largest.
  return elements(
      shape_of(local_box(whole, sharding, mesh, std::vector<int>(mesh.axes().size(), 0))));
}

}  // namespace sw
