#include "cli/keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/edit_distance.hpp"

namespace sw {
namespace {

template <typename Enum>
Field choice(Enum& value) {
  static_assert(sizeof(Enum) == 1);
  return ChoiceField{reinterpret_cast<std::uint8_t*>(&value)};
}

#define SW_FIELD(expression) [](RunOptions& o) -> Field { return &o.expression; }
#define SW_CHOICE(expression) [](RunOptions& o) -> Field { return choice(o.expression); }

constexpr Bounds kRanks{1, 1 << 20};
constexpr Bounds kPositive{1};

std::vector<Key> model_and_data_keys() {
  return {
      {"model", "preset", SW_FIELD(model.preset), "A built-in model."},
      {"model", "path", SW_FIELD(model.path), "A Hugging Face model folder."},
      {"model", "balance_loss", SW_FIELD(model.balance_loss),
       "Coefficient of the loss that keeps experts equally loaded; 0 = none."},
      {"model", "z_loss", SW_FIELD(model.z_loss),
       "Coefficient of the loss that keeps the logits of routers small; 0 = none."},
      {"model", "balance_bias", SW_FIELD(model.balance_bias),
       "How far an update moves the biases that balance the choice of experts; 0 = no biases."},
      {"model", "expert_capacity", SW_FIELD(model.expert_capacity),
       "Slots that an expert takes of a rank's in a micro-batch of training, as a multiple of an "
       "even load; more are dropped and counted, and the result depends on the layout. 0 = none "
       "dropped."},
      {"model", "config", [](RunOptions& o) -> Field { return TableField{&o.model.config}; },
       "The keys of a Hugging Face config.json. Exactly one of `preset`, `path` and this table."},

      {"data", "train", SW_FIELD(data.train),
       "Files or patterns: text, JSONL (`text`, or `prompt` and `completion`) or a token set."},
      {"data", "validation", SW_FIELD(data.validation), "Held-out files."},
      {"data", "validation_every", SW_FIELD(data.validation_every),
       "Steps between validations; 0 = never."},
      {"data", "tokenizer", SW_FIELD(data.tokenizer),
       "`bytes` (ids 0-255, BOS 256, EOS 257, PAD 258) or a tokenizer.json."},
      {"data",
       "sequence_length",
       SW_FIELD(data.sequence_length),
       "Tokens of a sample.",
       {},
       {1, 1 << 24}},
      {"data",
       "documents",
       SW_CHOICE(data.documents),
       "`isolated`: masked from each other; `joined`: attention crosses documents.",
       {"isolated", "joined"}},
      {"data",
       "last_window",
       SW_CHOICE(data.last_window),
       "The last, incomplete window of an epoch: filled up with masked rows, or dropped.",
       {"pad", "drop"}},
      {"data",
       "balance",
       SW_CHOICE(data.balance),
       "Which samples of a window go to which rank and micro-batch: as they come, or so that all "
       "have "
       "about as many valid tokens, or as much attention to do.",
       {"none", "tokens", "attention"}},
      {"data",
       "bad_lines",
       SW_CHOICE(data.bad_lines),
       "A line that is no valid UTF-8 or JSON: stop, or skip and count.",
       {"stop", "skip"}},
      {"data", "max_bad_lines", SW_FIELD(data.max_bad_lines),
       "With `skip`: more in one corpus are refused."},
      {"data", "add_bos", SW_FIELD(data.add_bos), "BOS before every document."},
      {"data", "add_eos", SW_FIELD(data.add_eos), "EOS after every document."},
      {"data", "log_samples", SW_FIELD(data.log_samples),
       "samples.jsonl in the run folder: the sample ids of every step."},
  };
}

std::vector<Key> train_and_optimizer_keys() {
  return {
      {"train", "steps", SW_FIELD(train.steps), "Optimizer updates; or set `epochs`."},
      {"train", "epochs", SW_FIELD(train.epochs), "Passes over the training samples."},
      {"train",
       "global_batch",
       SW_FIELD(train.global_batch),
       "Sequences per step; must equal micro_batch x dp x accumulation for a whole accumulation.",
       {},
       kPositive},
      {"train",
       "micro_batch",
       SW_FIELD(train.micro_batch),
       "Sequences per micro-batch and data-parallel rank.",
       {},
       kPositive},
      {"train", "head_chunk", SW_FIELD(train.head_chunk),
       "Most tokens of a rank's micro-batch whose logits exist at a time, a multiple of 16; 0 = "
       "all."},
      {"train",
       "precision",
       SW_FIELD(train.precision),
       "Of weights in use and activations; masters are float32.",
       {"float32", "bfloat16", "float16"}},
      {"train",
       "gradient_precision",
       SW_FIELD(train.gradient_precision),
       "Of gradient accumulators and of gradients on the wire.",
       {"float32", "bfloat16"}},
      {"train", "seed", SW_FIELD(train.seed), "Of initial weights, sample order and dropout."},
      {"train", "freeze", SW_FIELD(train.freeze), "Patterns of weight names that do not train."},
      {"train", "max_skipped", SW_FIELD(train.max_skipped),
       "Consecutive skipped steps before the run stops with status 1."},

      {"optimizer", "name", SW_CHOICE(optimizer.name), "The update rule.", {"adamw", "sgd"}},
      {"optimizer", "learning_rate", SW_FIELD(optimizer.learning_rate), "The peak."},
      {"optimizer",
       "schedule",
       SW_CHOICE(optimizer.schedule),
       "After the warm-up.",
       {"constant", "linear", "cosine"}},
      {"optimizer", "warmup_steps", SW_FIELD(optimizer.warmup_steps),
       "Applied updates over which the rate rises linearly to its peak."},
      {"optimizer", "decay_steps", SW_FIELD(optimizer.decay_steps),
       "Applied updates, warm-up included, until the schedule ends; 0 = the whole run."},
      {"optimizer", "minimum_learning_rate", SW_FIELD(optimizer.minimum_learning_rate),
       "Where `linear` and `cosine` end."},
      {"optimizer", "gradient_clip", SW_FIELD(optimizer.gradient_clip),
       "Largest global gradient norm; 0 = no clipping."},
      {"optimizer",
       "betas",
       SW_FIELD(optimizer.betas),
       "adamw: decay of the two moments.",
       {},
       {0, 1, true}},
      {"optimizer", "epsilon", SW_FIELD(optimizer.epsilon), "adamw: added to the denominator."},
      {"optimizer", "weight_decay", SW_FIELD(optimizer.weight_decay),
       "adamw: decoupled; sgd: added to the gradient."},
      {"optimizer", "no_decay", SW_FIELD(optimizer.no_decay),
       "Patterns of weight names without weight decay."},
      {"optimizer", "momentum", SW_FIELD(optimizer.momentum), "sgd.", {}, {0, 1, true}},
      {"optimizer", "loss_scale", SW_FIELD(optimizer.loss_scale),
       "float16: a fixed loss scale; 0 = dynamic."},
  };
}

std::vector<Key> parallel_keys() {
  return {
      {"parallel",
       "dp",
       SW_FIELD(parallel.layout.dp),
       "Data-parallel ranks; 0 = what is left of the world after the others.",
       {},
       {0, 1 << 20}},
      {"parallel", "tp", SW_FIELD(parallel.layout.tp), "Tensor-parallel ranks.", {}, kRanks},
      {"parallel", "pp", SW_FIELD(parallel.layout.pp), "Pipeline stages.", {}, kRanks},
      {"parallel", "cp", SW_FIELD(parallel.layout.cp), "Context-parallel ranks.", {}, kRanks},
      {"parallel",
       "ep",
       SW_FIELD(parallel.layout.ep),
       "Expert-parallel ranks: the inner part of dp x cp.",
       {},
       kRanks},
      {"parallel", "sequence_parallel", SW_FIELD(parallel.sequence_parallel),
       "With tp > 1: the residual stream is split along the sequence."},
      {"parallel",
       "zero",
       SW_FIELD(parallel.zero),
       "ZeRO level: what dp x cp ranks share out. 1 optimizer state, 2 + gradients, 3 + "
       "parameters.",
       {},
       {0, 3}},
      {"parallel",
       "zero_group",
       SW_FIELD(parallel.zero_group),
       "Ranks a level shares over (HSDP); 0 = all of dp x cp.",
       {},
       {0, 1 << 20}},
      {"parallel",
       "reduce_gradients",
       SW_CHOICE(parallel.reduce_gradients),
       "How often gradients cross the wire; by default `window` for levels 0 and 1, `micro_batch` "
       "for 2 and 3.",
       {"window", "micro_batch"}},
      {"parallel",
       "prefetch",
       SW_FIELD(parallel.prefetch),
       "Level 3: units gathered ahead.",
       {},
       {0, 1024}},
      {"parallel", "reshard_after_forward", SW_FIELD(parallel.reshard_after_forward),
       "Level 3: free gathered parameters after the forward and gather them again for the "
       "backward."},
      {"parallel",
       "bucket_mib",
       SW_FIELD(parallel.bucket_mib),
       "Largest gradient bucket, MiB.",
       {},
       {0.001, 1 << 20}},
      {"parallel", "overlap", SW_FIELD(parallel.overlap),
       "Gradient communication runs beside the backward."},
      {"parallel", "keep_gathered", SW_FIELD(parallel.keep_gathered),
       "Keep gathered copies for the backward: fewer bytes, more memory."},
      {"parallel",
       "context",
       SW_CHOICE(parallel.context),
       "With cp > 1: how attention sees all tokens. Keys and values go round, or are gathered; or "
       "heads are exchanged for tokens (Ulysses).",
       {"ring", "gather", "all_to_all"}},
      {"parallel", "gather_before_dispatch", SW_FIELD(parallel.gather_before_dispatch),
       "With ep and tp > 1 and sequence_parallel, and then needed: tokens are gathered over tp "
       "before they go to their experts."},
      {"parallel",
       "expert_buffer",
       SW_FIELD(parallel.expert_buffer),
       "With ep: slots (a token, and an expert that it chose) that a rank has room for at once, as "
       "a "
       "multiple of those that come if all experts are chosen alike. More come in further rounds.",
       {},
       {1, 1e6}},
      {"parallel",
       "pipeline",
       SW_CHOICE(parallel.pipeline),
       "The pipeline schedule.",
       {"gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v", "pipedream",
        "pipedream_2bw"}},
      {"parallel",
       "virtual_stages",
       SW_FIELD(parallel.virtual_stages),
       "Chunks per stage.",
       {},
       {1, 1024}},
      {"parallel", "stage_layers", SW_FIELD(parallel.stage_layers),
       "Layers of each stage; [] = balanced by cost."},
      {"parallel", "pipeline_file", SW_FIELD(parallel.pipeline_file), "A schedule as text."},
      {"parallel",
       "recompute",
       SW_CHOICE(parallel.recompute),
       "What the backward computes again instead of keeping.",
       {"none", "selective", "full"}},
      {"parallel",
       "offload",
       SW_CHOICE(parallel.offload),
       "What lives on the host: optimizer state, which is updated there, or weights too.",
       {"none", "optimizer", "parameters"}},
      {"parallel",
       "offload_gb_per_s",
       SW_FIELD(parallel.offload_gb_per_s),
       "Speed of the link to the host, each way, GB/s: copies wait until that time has passed. 0 = "
       "as "
       "fast as memory.",
       {},
       {0, 1e6}},
      {"parallel",
       "communicator",
       SW_CHOICE(parallel.communicator),
       "`local`: ranks are threads; `shm`: processes of one host.",
       {"local", "shm", "mpi", "nccl"}},
      {"parallel",
       "algorithm",
       SW_CHOICE(parallel.algorithm),
       "`direct` adds in rank order; `ring` does not, so its bits depend on the slices.",
       {"direct", "ring"}},
      {"parallel",
       "threads_per_rank",
       SW_FIELD(parallel.threads_per_rank),
       "0 = cores / local ranks, at least 1.",
       {},
       {0, 4096}},
      {"parallel",
       "deadline_s",
       SW_FIELD(parallel.deadline_s),
       "Seconds without progress of a rank before the others give it up.",
       {},
       {0.1, 1e6}},
  };
}

std::vector<Key> all_keys() {
  std::vector<Key> keys = model_and_data_keys();
  for (auto part : {train_and_optimizer_keys(), parallel_keys()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  keys.push_back({"checkpoint", "every", SW_FIELD(checkpoint.every), "Steps; 0 = none."});
  keys.push_back({"checkpoint",
                  "keep",
                  SW_FIELD(checkpoint.keep),
                  "Complete checkpoints kept, the newest.",
                  {},
                  kPositive});
  keys.push_back(
      {"checkpoint", "background", SW_FIELD(checkpoint.background), "Write beside training."});
  return keys;
}

#undef SW_FIELD
#undef SW_CHOICE

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// Shortest text that reads back as the same double, and as a TOML float.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) {
    text += ".0";
  }
  return text;
}

}  // namespace

std::string Key::path() const { return fmt::format("{}.{}", section, name); }

std::string Key::type() const {
  RunOptions options;
  return std::visit(
      Overloaded{[](bool*) { return "boolean"; }, [](int*) { return "integer"; },
                 [](std::int64_t*) { return "integer"; }, [](std::uint64_t*) { return "integer"; },
                 [](double*) { return "number"; },
                 [](std::array<double, 2>*) { return "list of two numbers"; },
                 [](std::string*) { return "string"; },
                 [](std::vector<std::string>*) { return "list of strings"; },
                 [](std::vector<int>*) { return "list of integers"; },
                 [](ChoiceField) { return "string"; }, [](DType*) { return "string"; },
                 [](TableField) { return "table"; }},
      field(options));
}

std::span<const Key> run_file_keys() {
  static const std::vector<Key> kKeys = all_keys();
  return kKeys;
}

const Key* find_key(std::string_view path) {
  const auto keys = run_file_keys();
  const auto found = std::ranges::find_if(keys, [&](const Key& key) { return key.path() == path; });
  return found == keys.end() ? nullptr : &*found;
}

std::string nearest_key(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('.') + 1);
  std::string nearest;
  std::int64_t best = 1 << 30;
  for (const Key& key : run_file_keys()) {
    // The same word in the wrong section is nearer than any other word.
    const std::int64_t distance =
        std::min(edit_distance(path, key.path()), 2 * edit_distance(name, key.name) + 1);
    if (distance < best) {
      best = distance;
      nearest = key.path();
    }
  }
  return nearest;
}

std::string to_toml(const Key& key, RunOptions& options) {
  return std::visit(
      Overloaded{
          [](bool* v) -> std::string { return *v ? "true" : "false"; },
          [](int* v) { return fmt::format("{}", *v); },
          [](std::int64_t* v) { return fmt::format("{}", *v); },
          [](std::uint64_t* v) { return fmt::format("{}", *v); },
          [](double* v) { return float_text(*v); },
          [](std::array<double, 2>* v) {
            return fmt::format("[{}, {}]", float_text((*v)[0]), float_text((*v)[1]));
          },
          [](std::string* v) { return in_quotes(*v); },
          [](std::vector<std::string>* v) {
            std::vector<std::string> parts;
            std::ranges::transform(*v, std::back_inserter(parts), in_quotes);
            return fmt::format("[{}]", fmt::join(parts, ", "));
          },
          [](std::vector<int>* v) { return fmt::format("[{}]", fmt::join(*v, ", ")); },
          [&](ChoiceField v) { return in_quotes(key.choices.at(*v.value)); },
          [](DType* v) { return in_quotes(to_text(*v)); },
          [](TableField v) { return *v.json; },
      },
      key.field(options));
}

}  // namespace sw
