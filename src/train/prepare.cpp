#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "base/random.hpp"
#include "checkpoint/model_weights.hpp"
#include "checkpoint/reader.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "train/account.hpp"
#include "train/session.hpp"
#include "train/trainer.hpp"

namespace sw {
namespace {

/// Different for every call on this host, and in practice everywhere.
std::string fresh_id() {
  const auto now =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return fmt::format("{:016x}", mix(now ^ mix(static_cast<std::uint64_t>(::getpid()))));
}

void note(const std::string& text) { fmt::print(stderr, "shardwright: {}\n", text); }

/// What of the files does not train, so that nobody has to guess.
void note_left_out(const char* key, const CorpusCounts& counts) {
  if (counts.empty_documents + counts.bad_lines > 0) {
    note(fmt::format("{}: {} empty documents and {} bad lines of {} files left out", key,
                     counts.empty_documents, counts.bad_lines, counts.files));
  }
  for (const std::string& line : counts.first_bad_lines) {
    note(line);
  }
}

void note_frozen(const Compilation& compilation) {
  const Graph& graph = compilation.model().graph;
  std::vector<std::string> names;
  for (const ValueId id : graph.parameters()) {
    if (graph.value(id).frozen) {
      names.push_back(graph.value(id).name);
    }
  }
  if (!names.empty()) {
    note(fmt::format("train.freeze: {} of {} weights do not train: {}", names.size(),
                     graph.parameters().size(), fmt::join(names, ", ")));
  }
}

bool holds_a_run(const std::filesystem::path& folder) {
  return is_there(folder / "run.toml") || is_there(folder / "metrics.jsonl") ||
         is_there(folder / "checkpoints");
}

/// The run that a folder holds, when its plan.json says: only its checkpoints are gone on from.
std::optional<std::string> run_of(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "plan.json";
  if (!is_there(path)) {
    return std::nullopt;
  }
  constexpr std::int64_t kLimit = std::int64_t{1} << 32;
  const Json plan = parse_json(read_whole_file(path, kLimit), path.string());
  return plan.contains("run") ? std::optional(plan.at("run").get<std::string>()) : std::nullopt;
}

/// A model folder that is not this model's, or damaged, is refused before ranks read it.
void check_model_folder(const RunOptions& options, const ModelConfig& config) {
  try {
    const ModelWeights weights(config, options.model.path, [](const std::string&) {});
  } catch (const DataError& error) {
    throw ConfigError(fmt::format("model.path: {}", error.what()));
  }
}

/// Other data means another order of samples: said, not refused, since going on with other data is
/// a thing people do.
void note_other_data(const CheckpointReader& reader, const Corpus& corpus) {
  const Json& extra = reader.state().extra;
  if (extra.contains(kDataFingerprintKey) &&
      extra.at(kDataFingerprintKey) != Json(corpus.fingerprint())) {
    note(fmt::format("data.train is not what {} was trained on: positions count in the new data",
                     reader.path().string()));
  }
}

/// Where to go on, if anywhere; names what was passed over. Returns the samples consumed so far.
std::int64_t find_start(TrainingPlan& plan, const Compilation& compilation, const Corpus& corpus) {
  const auto newest =
      find_newest(RunFolder{plan.run_folder}.checkpoints(), note, run_of(plan.run_folder));
  if (!newest.has_value()) {
    fmt::print(stderr, "shardwright: {} holds no checkpoint that verifies: starting from step 0\n",
               plan.run_folder.string());
    return 0;
  }
  const CheckpointReader reader(*newest);
  plan.checkpoint = newest->string();
  plan.run_id = reader.run();
  plan.first_step = reader.state().step;
  fmt::print(stderr, "shardwright: resuming from {} (step {})\n", plan.checkpoint, plan.first_step);
  if (reader.state().seed != plan.options.train.seed) {
    throw ConfigError(
        fmt::format("train.seed = {} but {} was trained with {}: the order of samples would "
                    "change; give the same seed",
                    plan.options.train.seed, plan.checkpoint, reader.state().seed));
  }
  try {
    reader.require(checkpoint_tensors(compilation));
  } catch (const DataError& error) {
    throw ConfigError(error.what());  // no rank has started
  }
  note_other_data(reader, corpus);
  return reader.state().consumed_samples;
}

}  // namespace

std::filesystem::path RunFolder::account_of(int rank) const {
  return path / fmt::format(".rank-{:05}.json", rank);
}

CompileOptions compile_options(const RunOptions& options) {
  CompileOptions compile;
  compile.model = model_config(options.model);
  compile.parallel = options.parallel;
  compile.optimizer = options.optimizer;
  compile.precision = options.train.precision;
  compile.gradient_precision = options.train.gradient_precision;
  compile.micro_batch = options.train.micro_batch;
  compile.accumulation = options.train.accumulation;
  compile.sequence = options.data.sequence_length;
  compile.head_chunk = options.train.head_chunk;
  compile.freeze = options.train.freeze;
  compile.threads = threads_per_rank(options.parallel);
  return compile;
}

TrainingPlan prepare_training(const RunOptions& options, const std::filesystem::path& run_folder,
                              bool resume, const std::filesystem::path& base) {
  if (holds_a_run(run_folder) && !resume) {
    throw ConfigError(fmt::format(
        "{} holds a run already; go on with --resume, or give another folder with --out",
        run_folder.string()));
  }
  TrainingPlan plan;
  plan.options = options;
  plan.run_folder = std::filesystem::absolute(run_folder);
  plan.session_id = fresh_id();
  plan.run_id = plan.session_id;
  const CompileOptions compile = compile_options(options);
  const Compilation compilation(compile);
  const Corpus corpus = Corpus::load(options.data, {.key = "data.train",
                                                    .patterns = options.data.train,
                                                    .base = base,
                                                    .vocabulary = compile.model.vocabulary});
  const Sampler sampler(corpus.samples(), options.train.global_batch, options.train.seed,
                        options.data.last_window);
  std::optional<Corpus> validation;
  if (!options.data.validation.empty()) {
    validation = Corpus::load(options.data, {.key = "data.validation",
                                             .patterns = options.data.validation,
                                             .base = base,
                                             .vocabulary = compile.model.vocabulary});
    note_left_out("data.validation", validation->counts());
  }
  note_left_out("data.train", corpus.counts());
  note_frozen(compilation);
  for (const std::string& warning : compilation.warnings()) {
    note(warning);
  }
  const std::int64_t consumed = resume ? find_start(plan, compilation, corpus) : 0;
  if (options.train.epochs > 0) {
    plan.options.train.steps =
        plan.first_step + sampler.windows_left(consumed, options.train.epochs);
    plan.options.train.epochs = 0;
  }
  if (plan.checkpoint.empty() && !options.model.path.empty()) {
    check_model_folder(options, compile.model);
  }
  Files& files = real_files();
  files.create_directories(plan.run_folder);
  plan.options.data.tokenizer = resolved_tokenizer(options.data.tokenizer, base);
  plan.options.data.train = corpus.write_token_sets(files, plan.run_folder / "data", "train");
  if (validation.has_value()) {
    plan.options.data.validation =
        validation->write_token_sets(files, plan.run_folder / "data", "validation");
  }
  return plan;
}

bool finish_run(const TrainingPlan& plan, int ranks) {
  std::vector<std::filesystem::path> accounts;
  for (int rank = 0; rank < ranks; ++rank) {
    accounts.push_back(RunFolder{plan.run_folder}.account_of(rank));
  }
  return merge_rank_accounts(plan.run_folder, accounts);
}

}  // namespace sw
