#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/pieces.hpp"
#include "lower/compile.hpp"
#include "runtime/executor.hpp"

/// Text from a trained model, on one rank: the forward of a fixed length, once per token (no cache
/// of keys and values yet).
namespace sw {

class Generator {
 public:
  /// Gives elements of a parameter as float32.
  using ReadWeight = std::function<void(const std::string& parameter, const PieceRange& range,
                                        std::span<float> values)>;

  /// A model that looks at up to `length` tokens.
  Generator(const ModelConfig& config, std::int64_t length, const ReadWeight& read);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// Logits [tokens, vocabulary] of each position; at most `length` tokens.
  [[nodiscard]] std::vector<float> logits(std::span<const std::int32_t> tokens);
  [[nodiscard]] std::int64_t length() const { return compilation_.options().sequence; }
  [[nodiscard]] std::int64_t vocabulary() const { return compilation_.options().model.vocabulary; }

 private:
  Compilation compilation_;
  GenerationProgram generation_;
  std::vector<std::unique_ptr<World>> worlds_;
  std::unique_ptr<RankMemory> memory_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Executor> executor_;
};

/// A checkpoint, a folder of them (the newest that verifies), a run folder, or a Hugging Face
/// folder.
struct LoadedModel {
  ModelConfig config;
  std::string tokenizer = "bytes";
  std::filesystem::path folder;  ///< what a relative tokenizer is relative to
  Generator::ReadWeight read;
};
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& path);

struct SamplingOptions {
  std::int64_t tokens = 64;
  double temperature = 1;  ///< 0: the likeliest token
  std::uint64_t seed = 1;
  std::int64_t stop = -1;  ///< token that ends the text; -1: none
};

/// Goes on from `prompt` (at least one token); looks at the last `length` tokens. Random numbers
/// are a function of seed and position.
[[nodiscard]] std::vector<std::int32_t> sample(Generator& generator,
                                               std::vector<std::int32_t> prompt,
                                               const SamplingOptions& options);

}  // namespace sw
