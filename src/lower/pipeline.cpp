#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "lower/lowering.hpp"

/// What a stage does of each micro-batch, in the order of its schedule, and what it hands to
/// others.
namespace sw {
namespace {

/// Whether a boundary's values are made, or needed, by an action of its direction.
bool takes(const PipelineAction& action, Direction direction) {
  return direction == Direction::Forward ? action.kind == PipelineAction::Kind::Forward
                                         : action.kind == PipelineAction::Kind::Backward ||
                                               action.kind == PipelineAction::Kind::InputGradient;
}

}  // namespace

int Lowering::stage() const {
  const int pp = sharded_.mesh.find("pp");
  return pp < 0 ? 0 : coordinates_[static_cast<std::size_t>(pp)];
}

/// Copies that are made in one segment and read in another: the residual stream between layers, and
/// its gradient.
void Lowering::find_boundaries() {
  segment_of_step_ = segments_of_steps(model_, sharded_, options_.stages);
  load_of_copy_.assign(sharded_.copies.size(), sharded_.steps.size());
  std::vector<int> made_in(sharded_.copies.size(), -1);
  for (std::size_t at = 0; at < sharded_.steps.size(); ++at) {
    const ShardedStep& step = sharded_.steps[at];
    for (const CopyId id : copies_made(step)) {
      made_in[static_cast<std::size_t>(id)] = segment_of_step_[at];
      if (step.kind == ShardedStep::Kind::Load) {
        load_of_copy_[static_cast<std::size_t>(id)] = at;
      }
    }
    for (const CopyId id : copies_read(step)) {
      const int from = made_in[static_cast<std::size_t>(id)];
      const int to = segment_of_step_[at];
      if (from < 0 || from == to) {
        continue;
      }
      const Direction direction = copy(id).made_in;
      SW_CHECK(to - from == (direction == Direction::Forward ? 1 : -1),
               "{} goes from segment {} to {}", value(id).name, from, to);
      const auto same = [&](const Boundary& boundary) {
        return boundary.from == from && boundary.to == to && boundary.direction == direction;
      };
      auto found = std::find_if(boundaries_.begin(), boundaries_.end(), same);
      if (found == boundaries_.end()) {
        found = boundaries_.insert(boundaries_.end(), {from, to, direction, {}});
      }
      if (std::find(found->copies.begin(), found->copies.end(), id) == found->copies.end()) {
        found->copies.push_back(id);
      }
    }
  }
}

/// Whether another rank is at the other end.
bool Lowering::crosses(const Boundary& boundary) const {
  return options_.stages.stage_of(boundary.from) != options_.stages.stage_of(boundary.to);
}

/// In one order for all ranks, since the ends of a link make their communicators together.
void Lowering::make_links() {
  const int pp = sharded_.mesh.find("pp");
  if (pp < 0) {
    return;
  }
  const std::vector<int> ranks = sharded_.mesh.group(rank_, {pp});
  for (int low = 0; low < options_.stages.stages; ++low) {
    for (int high = low + 1; high < options_.stages.stages; ++high) {
      for (const auto& way : {std::pair(low, high), std::pair(high, low)}) {
        const int from = way.first;
        const int to = way.second;
        for (const Direction direction : {Direction::Forward, Direction::Backward}) {
          const auto used = [&](const Boundary& boundary) {
            return boundary.direction == direction &&
                   options_.stages.stage_of(boundary.from) == from &&
                   options_.stages.stage_of(boundary.to) == to;
          };
          if ((stage() != low && stage() != high) ||
              std::none_of(boundaries_.begin(), boundaries_.end(), used)) {
            continue;
          }
          Link link;
          link.stream = static_cast<StreamId>(program_.streams.size());
          link.group = static_cast<GroupId>(program_.groups.size());
          link.peer = stage() == low ? 1 : 0;
          program_.streams.push_back(fmt::format(
              "{} {}>{}", direction == Direction::Forward ? "activations" : "gradients", from, to));
          program_.groups.push_back(
              {"pp",
               link.stream,
               {ranks[static_cast<std::size_t>(low)], ranks[static_cast<std::size_t>(high)]}});
          links_[{{from, to}, direction}] = link;
        }
      }
    }
  }
}

Lowering::Link& Lowering::link(const Boundary& boundary) {
  return links_.at(
      {{options_.stages.stage_of(boundary.from), options_.stages.stage_of(boundary.to)},
       boundary.direction});
}

bool Lowering::sends(const PipelineAction& action, const Boundary& boundary) const {
  return boundary.from == action.segment && takes(action, boundary.direction) && crosses(boundary);
}

bool Lowering::receives(const PipelineAction& action, const Boundary& boundary) const {
  return boundary.to == action.segment && takes(action, boundary.direction) && crosses(boundary);
}

void Lowering::emit_actions(const PipelineOrder& order) {
  const std::vector<PipelineAction>& actions = order.at(static_cast<std::size_t>(stage()));
  int micro_batches = 0;
  for (const PipelineAction& action : actions) {
    micro_batches = std::max(micro_batches, action.micro_batch + 1);
  }
  add_batches(micro_batches);
  for (int m = 0; m < micro_batches; ++m) {
    waiting_[m] = parameters_placed();
  }
  if (!actions.empty()) {
    emit_receives(actions.front());
  }
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (i + 1 < actions.size()) {
      emit_receives(actions[i + 1]);  // on its way while this action computes
    }
    emit_action(actions[i]);
    emit_sends(actions[i]);
    if (completes_update(actions[i])) {
      emit_stage_update(options_.update.update_of(actions[i].micro_batch),
                        std::span(actions).subspan(i + 1));
    }
  }
  waiting_.clear();
  micro_batch_ = -1;
}

