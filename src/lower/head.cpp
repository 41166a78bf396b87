#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "lower/lowering.hpp"

/// The head and the loss go over a part of a micro-batch's tokens at a time: logits, and their
/// gradients in their place, are the widest values of a model, and no token needs those of another.
///
///     for each part of the tokens
///       logits, their maxima, sums of exponentials            forward
///       gradients of the logits, of the input, of the head    backward
///     losses of all tokens
///
/// Forward and backward stand together, in the action of a schedule that makes gradients of inputs,
/// so that no logits wait for it; where nothing goes back, in the forward. What has one number or
/// one row of the residual stream a token is whole, and a part reads or writes its range.
namespace sw {

/// Three sets of copies: logits and their gradients; what is made of them, directly or not (so all
/// gradients); and what a part of the tokens makes, of which sums over ranks belong to the part.
void Lowering::find_head() {
  using Copies = std::vector<bool>;
  const auto any = [](const std::vector<CopyId>& ids, const Copies& of) {
    return std::any_of(ids.begin(), ids.end(),
                       [&](CopyId id) { return of[static_cast<std::size_t>(id)]; });
  };
  const auto mark = [](const std::vector<CopyId>& ids, Copies& of) {
    std::for_each(ids.begin(), ids.end(),
                  [&](CopyId id) { of[static_cast<std::size_t>(id)] = true; });
  };
  const std::size_t count = sharded_.steps.size();
  std::vector<bool> in_parts(count, false);
  head_.logits.assign(sharded_.copies.size(), false);
  Copies from_logits = head_.logits;
  for (std::size_t at = 0; at < count; ++at) {
    const ShardedStep& step = sharded_.steps[at];
    const std::vector<CopyId> made = copies_made(step);
    const bool makes_gradient = step.kind == ShardedStep::Kind::Compute &&
                                model_.graph.op(step.op).definition->name == "loss_grad";
    if (makes_gradient || copy(made.front()).value == model_.logits) {
      mark(made, head_.logits);
    }
    in_parts[at] = any(copies_read(step), head_.logits) || any(made, head_.logits);
    if (any(copies_read(step), from_logits) || in_parts[at]) {
      mark(made, from_logits);
    }
  }
  const auto backward = [&](std::size_t at) {
    return direction_of(model_, sharded_, sharded_.steps[at]) == Direction::Backward;
  };
  Copies of_part(sharded_.copies.size(), false);
  for (std::size_t at = 0; at < count; ++at) {
    const ShardedStep& step = sharded_.steps[at];
    const bool sums = step.kind == ShardedStep::Kind::Move &&
                      step.move.collective == CollectiveKind::AllReduce && !backward(at);
    in_parts[at] = in_parts[at] || (sums && any(copies_read(step), of_part));
    if (in_parts[at]) {
      mark(copies_made(step), of_part);
      head_.steps.push_back(at);
    }
  }
  const bool goes_back = std::any_of(head_.steps.begin(), head_.steps.end(), backward);
  head_.deferred.assign(count, false);
  for (std::size_t at = 0; at < count && goes_back; ++at) {
    head_.deferred[at] =
        in_parts[at] || (!backward(at) && any(copies_read(sharded_.steps[at]), from_logits));
  }
  // Gathers of the forward that the head alone reads need not wait for it either.
  Copies read_before(sharded_.copies.size(), false);
  for (std::size_t at = count; at-- > 0 && goes_back;) {
    const ShardedStep& step = sharded_.steps[at];
    if (step.kind == ShardedStep::Kind::Move && !backward(at) && at < head_.steps.front() &&
        !any(copies_made(step), read_before)) {
      head_.deferred[at] = true;
    } else if (!head_.deferred[at]) {
      mark(copies_read(step), read_before);
    }
  }
  head_.by_token.assign(sharded_.copies.size(), false);
  const std::vector<ValueId> parameters = model_.graph.parameters();
  for (const std::size_t at : head_.steps) {
    std::vector<CopyId> copies = copies_read(sharded_.steps[at]);
    const std::vector<CopyId> made = copies_made(sharded_.steps[at]);
    copies.insert(copies.end(), made.begin(), made.end());
    for (const CopyId id : copies) {
      head_.by_token[static_cast<std::size_t>(id)] =
          gradient_of_copy_[static_cast<std::size_t>(id)] < 0 && value(id).shape.size() >= 2 &&
          std::find(parameters.begin(), parameters.end(), copy(id).value) == parameters.end();
    }
  }
}

Shape Lowering::shape_of_part(CopyId id, Shape whole) const {
  if (head_.part.size() > 0 && head_.by_token[static_cast<std::size_t>(id)]) {
    whole[0] = 1;
    whole[1] = head_.part.size();
  }
  return whole;
}

/// Of what is whole, the range of the part that is emitted.
Operand Lowering::in_part(CopyId id, Operand whole) const {
  const std::int64_t tokens = whole.shape[0] * whole.shape[1];
  whole.offset += head_.part.begin * (elements(whole.shape) / tokens * size_of(whole.dtype));
  whole.shape = local_shape(id);
  return whole;
}

/// Memory for a copy: of its own, or the part's range of what the first part made room for.
Operand Lowering::place_copy(CopyId id, const std::string& name, DType dtype, Lane lane,
                             Category category) {
  const auto index = static_cast<std::size_t>(id);
  if (head_.part.size() == 0 || !head_.by_token[index] || head_.logits[index]) {
    return transient(name, dtype, local_shape(id), lane, category);
  }
  const auto [whole, first] = head_.whole.try_emplace(id);
  if (first) {
    whole->second = transient(name, dtype, whole_shape(id), lane, category);
  }
  return in_part(id, whole->second);
}

/// Steps of the backward that the head needs and that need nothing of it: what they gather again
/// is still there.
void Lowering::emit_before_head(std::size_t at) {
  for (const CopyId id : copies_read(sharded_.steps[at])) {
    const std::size_t maker = maker_of_copy_[static_cast<std::size_t>(id)];
    if (maker < head_.steps.front() || sharded_.steps[maker].kind == ShardedStep::Kind::Load ||
        !emitted_.insert({micro_batch_, maker}).second) {
      continue;
    }
    const std::vector<CopyId> forward = copies_read(sharded_.steps[head_.steps.front()]);
    const auto there = std::find_if(forward.begin(), forward.end(), [&](CopyId other) {
      return copy(other).value == copy(id).value && copy(other).sharding == copy(id).sharding;
    });
    if (there != forward.end()) {
      placed_[static_cast<std::size_t>(id)] = {operand(*there), true};
    } else {
      emit_before_head(maker);
      emit_one(maker);
    }
  }
}

/// All parts, at the first step of the head.
void Lowering::emit_head() {
  std::set<CopyId> made;
  for (const std::size_t at : head_.steps) {
    emitted_.insert({micro_batch_, at});
    const std::vector<CopyId> outputs = copies_made(sharded_.steps[at]);
    made.insert(outputs.begin(), outputs.end());
  }
  for (const std::size_t at : head_.steps) {
    emit_loads(sharded_.steps[at]);
    emit_before_head(at);
    for (const CopyId id : copies_read(sharded_.steps[at])) {
      if (head_.by_token[static_cast<std::size_t>(id)] && !made.contains(id)) {
        head_.whole[id] = operand(id);
      }
    }
  }
  const Shape logits = whole_shape(sharded_.steps[head_.steps.front()].outputs.front());
  const std::int64_t tokens = logits[0] * logits[1];
  const std::int64_t most =
      options_.head_chunk == 0 ? tokens : std::min(tokens, options_.head_chunk);
  const std::int64_t parts = (tokens + most - 1) / most;
  const std::int64_t each = round_up((tokens + parts - 1) / parts, kHeadChunkMultiple);
  for (std::int64_t begin = 0; begin < tokens; begin += each) {
    head_.part = {begin, std::min(tokens, begin + each)};
    for (const auto& [id, whole] : head_.whole) {
      operand(id) = in_part(id, whole);
    }
    for (const std::size_t at : head_.steps) {
      emit_one(at);
    }
  }
  for (const auto& [id, whole] : head_.whole) {
    operand(id) = whole;
  }
  head_.part = {};
  head_.whole.clear();
}

}  // namespace sw
