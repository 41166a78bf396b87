#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "lower/lowering.hpp"

/// Pipelines that do not wait for each other's gradients (PipeDream, PipeDream-2BW): a stage
/// updates its weights inside the window, and a micro-batch's backward uses the version that its
/// forward used.
///
///   stage 0 of 2, pipedream   F0  F1  B0 | copy of version 0 | update -> 1  F2  B1 (copy) | ...
///
/// Compute reads `Unit::weights` while they are the version it is to use. An update that would
/// overwrite a version that is still to be used is preceded by a copy of it, a transient buffer:
/// the memory map lets a later copy take its place.
namespace sw {

bool Lowering::completes_update(const PipelineAction& action) const {
  const UpdateRule& rule = options_.update;
  return rule.asynchronous() && action.kind == PipelineAction::Kind::Backward &&
         (action.micro_batch + 1) % rule.every == 0;
}

int Lowering::version_used(const PipelineAction& action) const {
  return options_.update.asynchronous()
             ? options_.update.versions.at(static_cast<std::size_t>(stage()))
                   .at(static_cast<std::size_t>(action.micro_batch))
             : 0;
}

/// The weights that the steps of an action read from here on.
void Lowering::use_version(int version) {
  if (!options_.update.asynchronous()) {
    return;
  }
  SW_CHECK(version == version_ || stashed_.contains(version), "version {} is gone", version);
  used_version_ = version;
  for (const CopyId id : sharded_.parameters) {
    if (member_of_.contains(copy(id).value)) {
      placed_[static_cast<std::size_t>(id)] = parameter_operand(id);
    }
  }
}

/// Units whose weights an action reads: the backward of an embedding does not read its own.
std::set<std::size_t> Lowering::units_read(const PipelineAction& action) const {
  std::set<std::size_t> units;
  for (std::size_t at = 0; at < sharded_.steps.size(); ++at) {
    const ShardedStep& step = sharded_.steps[at];
    if (step.kind != ShardedStep::Kind::Compute || !belongs(at, action)) {
      continue;
    }
    const int unread = model_.graph.op(step.op).definition->unread_input;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const auto member = member_of_.find(copy(step.inputs[i]).value);
      if (member != member_of_.end() && static_cast<int>(i) != unread) {
        units.insert(member->second.first);
      }
    }
  }
  return units;
}

/// A copy of the stage's weights as they are, of what one of the `later` actions reads of them.
void Lowering::stash_weights(std::span<const PipelineAction> later) {
  std::map<PipelineAction::Kind, std::set<std::size_t>> read_by;
  for (const PipelineAction& action : later) {
    if (version_used(action) == version_ && !read_by.contains(action.kind)) {
      read_by[action.kind] = units_read(action);
    }
  }
  std::vector<BufferId>& stash = stashed_[version_];
  stash.assign(state_.units.size(), -1);
  for (std::size_t u = 0; u < state_.units.size(); ++u) {
    const Unit& unit = state_.units[u];
    const auto reads = [&](const auto& kind) { return kind.second.contains(u); };
    if (unit.gradients < 0 || std::none_of(read_by.begin(), read_by.end(), reads)) {
      continue;
    }
    const Operand weights = state_.weights(unit, {0, unit.elements});
    const Operand copy =
        transient(fmt::format("{}.weights version {}", unit.name, version_), weights.dtype,
                  weights.shape, Lane::Private, Category::Parameters);
    stash[u] = copy.buffer;
    emit_work("stash " + unit.name, Phase::Window, SliceWork{0, 0}, {weights}, {copy});
  }
}

/// The stage's gradients reduced over its ranks, whether they are finite, and its next version.
void Lowering::emit_stage_update(int update, std::span<const PipelineAction> later) {
  for (Instruction& reduction : reductions_of_update()) {
    emit(std::move(reduction));
  }
  emit_squares(update);
  std::vector<int> axes;
  for (int axis = 0; axis < static_cast<int>(sharded_.mesh.axes().size()); ++axis) {
    if (axis != sharded_.mesh.find("pp")) {
      axes.push_back(axis);
    }
  }
  emit_all_reduce("gradient norm of the stage", axes, norm_words(update));
  emit_verdict(update, false);
  stash_weights(later);
  emit_new_weights(update);
  ++version_;
}

void Lowering::emit_verdicts() {
  const std::int64_t words = std::int64_t{updates()} * kernels::ExactSum::kWords;
  emit_all_reduce("gradient norms", {sharded_.mesh.find("pp")},
                  {state_.norm_words, 0, DType::UInt64, {words}});
  for (int update = 0; update < updates(); ++update) {
    emit_verdict(update, true);
  }
}

}  // namespace sw
