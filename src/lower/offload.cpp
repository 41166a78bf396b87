#include "lower/lowering.hpp"

/// What lies on the host: optimizer state, which is updated there (Ren et al. 2021, ZeRO-Offload),
/// and weights, which gather.cpp fetches before they are used.
///
///   device   backward -> reduction -> gradients          weights -> gathering
///                                        |                  ^
///   link                              to_host           to_device
///                                        v                  |
///   host                             gradients -> update -> master, bfloat16 weights
namespace sw {

/// One each way, as links are; without overlap, the compute stream.
StreamId Lowering::host_stream(CopyDirection direction) {
  if (!options_.overlap) {
    return 0;
  }
  const auto [slot, added] =
      host_streams_.try_emplace(direction, static_cast<StreamId>(program_.streams.size()));
  if (added) {
    program_.streams.emplace_back(to_text(direction));
  }
  return slot->second;
}

Instruction Lowering::host_copy(const std::string& name, const Operand& from, const Operand& to,
                                CopyDirection direction) {
  Instruction copy;
  copy.name = name;
  copy.phase = Phase::Window;
  copy.stream = host_stream(direction);
  copy.work = CopyWork{};
  copy.inputs = {from};
  copy.outputs = {to};
  return copy;
}

Instruction Lowering::gradients_to_host(const Unit& unit) {
  const Range mine = state_.optimizer_range(unit);
  return host_copy("gradients to the host " + unit.name, state_.gradients(unit, mine),
                   state_.updating_gradients(unit, mine), CopyDirection::ToHost);
}

void Lowering::emit_updated_weights(const Unit& unit) {
  if (state_.options.offload != Offload::Optimizer) {
    return;
  }
  const Range mine = state_.optimizer_range(unit);
  const Operand updated = unit.rounded < 0 ? state_.master(unit, mine) : state_.rounded(unit, mine);
  emit(host_copy("weights from the host " + unit.name, updated, state_.weights(unit, mine),
                 CopyDirection::ToDevice));
}

}  // namespace sw
