#include "checkpoint/model_weights.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/elements.hpp"
#include "checkpoint/writer.hpp"

namespace sw {
namespace {

namespace fs = std::filesystem;

std::vector<StoredTensor> names_and_shapes(const TensorViews& views) {
  std::vector<StoredTensor> found;
  for (const auto& [name, view] : views) {
    found.push_back({name, view.shape});
  }
  return found;
}

std::span<const std::byte> elements_of(std::span<const std::byte> bytes, DType dtype,
                                       std::int64_t begin, std::int64_t count) {
  const std::int64_t size = size_of(dtype);
  return bytes.subspan(static_cast<std::size_t>(begin * size),
                       static_cast<std::size_t>(count * size));
}

/// What a stored tensor, or part of it, holds: elements of a parameter.
struct Held {
  const StoredPart* part = nullptr;
  const std::string* parameter = nullptr;
  Range elements;
};

/// The parts by the tensor that they belong to.
std::map<std::string, std::vector<Held>> by_tensor(const std::vector<ParameterSpec>& specs) {
  std::map<std::string, std::vector<Held>> held;
  for (const ParameterSpec& spec : specs) {
    std::int64_t begin = 0;
    for (const StoredPart& part : spec.stored) {
      const std::int64_t end = begin + stored_elements(part);
      held[part.tensor].push_back({&part, &spec.name, {begin, end}});
      begin = end;
    }
  }
  return held;
}

/// Elements of a parameter's weight in a checkpoint.
std::vector<float> weight_of(const CheckpointReader& checkpoint, const StateTensor& tensor,
                             Range elements) {
  std::vector<std::byte> stored(static_cast<std::size_t>(elements.size() * size_of(tensor.dtype)));
  checkpoint.read(tensor.tensor, kWeightState, {whole_range(tensor.shape).box, elements}, stored);
  std::vector<float> values(static_cast<std::size_t>(elements.size()));
  to_float32(tensor.dtype, stored, values);
  return values;
}

/// Puts the elements of a part where its tensor keeps them.
void place(const StoredPart& part, std::span<const float> values, DType stored,
           std::span<std::byte> tensor) {
  const std::int64_t size = size_of(stored);
  for_each_run({part}, {0, std::ssize(values)}, [&](const StoredRun& run) {
    from_float32(values.subspan(static_cast<std::size_t>(run.parameter),
                                static_cast<std::size_t>(run.count)),
                 stored,
                 tensor.subspan(static_cast<std::size_t>(run.tensor * size),
                                static_cast<std::size_t>(run.count * size)));
  });
}

/// The weights of a checkpoint by parameter, refused unless they are exactly the model's.
std::map<std::string, StateTensor> weights_of(const CheckpointReader& checkpoint,
                                              const std::vector<ParameterSpec>& specs) {
  std::map<std::string, StateTensor> weights;
  for (const StateTensor& tensor : checkpoint.tensors()) {
    if (tensor.state == kWeightState) {
      weights.emplace(tensor.tensor, tensor);
    }
  }
  std::vector<std::string> faults;
  for (const ParameterSpec& spec : specs) {
    const auto found = weights.find(spec.name);
    if (found == weights.end()) {
      faults.push_back(fmt::format("'{}' is missing", spec.name));
    } else if (found->second.shape != spec.shape) {
      faults.push_back(fmt::format("'{}' is {} and should be {}", spec.name,
                                   to_text(found->second.shape), to_text(spec.shape)));
    }
  }
  for (const auto& [name, tensor] : weights) {
    if (std::ranges::find(specs, name, &ParameterSpec::name) == specs.end()) {
      faults.push_back(fmt::format("'{}' is not part of the model", name));
    }
  }
  if (!faults.empty()) {
    throw DataError(fmt::format("{}: its weights are not those of the model it names: {}",
                                checkpoint.path().string(), fmt::join(faults, "; ")));
  }
  return weights;
}

}  // namespace

ModelWeights::ModelWeights(const ModelConfig& config, const fs::path& folder,
                           const std::function<void(const std::string&)>& note)
    : folder_(folder),
      match_(match_weights(config, names_and_shapes(folder_.tensors()), folder.string())) {
  for (const ParameterSpec& spec : match_.parameters) {
    by_name_.emplace(spec.name, &spec);
  }
  for (const std::string& name : match_.ignored) {
    note(
        fmt::format("{}: tensor '{}' is ignored: it holds nothing learned", folder.string(), name));
  }
  check_tied_copies();
}

void ModelWeights::check_tied_copies() const {
  for (const TiedCopy& copy : match_.tied_copies) {
    const std::string& original = by_name_.at(copy.parameter)->stored.front().tensor;
    const TensorView& a = folder_.tensors().at(copy.tensor);
    const TensorView& b = folder_.tensors().at(original);
    if (a.dtype != b.dtype || !std::ranges::equal(a.bytes, b.bytes)) {
      throw DataError(
          fmt::format("{}: config.json ties '{}' to '{}', but their values differ; set "
                      "tie_word_embeddings to false to train both",
                      folder_.path().string(), copy.tensor, original));
    }
  }
}

void ModelWeights::read(std::string_view parameter, const PieceRange& range,
                        std::span<float> values) const {
  const auto found = by_name_.find(parameter);
  SW_CHECK(found != by_name_.end(), "the model has no parameter '{}'", parameter);
  const ParameterSpec& spec = *found->second;
  const auto fault = misfit(range, spec.shape);
  SW_CHECK(!fault, "'{}', shape {}: {}", parameter, to_text(spec.shape), fault.value_or(""));
  SW_CHECK(std::ssize(values) == range.elements.size(), "'{}': {} values for {} elements",
           parameter, values.size(), range.elements.size());
  Runs runs(spec.shape, range);
  while (const std::optional<Run> run = runs.next()) {
    for_each_run(spec.stored, {run->whole, run->whole + run->count}, [&](const StoredRun& stored) {
      const TensorView& view = folder_.tensors().at(spec.stored[stored.part].tensor);
      to_float32(
          view.dtype, elements_of(view.bytes, view.dtype, stored.tensor, stored.count),
          values.subspan(static_cast<std::size_t>(run->local + stored.parameter - run->whole),
                         static_cast<std::size_t>(stored.count)));
    });
  }
}

ModelConfig model_config_of(const CheckpointReader& checkpoint) {
  const Json& extra = checkpoint.state().extra;
  const auto config = extra.is_object() ? extra.find(kModelConfigKey) : extra.end();
  if (config == extra.end()) {
    throw DataError(fmt::format("{}: does not say which model it is ('{}' is missing)",
                                checkpoint.path().string(), kModelConfigKey));
  }
  ModelConfig model = config_from_json(config->dump(), checkpoint.path().string());
  model.balance_bias = extra.value(std::string(kBalanceBiasKey), 0.0);
  return model;
}

void export_model(Files& files, const CheckpointReader& checkpoint, DType stored,
                  const fs::path& folder) {
  const ModelConfig config = model_config_of(checkpoint);
  if (config.balance_bias > 0) {
    throw ConfigError(fmt::format(
        "{}: its routers choose with biases (model.balance_bias), which a Hugging Face {} has not; "
        "it would choose other experts, so this version does not write one",
        checkpoint.path().string(), config.model_type));
  }
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  const std::map<std::string, StateTensor> weights = weights_of(checkpoint, specs);
  std::vector<TensorDeclaration> declared;
  for (const StoredTensor& tensor : stored_tensors(config)) {
    declared.push_back({tensor.name, stored, tensor.shape});
  }
  ModelFolderWriter writer(files, folder, to_json(config, stored), declared);
  const std::map<std::string, std::vector<Held>> parts = by_tensor(specs);
  for (const TensorDeclaration& tensor : declared) {
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(elements(tensor.shape) * size_of(stored)));
    for (const Held& held : parts.at(tensor.name)) {
      place(*held.part, weight_of(checkpoint, weights.at(*held.parameter), held.elements), stored,
            bytes);
    }
    writer.write(tensor.name, bytes);
  }
  writer.finish();
}

fs::path import_model(Files& files, const ModelConfig& config, const fs::path& model_folder,
                      const fs::path& folder, const std::function<void(const std::string&)>& note) {
  const ModelWeights weights(config, model_folder, note);
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_empty(folder, error)) {
    throw ConfigError(
        fmt::format("{}: exists and is not empty; name a new folder", folder.string()));
  }
  std::vector<std::vector<float>> values;
  std::vector<Piece> pieces;
  for (const ParameterSpec& spec : weights.parameters()) {
    const PieceRange all = whole_range(spec.shape);
    auto& parameter = values.emplace_back(static_cast<std::size_t>(all.elements.end));
    weights.read(spec.name, all, parameter);
    pieces.push_back({spec.name, std::string(kWeightState), DType::Float32, spec.shape, all,
                      std::as_bytes(std::span(parameter)).data()});
  }
  TrainingState state;
  state.extra[std::string(kModelConfigKey)] =
      parse_json(to_json(config, DType::Float32), "config.json");
  CheckpointWriter writer(
      files, {.folder = folder, .run = "import", .session = "import", .background = false});
  writer.save(state, pieces);
  return folder / "step-000000";
}

}  // namespace sw
