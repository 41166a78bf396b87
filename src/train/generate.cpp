#include "train/generate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "checkpoint/model_weights.hpp"
#include "checkpoint/reader.hpp"

namespace sw {
namespace {

CompileOptions options_for(const ModelConfig& config, std::int64_t length) {
  CompileOptions options;
  options.model = config;
  options.parallel.layout = {};
  options.parallel.zero = 0;
  options.sequence = length;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.train = false;
  return options;
}

LoadedModel from_checkpoint(const std::filesystem::path& path) {
  const auto reader = std::make_shared<CheckpointReader>(path);
  LoadedModel model;
  model.config = model_config_of(*reader);
  const Json& extra = reader->state().extra;
  model.tokenizer = extra.value("tokenizer", std::string("bytes"));
  model.folder = path;
  std::map<std::string, DType> types;
  for (const StateTensor& tensor : reader->tensors()) {
    if (tensor.state == kWeightState) {
      types[tensor.tensor] = tensor.dtype;
    }
  }
  model.read = [reader, types](const std::string& parameter, const PieceRange& range,
                               std::span<float> values) {
    const auto type = types.find(parameter);
    if (type == types.end()) {
      throw DataError(fmt::format("{}: holds no weight {}", reader->path().string(), parameter));
    }
    if (type->second == DType::Float32) {
      reader->read(parameter, kWeightState, range, std::as_writable_bytes(values));
      return;
    }
    std::vector<BFloat16> stored(values.size());
    reader->read(parameter, kWeightState, range, std::as_writable_bytes(std::span(stored)));
    std::transform(stored.begin(), stored.end(), values.begin(),
                   [](BFloat16 value) { return to_float(value); });
  };
  return model;
}

LoadedModel from_model_folder(const std::filesystem::path& path) {
  LoadedModel model;
  ModelOptions options;
  options.path = path.string();
  model.config = model_config(options);
  const auto weights = std::make_shared<ModelWeights>(model.config, path,
                                                      [](const std::string& text) { warn(text); });
  model.tokenizer =
      is_there(path / "tokenizer.json") ? (path / "tokenizer.json").string() : "bytes";
  model.folder = path;
  model.read = [weights](const std::string& parameter, const PieceRange& range,
                         std::span<float> values) { weights->read(parameter, range, values); };
  return model;
}

std::int32_t pick(std::span<const float> logits, const SamplingOptions& options,
                  std::uint64_t position) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) {
    return static_cast<std::int32_t>(best - logits.begin());
  }
  std::vector<double> cumulative;
  double total = 0;
  for (const float logit : logits) {
    total += std::exp((static_cast<double>(logit) - *best) / options.temperature);
    cumulative.push_back(total);
  }
  const auto words = philox(options.seed, 0, position);
  const double uniform = (static_cast<double>(words[0]) + 0.5) / 4294967296.0;
  const auto found = std::lower_bound(cumulative.begin(), cumulative.end(), uniform * total);
  return static_cast<std::int32_t>(std::min(found, cumulative.end() - 1) - cumulative.begin());
}

}  // namespace

Generator::Generator(const ModelConfig& config, std::int64_t length, const ReadWeight& read)
    : compilation_(options_for(config, length)),
      generation_(compilation_.generation(0)),
      worlds_(make_local_worlds(1, {})) {
  const Program* programs[] = {&generation_.program};
  memory_ = std::make_unique<RankMemory>(*worlds_.front(), programs);
  team_ = std::make_unique<Team>(compilation_.options().threads);
  const StatePlan state = compilation_.state(0);
  for (std::size_t i = 0; i < state.buffers.size(); ++i) {
    const Operand whole{static_cast<BufferId>(i), 0, DType::UInt8, {state.buffers[i].bytes}};
    std::memset(memory_->address(generation_.program, whole), 0,
                static_cast<std::size_t>(state.buffers[i].bytes));
  }
  for (const Unit& unit : state.units) {
    for (const UnitMember& member : unit.members) {
      auto* data = reinterpret_cast<float*>(
          memory_->address(generation_.program,
                           state.weights(unit, {member.offset, member.offset + member.elements})));
      read(compilation_.model().graph.value(member.parameter).name,
           {member.box, {0, member.elements}},
           std::span(data, static_cast<std::size_t>(member.elements)));
    }
  }
  for (const Value* bias : router_biases(compilation_.model().graph)) {
    auto* data = reinterpret_cast<float*>(
        memory_->address(generation_.program, state.router_bias_of(*bias)));
    read(bias->name, whole_range(bias->shape),
         std::span(data, static_cast<std::size_t>(elements(bias->shape))));
  }
  executor_ = std::make_unique<Executor>(
      generation_.program, *worlds_.front(), *memory_, *team_,
      ExecutorOptions{Algorithm::Direct, compilation_.options().threads, true});
}

Generator::~Generator() = default;

std::vector<float> Generator::logits(std::span<const std::int32_t> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  SW_CHECK(count >= 1 && count <= length(), "{} tokens for a length of {}", count, length());
  const BatchSlot& slot = generation_.program.batches.front();
  const auto write = [&](const Operand& operand, const auto& value_at) {
    auto* out = reinterpret_cast<std::int32_t*>(memory_->address(generation_.program, operand));
    for (std::int64_t i = 0; i < length(); ++i) {
      out[i] = value_at(i);
    }
  };
  // What stands behind the text is another document, which nothing looks at.
  write(slot.tokens,
        [&](std::int64_t i) { return i < count ? tokens[static_cast<std::size_t>(i)] : 0; });
  write(slot.labels, [](std::int64_t) { return -1; });
  write(slot.positions,
        [&](std::int64_t i) { return static_cast<std::int32_t>(i < count ? i : i - count); });
  write(slot.documents, [&](std::int64_t i) { return i < count ? 0 : 1; });
  executor_->run();
  const auto* data =
      reinterpret_cast<const float*>(memory_->address(generation_.program, generation_.logits));
  return {data, data + count * vocabulary()};
}

LoadedModel load_model(const std::filesystem::path& path) {
  if (!is_there(path)) {
    throw ConfigError(fmt::format("{}: no such checkpoint or model folder", path.string()));
  }
  if (is_there(path / "config.json")) {
    return from_model_folder(path);
  }
  if (is_there(path / "checkpoint.json")) {
    return from_checkpoint(path);
  }
  const std::filesystem::path folder = is_there(path / "checkpoints") ? path / "checkpoints" : path;
  const auto newest = find_newest(folder, [](const std::string& text) { warn(text); });
  if (!newest.has_value()) {
    throw ConfigError(fmt::format(
        "{}: neither a checkpoint that verifies nor a Hugging Face folder (config.json)",
        path.string()));
  }
  return from_checkpoint(*newest);
}

std::vector<std::int32_t> sample(Generator& generator, std::vector<std::int32_t> text,
                                 const SamplingOptions& options) {
  const std::size_t prompt = text.size();
  SW_CHECK(prompt > 0, "an empty prompt");
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const std::size_t seen = std::min(text.size(), static_cast<std::size_t>(generator.length()));
    const std::vector<float> logits = generator.logits(std::span(text).last(seen));
    const std::span<const float> last =
        std::span(logits).last(static_cast<std::size_t>(generator.vocabulary()));
    text.push_back(pick(last, options, text.size()));
    if (text.back() == options.stop) {
      break;
    }
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt), text.end()};
}

}  // namespace sw
