#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/model_weights.hpp"
#include "model/parameters.hpp"
#include "train/session.hpp"

namespace sw {
namespace {

/// Of a weight in a checkpoint: its master's, where there is one.
DType weight_dtype(const StateOptions& options, bool frozen) {
  return frozen ? options.precision : DType::Float32;
}

}  // namespace

/// Sets what this rank keeps of a member's weights from `read`, which is given elements of the
/// member's shard: part by part, so that reading needs little memory beyond the State.
void Session::read_weights(const Unit& unit, const UnitMember& member,
                           const std::function<void(const Range&, std::span<float>)>& read) {
  constexpr std::int64_t kAtOnce = 1 << 18;
  const Range kept = kept_of(unit, member);
  std::vector<float> values(static_cast<std::size_t>(std::min(kept.size(), kAtOnce)));
  for (std::int64_t begin = kept.begin; begin < kept.end; begin += kAtOnce) {
    const Range part{begin, std::min(kept.end, begin + kAtOnce)};
    const auto room = std::span(values).first(static_cast<std::size_t>(part.size()));
    read(part, room);
    set_weights(unit, member.offset + begin, room);
  }
}

/// What this rank keeps of a member's weights, as elements of the member's shard.
Range Session::kept_of(const Unit& unit, const UnitMember& member) const {
  const Range kept = part_in(member, state_.weight_range(unit));
  return {kept.begin - member.offset, kept.end - member.offset};
}

void Session::initialize(std::uint64_t seed) {
  std::map<std::string, ParameterSpec> specs;
  for (ParameterSpec& spec : parameter_specs(compilation_.options().model)) {
    specs.emplace(spec.name, spec);
  }
  for_each_member([&](const Unit& unit, const UnitMember& member) {
    const ParameterSpec& spec = specs.at(parameter(member).name);
    read_weights(unit, member, [&](const Range& elements, std::span<float> values) {
      sw::initialize(spec, seed, member.box, elements, values);
    });
  });
}

void Session::load_model_folder(const std::filesystem::path& path) {
  const auto note = [this](const std::string& text) {
    if (world_.rank() == 0) {
      warn(text);
    }
  };
  const ModelWeights weights(compilation_.options().model, path, note);
  for_each_member([&](const Unit& unit, const UnitMember& member) {
    read_weights(unit, member, [&](const Range& elements, std::span<float> values) {
      weights.read(parameter(member).name, {member.box, elements}, values);
    });
  });
}

std::vector<StateTensor> checkpoint_tensors(const Compilation& compilation) {
  const StateOptions& options = compilation.state(0).options;
  const Graph& graph = compilation.model().graph;
  std::vector<StateTensor> tensors;
  for (const ValueId id : graph.parameters()) {
    const Value& value = graph.value(id);
    tensors.push_back({value.name, "weight", weight_dtype(options, value.frozen), value.shape});
    for (int i = 0; i < options.moments && !value.frozen; ++i) {
      tensors.push_back({value.name, moment_name(i), DType::Float32, value.shape});
    }
  }
  for (const Value* bias : router_biases(graph)) {
    tensors.push_back({bias->name, "weight", DType::Float32, bias->shape});
  }
  return tensors;
}

std::int64_t checkpoint_bytes(const Compilation& compilation, int rank) {
  const StatePlan state = compilation.state(rank);
  std::int64_t bytes = rank == 0 && state.router_bias.buffer >= 0 ? bytes_of(state.router_bias) : 0;
  for (const OwnedPiece& owned : owned_pieces(state)) {
    const auto moments = static_cast<std::int64_t>(owned.unit->moments.size());
    bytes += owned.elements.size() * (size_of(weight_dtype(state.options, owned.unit->frozen)) +
                                      moments * size_of(DType::Float32));
  }
  return bytes;
}

void Session::load_checkpoint(const CheckpointReader& reader) {
  reader.require(checkpoint_tensors(compilation_));
  for (const Value* bias : sw::router_biases(compilation_.model().graph)) {
    const Operand here = state_.router_bias_of(*bias);
    reader.read(bias->name, "weight", whole_range(bias->shape),
                std::span(address(here), static_cast<std::size_t>(bytes_of(here))));
  }
  for_each_member([&](const Unit& unit, const UnitMember& member) {
    const Value& value = parameter(member);
    const auto read = [&](const char* state, const Range& elements, DType dtype, std::byte* out) {
      reader.read(value.name, state, {member.box, elements},
                  std::span(out, static_cast<std::size_t>(elements.size() * size_of(dtype))));
    };
    const Range kept = kept_of(unit, member);
    if (kept.size() == 0) {
      return;
    }
    if (unit.frozen) {
      read("weight", kept, state_.options.precision,
           address(state_.weights(unit, part_in(member, state_.weight_range(unit)))));
      return;
    }
    read_weights(unit, member, [&](const Range& elements, std::span<float> values) {
      read("weight", elements, DType::Float32, reinterpret_cast<std::byte*>(values.data()));
    });
    const Range mine = part_in(member, state_.optimizer_range(unit));
    if (mine.size() == 0) {
      return;
    }
    for (const auto& [name, buffer] : moments(unit)) {
      read(name, {mine.begin - member.offset, mine.end - member.offset}, DType::Float32,
           reinterpret_cast<std::byte*>(
               floats(buffer, mine.begin - state_.optimizer_range(unit).begin)));
    }
  });
}

}  // namespace sw
