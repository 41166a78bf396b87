#include <fmt/format.h>

#include <map>
#include <tuple>

#include "lower/insertions.hpp"
#include "lower/lowering.hpp"

/// Weights that are kept in slices (ZeRO level 3) or on the host: a unit is fetched and gathered
/// before it is used, and its memory is free after the last use.
namespace sw {
namespace {

/// Instructions that use a unit without a gather between them.
struct Use {
  std::size_t unit = 0;
  std::size_t first = 0;  ///< instruction
  BufferId gathered = -1;
};

}  // namespace

/// Compute has been emitted as if `Unit::weights` held the whole unit on the device; its operands
/// are moved to gathered copies here. One gather serves a unit's uses in a forward, or a backward,
/// or (without `reshard_after_forward`) both; also a use right after the last one, with no other
/// unit between.
void Lowering::gather_weights() {
  const bool on_host = state_.options.offload == Offload::Parameters;
  const auto is_cut = [&](const Unit& unit) {
    return state_.options.zero >= 3 && state_.group(unit).slices > 1;
  };
  std::map<BufferId, std::size_t> unit_of;
  for (std::size_t u = 0; u < state_.units.size(); ++u) {
    if (on_host || is_cut(state_.units[u])) {
      unit_of[state_.units[u].weights] = u;
    }
  }
  std::vector<Use> uses;
  std::map<std::tuple<std::size_t, int, Phase>, std::size_t> serving;  // index into uses
  std::size_t latest = 0;
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    Instruction& instruction = program_.instructions[i];
    const Phase phase = options_.reshard_after_forward ? instruction.phase : Phase::Forward;
    for (Operand& input : instruction.inputs) {
      const auto found = unit_of.find(input.buffer);
      if (found == unit_of.end()) {
        continue;
      }
      const std::size_t unit = found->second;
      const auto [slot, added] =
          serving.try_emplace({unit, instruction.micro_batch, phase}, uses.size());
      if (added && !uses.empty() && uses[latest].unit == unit) {
        slot->second = latest;
      } else if (added) {
        const Unit& whole = state_.units[unit];
        uses.push_back(
            {unit, i,
             transient(fmt::format("{}.weights gathered {}", whole.name, uses.size()),
                       state_.options.precision, {whole.elements},
                       is_cut(whole) ? Lane::Window : Lane::Private, Category::Communication)
                 .buffer});
      }
      latest = slot->second;
      input.buffer = uses[latest].gathered;
    }
  }
  const auto ahead = static_cast<std::size_t>(options_.overlap ? options_.prefetch : 0);
  Insertions insertions;
  for (std::size_t k = 0; k < uses.size(); ++k) {
    const std::size_t position = uses[k - std::min(k, ahead)].first;
    const Instruction& user = program_.instructions[uses[k].first];
    const Unit& unit = state_.units[uses[k].unit];
    const Range kept = state_.weight_range(unit);
    const Operand slice =
        unit_range(uses[k].gathered, kept.begin, kept.size(), state_.options.precision);
    std::vector<Instruction> steps;
    if (on_host) {
      steps.push_back(host_copy("weights from the host " + unit.name, state_.weights(unit, kept),
                                slice, CopyDirection::ToDevice));
    }
    if (is_cut(unit)) {
      Instruction gather = weight_gather({uses[k].unit});
      if (on_host) {
        gather.inputs = {slice};
      }
      gather.outputs = {unit_range(uses[k].gathered, 0, unit.elements, state_.options.precision)};
      steps.push_back(std::move(gather));
    }
    for (Instruction& step : steps) {
      step.phase = user.phase;
      step.micro_batch = user.micro_batch;
      const Insertions::Place place = insertions.insert_before(position, std::move(step));
      // Not before compute gets there: else its memory could take no other gather's place.
      for (std::size_t before = position; before-- > 0;) {
        if (program_.instructions[before].stream == 0) {
          insertions.edge(static_cast<Insertions::Place>(before), place);
          break;
        }
      }
    }
  }
  insertions.apply(program_.instructions);
}

}  // namespace sw
