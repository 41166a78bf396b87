#include <cstring>
#include <map>

#include "base/error.hpp"
#include "checkpoint/model_folder.hpp"
#include "model/parameters.hpp"
#include "model/weights.hpp"
#include "train/session.hpp"

namespace sw {
namespace {

/// Elements [begin, begin + count) of a stored tensor, as float32.
void read_floats(const TensorView& tensor, std::int64_t begin, std::int64_t count, float* out) {
  const std::byte* from = tensor.bytes.data() + begin * size_of(tensor.dtype);
  switch (tensor.dtype) {
    case DType::Float32:
      std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case DType::BFloat16:
      for (std::int64_t i = 0; i < count; ++i) {
        BFloat16 value;
        std::memcpy(&value, from + i * 2, 2);
        out[i] = to_float(value);
      }
      return;
    case DType::Float16:
      for (std::int64_t i = 0; i < count; ++i) {
        _Float16 value;
        std::memcpy(&value, from + i * 2, 2);
        out[i] = static_cast<float>(value);
      }
      return;
    default:
      throw DataError(
          fmt::format("a weight is stored as {}; float32, bfloat16 and float16 can be read",
                      to_text(tensor.dtype)));
  }
}

std::vector<StoredTensor> found_tensors(const ModelFolder& folder) {
  std::vector<StoredTensor> found;
  for (const auto& [name, view] : folder.tensors()) {
    found.push_back({name, view.shape});
  }
  return found;
}

/// A head that is shipped although it is tied must be the embedding.
void check_tied_copies(const ModelFolder& folder, const WeightMatch& match) {
  for (const TiedCopy& tied : match.tied_copies) {
    for (const ParameterSpec& spec : match.parameters) {
      if (spec.name != tied.parameter) {
        continue;
      }
      const TensorView& a = folder.tensors().at(tied.tensor);
      const TensorView& b = folder.tensors().at(spec.stored.tensor);
      if (a.dtype != b.dtype || a.bytes.size() != b.bytes.size() ||
          std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) != 0) {
        throw DataError(
            fmt::format("{}: {} differs from {}, but config.json says that they are tied",
                        folder.path().string(), tied.tensor, spec.stored.tensor));
      }
    }
  }
}

}  // namespace

void Session::initialize(std::uint64_t seed) {
  std::map<std::string, ParameterSpec> specs;
  for (ParameterSpec& spec : parameter_specs(compilation_.options().model)) {
    specs.emplace(spec.name, spec);
  }
  for_each_member([&](const Unit& unit, const UnitMember& member) {
    std::vector<float> values(static_cast<std::size_t>(member.elements));
    sw::initialize(specs.at(parameter(member).name), seed, member.box, values);
    set_weights(unit, member, values);
  });
}

void Session::load_model_folder(const std::filesystem::path& path) {
  const ModelFolder folder(path);
  const WeightMatch match =
      match_weights(compilation_.options().model, found_tensors(folder), path.string());
  check_tied_copies(folder, match);
  std::map<std::string, ParameterSpec> specs;
  for (const ParameterSpec& spec : match.parameters) {
    specs.emplace(spec.name, spec);
  }
  for_each_member([&](const Unit& unit, const UnitMember& member) {
    const ParameterSpec& spec = specs.at(parameter(member).name);
    const TensorView& tensor = folder.tensors().at(spec.stored.tensor);
    std::vector<float> values(static_cast<std::size_t>(member.elements));
    Runs runs(spec.shape, {member.box, {0, member.elements}});
    while (const auto run = runs.next()) {
      for_each_run(spec.stored, {run->whole, run->whole + run->count},
                   [&](const StoredRun& stored) {
                     read_floats(tensor, stored.tensor, stored.count,
                                 values.data() + run->local + (stored.parameter - run->whole));
                   });
    }
    set_weights(unit, member, values);
  });
}

void Session::load_checkpoint(const CheckpointReader& reader) {
  std::vector<StateTensor> expected;
  for_each_member([&](const Unit& unit, const UnitMember& member) {
    const Value& value = parameter(member);
    expected.push_back({value.name, "weight",
                        unit.frozen ? state_.options.precision : DType::Float32, value.shape});
    for (const auto& [name, buffer] : moments(unit)) {
      expected.push_back({value.name, name, DType::Float32, value.shape});
    }
  });
  reader.require(expected);
  for_each_member([&](const Unit& unit, const UnitMember& member) {
    const Value& value = parameter(member);
    const auto read = [&](const char* state, const Range& elements, DType dtype, std::byte* out) {
      reader.read(value.name, state, {member.box, elements},
                  std::span(out, static_cast<std::size_t>(elements.size() * size_of(dtype))));
    };
    const Range all{0, member.elements};
    if (unit.frozen) {
      read("weight", all, state_.options.precision,
           address(state_.weights(unit, member, {member.elements})));
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(member.elements));
    read("weight", all, DType::Float32, reinterpret_cast<std::byte*>(values.data()));
    set_weights(unit, member, values);
    const Range mine = state_.optimizer_range(unit);
    const Range held{std::max(mine.begin, member.offset) - member.offset,
                     std::min(mine.end, member.offset + member.elements) - member.offset};
    if (held.begin < held.end) {
      for (const auto& [name, buffer] : moments(unit)) {
        read(name, held, DType::Float32,
             reinterpret_cast<std::byte*>(floats(buffer, held.begin + member.offset - mine.begin)));
      }
    }
  });
}

}  // namespace sw
