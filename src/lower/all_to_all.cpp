#include "base/error.hpp"
#include "lower/lowering.hpp"

/// An all-to-all that brings a tensor cut along one dim into a cut along another. Each rank sends
/// every rank its slice of what lies here, and puts what comes from them side by side:
///
///     slice, slice, ...     along the new dim, one for each rank, packed one after the other
///     all_to_all
///     join                  along the old dim
///
/// Over the parts of an axis at once: they nest alike in both dims.
namespace sw {

/// Memory for `shapes` one after the other: the whole, then each.
std::vector<Operand> Lowering::packed(const std::string& name, DType dtype,
                                      const std::vector<Shape>& shapes) {
  std::int64_t count = 0;
  for (const Shape& shape : shapes) {
    count += elements(shape);
  }
  Operand piece = transient(name, dtype, {count}, Lane::Window, Category::Communication);
  std::vector<Operand> result{piece};
  for (const Shape& shape : shapes) {
    piece.shape = shape;
    result.push_back(piece);
    piece.offset += bytes_of(piece);
  }
  return result;
}

void Lowering::emit_all_to_all(const ShardedStep& step) {
  const Move& move = step.move;
  const auto new_dim = static_cast<std::size_t>(move.to.dim);
  const auto old_dim = static_cast<std::size_t>(move.from.dim);
  const Operand from = operand(step.from);
  const std::string& name = value(step.to).name;

  CollectiveWork work;
  work.kind = CollectiveKind::AllToAll;
  work.group = group(move.axes, 0);
  work.dims = {-1};
  std::vector<Shape> sent;
  std::vector<Shape> received;
  std::vector<std::int64_t> starts;
  for (const int rank : sharded_.mesh.group(rank_, move.axes)) {
    const std::vector<int> there = sharded_.mesh.coordinates(rank);
    const Range wanted = copy_box(model_, sharded_, step.to, there)[new_dim];
    const Range held = copy_box(model_, sharded_, step.from, there)[old_dim];
    starts.push_back(wanted.begin - local_start(step.from)[new_dim]);
    sent.push_back(from.shape);
    sent.back()[new_dim] = wanted.size();
    received.push_back(local_shape(step.to));
    received.back()[old_dim] = held.size();
    work.input_counts.push_back(elements(sent.back()));
    work.output_counts.push_back(elements(received.back()));
  }

  const Phase phase = phase_of(step);
  const auto out = packed(fmt::format("{} out mb{}", name, micro_batch_), from.dtype, sent);
  const auto in = packed(fmt::format("{} in mb{}", name, micro_batch_), from.dtype, received);
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    emit_work("slice " + name, phase, SliceWork{move.to.dim, starts[rank]}, {from},
              {out[rank + 1]});
  }
  emit_work("all_to_all " + name, phase, work, {out.front()}, {in.front()});
  const Operand to = transient(fmt::format("{} {} mb{}", name, to_text(move.to), micro_batch_),
                               from.dtype, local_shape(step.to),
                               lane_[static_cast<std::size_t>(step.to)], Category::Activations);
  emit_work("join " + name, phase, JoinWork{move.from.dim}, {in.begin() + 1, in.end()}, {to});
  placed_[static_cast<std::size_t>(step.to)] = {to, false};
}

}  // namespace sw
