#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "lower/lowering.hpp"

/// A rank has room for a stated multiple of the slots that come to it if all experts are chosen
/// alike. What is more comes in further rounds, unrolled up to the most that there can be; one that
/// the routes do not need does nothing:
///
///     round 0    slots to their experts, products, results back
///     round 1    the same for the next slots, if any rank has more than it has room for
///     ...
///     unpack     results of all rounds
///
/// The backward keeps what round 0 made. Of a further round it sends the slots again and makes
/// again what it needs, before the gradients of that round. It takes tokens that it has made or
/// gathered again itself, so that those of the forward need not stay.
namespace sw {

bool keeps_room_for_all_slots(const ModelGraph& model, const ShardedGraph& sharded,
                              const PipelineOrder& order) {
  const auto copy = [&](CopyId id) -> const Copy& {
    return sharded.copies[static_cast<std::size_t>(id)];
  };
  std::map<int, bool> returns;  // by layer whose backward has to do with routed slots
  const std::vector<int> layers = layers_of_values(model.graph);
  for (const ShardedStep& step : sharded.steps) {
    if (direction_of(model, sharded, step) == Direction::Forward || step.recomputed) {
      continue;
    }
    if (step.kind == ShardedStep::Kind::Compute) {
      if (std::any_of(step.inputs.begin(), step.inputs.end(),
                      [&](CopyId id) { return is_routed(copy(id).sharding); })) {
        (void)returns[model.graph.op(step.op).layer];
      }
    } else if (step.choice >= 0 && !is_routed(copy(step.to).sharding)) {
      returns[layers[static_cast<std::size_t>(copy(step.to).value)]] = true;
    }
  }
  return halves_backwards(order) ||
         std::any_of(returns.begin(), returns.end(), [](const auto& of) { return !of.second; });
}

/// Of the slots that come to a rank, if each of its group has `slots`, those that there is room
/// for.
std::int64_t Lowering::room_for(std::int64_t slots) const {
  const std::int64_t all = slots * sharded_.mesh.size(sharded_.mesh.parts("ep"));
  const auto stated =
      static_cast<std::int64_t>(std::ceil(options_.expert_buffer * static_cast<double>(slots)));
  return room_for_all_slots_ ? all : std::min(all, stated);
}

void Lowering::find_rounds() {
  room_for_all_slots_ = keeps_room_for_all_slots(model_, sharded_, options_.order);
  for (std::size_t id = 0; id < sharded_.copies.size() && most_rounds_ == 1; ++id) {
    const auto copy = static_cast<CopyId>(id);
    if (is_routed(copy)) {
      const Shape even = shape_of(copy_box(model_, sharded_, copy, coordinates_));
      const std::int64_t slots = even[0] * even[1] * even[2];
      const std::int64_t all = slots * sharded_.mesh.size(sharded_.mesh.parts("ep"));
      most_rounds_ = static_cast<int>((all + room_for(slots) - 1) / room_for(slots));
    }
  }
  maker_of_copy_.assign(sharded_.copies.size(), 0);
  layer_of_value_ = layers_of_values(model_.graph);
  for (std::size_t at = 0; at < sharded_.steps.size(); ++at) {
    for (const CopyId id : copies_made(sharded_.steps[at])) {
      maker_of_copy_[static_cast<std::size_t>(id)] = at;
    }
  }
  find_own_of_backward();
}

/// Of a copy of the forward, the one of the same value that lies alike and that the backward makes.
void Lowering::find_own_of_backward() {
  std::map<ValueId, std::vector<CopyId>> forward;
  const auto count = static_cast<CopyId>(sharded_.copies.size());
  for (CopyId id = 0; id < count; ++id) {
    own_of_backward_.push_back(id);
    std::vector<CopyId>& alike = forward[copy(id).value];
    if (copy(id).made_in == Direction::Forward) {
      alike.push_back(id);
      continue;
    }
    for (const CopyId earlier : alike) {
      if (copy(earlier).sharding == copy(id).sharding) {
        own_of_backward_[static_cast<std::size_t>(earlier)] = id;
      }
    }
  }
}

CopyId Lowering::own_copy(CopyId id, Phase phase) const {
  return phase == Phase::Backward ? own_of_backward_[static_cast<std::size_t>(id)] : id;
}

/// What slots that leave are packed from: themselves, and the tokens that they are copies of.
std::vector<CopyId> Lowering::sources(CopyId id) const {
  if (!packed_from_tokens_[static_cast<std::size_t>(id)]) {
    return {id};
  }
  return {id, sharded_.steps[maker_of_copy_[static_cast<std::size_t>(id)]].inputs.front()};
}

bool Lowering::returns_slots(const ShardedStep& step) const {
  return step.kind == ShardedStep::Kind::Move && step.choice >= 0 && !is_routed(step.to);
}

/// The steps on routed slots of the layer and direction of step `like`, in order.
std::vector<std::size_t> Lowering::routed_steps(std::size_t like) const {
  const auto kind = [&](const ShardedStep& step) {
    const int layer = step.kind == ShardedStep::Kind::Compute
                          ? model_.graph.op(step.op).layer
                          : layer_of_value_[static_cast<std::size_t>(copy(step.to).value)];
    return std::tuple(layer, direction_of(model_, sharded_, step), step.recomputed);
  };
  std::vector<std::size_t> steps;
  for (std::size_t at = 0; at < sharded_.steps.size(); ++at) {
    const ShardedStep& step = sharded_.steps[at];
    const auto routed = [&](CopyId id) { return is_routed(id); };
    const std::vector<CopyId> read = copies_read(step);
    const std::vector<CopyId> made = copies_made(step);
    if ((std::any_of(read.begin(), read.end(), routed) ||
         std::any_of(made.begin(), made.end(), routed)) &&
        kind(step) == kind(sharded_.steps[like])) {
      steps.push_back(at);
    }
  }
  return steps;
}

/// What a further round does: these steps, and before each those that make what it reads.
std::vector<std::size_t> Lowering::steps_of_a_round(const std::vector<std::size_t>& steps,
                                                    Phase phase) const {
  std::vector<std::size_t> all;
  std::set<std::size_t> seen;
  const auto add = [&](const auto& self, std::size_t at) {
    if (!seen.insert(at).second) {
      return;
    }
    for (const CopyId id : copies_read(sharded_.steps[at])) {
      if (is_routed(id)) {
        self(self, maker_of_copy_[static_cast<std::size_t>(own_copy(id, phase))]);
      }
    }
    all.push_back(at);
  };
  for (const std::size_t at : steps) {
    add(add, at);
  }
  return all;
}

/// What the backward makes after `position` of values of the forward, but a round needs before.
void Lowering::emit_ahead(CopyId id, std::size_t position) {
  const std::size_t maker = maker_of_copy_[static_cast<std::size_t>(id)];
  if (maker <= position || !emitted_.insert({micro_batch_, maker}).second) {
    return;
  }
  for (const CopyId read : copies_read(sharded_.steps[maker])) {
    emit_ahead(read, position);
    std::size_t& last = last_use_[static_cast<std::size_t>(read)];
    last = std::max(last, maker + 1);  // other readers come after it
  }
  emit_one(maker);
}

/// A step of the forward reads in the backward what that has of its own.
void Lowering::emit_of_round(std::size_t at) {
  for (const CopyId read : copies_read(sharded_.steps[at])) {
    for (const CopyId id : sources(read)) {
      if (const CopyId own = own_copy(id, round_.phase); own != id) {
        placed_[static_cast<std::size_t>(read)] = {operand(own), true};
        break;
      }
    }
  }
  emit_one(at);
}

/// At the first step that brings slots back: what is left of round 0, the further rounds, and all
/// that comes back.
void Lowering::emit_rounds(std::size_t first_return) {
  std::vector<std::size_t> with_experts;
  std::vector<std::pair<std::size_t, Operand>> returns;
  for (const std::size_t at : routed_steps(first_return)) {
    const ShardedStep& step = sharded_.steps[at];
    if (returns_slots(step)) {
      returns.emplace_back(at, Operand{});
    } else {
      with_experts.push_back(at);
      if (at > first_return) {
        emit_one(at);
      }
    }
    emitted_.insert({micro_batch_, at});
  }
  for (auto& [at, packed] : returns) {
    packed = packed_slots(sharded_.steps[at]);
    emit_return(sharded_.steps[at], packed);
  }
  const ShardedStep& like = sharded_.steps[first_return];
  const std::vector<std::size_t> steps = steps_of_a_round(with_experts, phase_of(like));
  for (const std::size_t at : steps) {
    for (const CopyId read : copies_read(sharded_.steps[at])) {
      for (const CopyId id : sources(read)) {
        if (const CopyId own = own_copy(id, phase_of(like)); own != id) {
          emit_ahead(own, first_return);
        }
      }
    }
  }
  const std::vector<Placed> of_round_0 = placed_;
  round_.rounds = routes_.at({micro_batch_, like.choice}).rounds;
  round_.phase = phase_of(like);
  for (round_.number = 1; round_.number < most_rounds_; ++round_.number) {
    for (const std::size_t at : steps) {
      emit_of_round(at);
    }
    for (const auto& [at, packed] : returns) {
      emit_return(sharded_.steps[at], packed);
    }
  }
  round_ = {};
  placed_ = of_round_0;
  for (const auto& [at, packed] : returns) {
    emit_unpack(sharded_.steps[at], packed);
  }
}

}  // namespace sw
