#include "model/model.hpp"

#include <utility>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/forward.hpp"

namespace sw {
namespace {

void check_sizes(const ModelConfig& config, std::int64_t micro_batch, std::int64_t sequence) {
  if (micro_batch < 1 || sequence < 1) {
    throw ConfigError(fmt::format(
        "model: a micro-batch of {} sequences of {} tokens is empty; both must be at least 1",
        micro_batch, sequence));
  }
  if (config.family == Family::Gpt2 && sequence > config.max_positions) {
    throw ConfigError(
        fmt::format("model: data.sequence_length = {} is more than n_positions = {}, the rows of "
                    "the model's position table; use at most {}",
                    sequence, config.max_positions, config.max_positions));
  }
  if (config.attention_dropout > 0) {
    throw ConfigError(fmt::format(
        "model: {} = {} is not in this version, because attention stores no probabilities that "
        "could be dropped; set it to 0",
        config.family == Family::Gpt2 ? "attn_pdrop" : "attention_dropout",
        config.attention_dropout));
  }
}

}  // namespace

ModelGraph build(const ModelConfig& config, std::int64_t micro_batch, std::int64_t sequence,
                 DType activation) {
  check_sizes(config, micro_batch, sequence);
  Forward forward(config, micro_batch, sequence, activation);
  const ValueId logits = family_of(config.model_type, "model").forward(forward);
  forward.set_layer(-1);
  forward.model().logits = logits;
  append_loss(forward.model());
  return std::move(forward.model());
}

}  // namespace sw