bool Lowering::belongs(std::size_t at, const PipelineAction& action) const {
  const ShardedStep& step = sharded_.steps[at];
  if (segment_of_step_[at] != action.segment) {
    return false;
  }
  if (head_.deferred[at]) {
    return takes(action, Direction::Backward);
  }
  const bool forward = direction_of(model_, sharded_, step) == Direction::Forward;
  if (action.kind == PipelineAction::Kind::Forward || forward) {
    return forward && action.kind == PipelineAction::Kind::Forward;
  }
  return action.kind == PipelineAction::Kind::Backward ||
         only_for_weights(step) == (action.kind == PipelineAction::Kind::WeightGradient);
}

/// Whether a step makes gradients of weights and nothing else.
bool Lowering::only_for_weights(const ShardedStep& step) const {
  return step.kind == ShardedStep::Kind::Compute &&
         std::all_of(step.outputs.begin(), step.outputs.end(), [&](CopyId id) {
           return gradient_of_copy_[static_cast<std::size_t>(id)] >= 0;
         });
}

void Lowering::emit_action(const PipelineAction& action) {
  micro_batch_ = action.micro_batch;
  std::swap(placed_, waiting_.at(micro_batch_));
  use_version(version_used(action));
  const std::size_t begin = program_.instructions.size();
  for (std::size_t at = 0; at < sharded_.steps.size(); ++at) {
    if (!belongs(at, action)) {
      continue;
    }
    if (!head_.steps.empty() && at == head_.steps.front()) {
      emit_head();
    } else {
      emit_loads(sharded_.steps[at]);
      emit_step(at);
    }
  }
  // What is sent keeps its memory until it has arrived; two values may be under way.
  for (const Boundary& boundary : boundaries_) {
    if (sends(action, boundary) && link(boundary).sends.size() >= 2) {
      const std::vector<InstructionId>& sent = link(boundary).sends;
      program_.instructions.at(begin).after.push_back(sent[sent.size() - 2]);
    }
  }
  std::swap(placed_, waiting_.at(micro_batch_));
}

/// Inputs from the host, for the first step of this stage that reads them.
void Lowering::emit_loads(const ShardedStep& step) {
  for (const CopyId id : copies_read(step)) {
    const std::size_t load = load_of_copy_[static_cast<std::size_t>(id)];
    if (load < sharded_.steps.size() && operand(id).buffer < 0) {
      emit_step(load);
    }
  }
}

void Lowering::emit_receives(const PipelineAction& action) {
  micro_batch_ = action.micro_batch;
  for (const Boundary& boundary : boundaries_) {
    if (!receives(action, boundary)) {
      continue;
    }
    const Link& from = link(boundary);
    for (const CopyId id : boundary.copies) {
      Instruction receive;
      receive.name = "receive " + value(id).name;
      receive.phase = boundary.direction == Direction::Forward ? Phase::Forward : Phase::Backward;
      receive.stream = from.stream;
      receive.work = CollectiveWork{
          CollectiveKind::Receive, ReduceOp::Sum, from.group, {-1}, from.peer, {}, {}};
      receive.outputs = {transient(fmt::format("{} received mb{}", value(id).name, micro_batch_),
                                   copy_dtype(model_, sharded_, id), local_shape(id), Lane::Window,
                                   Category::Communication)};
      waiting_.at(micro_batch_)[static_cast<std::size_t>(id)] = {receive.outputs.front(), true};
      receive.after = after_compute();
      emit(std::move(receive));
    }
  }
}

void Lowering::emit_sends(const PipelineAction& action) {
  for (const Boundary& boundary : boundaries_) {
    if (!sends(action, boundary)) {
      continue;
    }
    Link& to = link(boundary);
    for (const CopyId id : boundary.copies) {
      Instruction send;
      send.name = "send " + value(id).name;
      send.phase = boundary.direction == Direction::Forward ? Phase::Forward : Phase::Backward;
      send.stream = to.stream;
      send.work =
          CollectiveWork{CollectiveKind::Send, ReduceOp::Sum, to.group, {-1}, to.peer, {}, {}};
      send.inputs = {waiting_.at(micro_batch_)[static_cast<std::size_t>(id)].operand};
      to.sends.push_back(static_cast<InstructionId>(program_.instructions.size()));
      emit(std::move(send));
    }
  }
}

}  // namespace sw
