#include "mesh/redistribute.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace sw {
namespace {

/// Shrink first, grow last. Slots come back from their experts before anything else and go there
/// after everything else: on their way they do nothing else.
int priority(Placement from, Placement to) {
  if (from.is_routed() || to.is_routed()) {
    return from.is_routed() ? -1 : 5;
  }
  const std::optional<CollectiveKind> kind = collective_between(from, to).collective;
  if (!kind.has_value()) {
    return 0;
  }
  switch (*kind) {
    case CollectiveKind::ReduceScatter:
      return 1;
    case CollectiveKind::AllReduce:
      return 2;
    case CollectiveKind::AllToAll:
      return 3;
    default:
      return 4;
  }
}

bool cuts(Placement placement, int dim) { return placement.is_shard() && placement.dim == dim; }

/// Slots travel between the ranks of all axes of `ep` at once, and their order is a table's.
bool routes(Placement from, Placement to) {
  return (from.is_routed() || to.is_routed()) && from != to;
}

/// An axis leaves or enters a dim only as the innermost there, or with all that stand inside it:
/// parts of an axis that are exchanged alike are exchanged at once. Returns the axis in the way,
/// the axis itself if it can move, or -1 if an outer axis must move first.
int blocker(const Sharding& current, const Sharding& target, int axis) {
  const auto at = static_cast<std::size_t>(axis);
  const int axes = static_cast<int>(current.size());
  if (routes(current[at], target[at])) {
    return axis;
  }
  const bool exchanges = current[at].is_shard() && target[at].is_shard();
  const auto alike = [&](std::size_t other) {
    return exchanges && current[other] == current[at] && target[other] == target[at];
  };
  for (const Placement side : {current[at], target[at]}) {
    if (!side.is_shard()) {
      continue;
    }
    for (int inner = axis + 1; inner < axes; ++inner) {
      const auto other = static_cast<std::size_t>(inner);
      if (cuts(current[other], side.dim) && !alike(other)) {
        return inner;
      }
    }
  }
  if (target[at].is_shard()) {
    for (std::size_t outer = 0; outer < at; ++outer) {
      if (cuts(current[outer], target[at].dim) != cuts(target[outer], target[at].dim)) {
        return -1;
      }
    }
  }
  return axis;
}

/// Whether `next` can be folded into `last`: one collective over the product group. Only
/// all-reduces fold freely; gathers, scatters and exchanges of one dim fold when their axes nest
/// there; slots always travel over all of `ep` together.
bool folds(const Move& last, const Move& next) {
  if (!last.collective.has_value() || last.collective != next.collective || last.op != next.op ||
      last.detour || next.detour) {
    return false;
  }
  switch (*last.collective) {
    case CollectiveKind::AllReduce:
      return true;
    case CollectiveKind::AllGather:
      return last.from == next.from && next.axes.back() < last.axes.front();
    case CollectiveKind::ReduceScatter:
      return last.to == next.to && next.axes.front() > last.axes.back();
    case CollectiveKind::AllToAll:
      return (last.from.is_routed() && next.from.is_routed()) ||
             (last.to.is_routed() && next.to.is_routed()) ||
             (last.from == next.from && last.to == next.to && next.axes.front() > last.axes.back());
    default:
      return false;
  }
}

void append(std::vector<Move>& moves, Move move) {
  if (!moves.empty() && folds(moves.back(), move)) {
    Move& last = moves.back();
    last.axes.push_back(move.axes.front());
    std::sort(last.axes.begin(), last.axes.end());
    last.after = move.after;
    return;
  }
  moves.push_back(std::move(move));
}

}  // namespace

TableRow collective_between(Placement from, Placement to) {
  if (from == to) {
    return {true, std::nullopt};
  }
  if (from.is_partial() && to.is_replicate()) {
    return {true, CollectiveKind::AllReduce};
  }
  if (from.is_partial() && from.op == ReduceOp::Sum && to.is_shard()) {
    return {true, CollectiveKind::ReduceScatter};
  }
  if (from.is_shard() && to.is_replicate()) {
    return {true, CollectiveKind::AllGather};
  }
  if (from.is_shard() && to.is_shard()) {
    return {true, CollectiveKind::AllToAll};
  }
  if (from.dim == to.dim &&
      ((from.is_shard() && to.is_routed()) || (from.is_routed() && to.is_shard()))) {
    return {true, CollectiveKind::AllToAll};
  }
  if (from.is_replicate() && to.is_shard()) {
    return {true, std::nullopt};
  }
  return {false, std::nullopt};
}

double move_bytes(Placement from, Placement to, int n, double gathered_bytes) {
  const TableRow row = collective_between(from, to);
  if (!row.exists) {
    return std::numeric_limits<double>::infinity();
  }
  if (!row.collective.has_value()) {
    return 0;
  }
  const double share = (n - 1.0) / n * gathered_bytes;
  switch (*row.collective) {
    case CollectiveKind::AllReduce:
      return 2 * share;
    case CollectiveKind::AllToAll:
      return share / n;
    default:
      return share;
  }
}

std::optional<std::vector<Move>> path(const Sharding& from, const Sharding& to, const Mesh& mesh) {
  const int axes = static_cast<int>(mesh.axes().size());
  for (int i = 0; i < axes; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!collective_between(from[at], to[at]).exists) {
      return std::nullopt;
    }
  }
  std::vector<Move> moves;
  Sharding current = from;
  while (current != to) {
    int chosen = -1;
    int in_the_way = -1;
    std::pair<int, int> best{std::numeric_limits<int>::max(), 0};
    for (int i = 0; i < axes; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (current[at] == to[at]) {
        continue;
      }
      const int block = blocker(current, to, i);
      if (block != i) {
        in_the_way = std::max(in_the_way, block);
        continue;
      }
      // Outer axes scatter first and gather last, so that nested cuts come out in mesh order.
      const int kind = priority(current[at], to[at]);
      const std::pair<int, int> key{kind, to[at].is_shard() ? i : -i};
      if (key < best) {
        best = key;
        chosen = i;
      }
    }
    Move move;
    const bool detour = chosen < 0;
    if (detour) {
      SW_CHECK(in_the_way >= 0 && moves.size() < 32, "no order of moves from {} to {}",
               to_text(from), to_text(to));
      chosen = in_the_way;
    }
    const auto at = static_cast<std::size_t>(chosen);
    move.axes = {chosen};
    move.before = current;
    move.from = current[at];
    move.to = detour ? replicate() : to[at];
    move.collective = collective_between(move.from, move.to).collective;
    move.op = move.from.op;
    move.detour = detour;
    current[at] = move.to;
    move.after = current;
    append(moves, std::move(move));
  }
  return moves;
}

double path_bytes(const std::vector<Move>& moves, const Shape& whole, std::int64_t element_bytes,
                  const Mesh& mesh) {
  double bytes = 0;
  for (const Move& move : moves) {
    int n = 1;
    Sharding gathered = move.before;
    for (const int axis : move.axes) {
      n *= mesh.axes()[static_cast<std::size_t>(axis)].size;
      gathered[static_cast<std::size_t>(axis)] = replicate();
    }
    const auto buffer =
        static_cast<double>(largest_local_elements(whole, gathered, mesh) * element_bytes);
    bytes += move_bytes(move.from, move.to, n, buffer);
  }
  return bytes;
}

}  // namespace sw
