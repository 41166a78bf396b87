#include "train/verify.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/error.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/writer.hpp"
#include "data/balance.hpp"
#include "train/trainer.hpp"

namespace sw {
namespace {

Corpus load_corpus(const VerifyRequest& request, std::int64_t vocabulary) {
  return Corpus::load(request.layout.data, {.key = "data.train",
                                            .patterns = request.layout.data.train,
                                            .base = request.base,
                                            .vocabulary = vocabulary});
}

/// The run's first steps whose windows have a valid token.
struct Job {
  std::vector<Window> windows;
  std::vector<std::int64_t> steps;
};

Sampler sampler_of(const RunOptions& options, const Corpus& corpus) {
  return {corpus.samples(), options.train.global_batch, options.train.seed,
          options.data.last_window};
}

Job first_steps(const RunOptions& options, const Corpus& corpus, std::int64_t steps) {
  const Sampler sampler = sampler_of(options, corpus);
  Job job;
  std::int64_t position = 0;
  const std::int64_t most = 1000 + steps;
  for (std::int64_t s = 0; s < most && static_cast<std::int64_t>(job.windows.size()) < steps; ++s) {
    Window window = sampler.window(position);
    position = window.next;
    balance(window, corpus, options.data.balance,
            options.parallel.layout.dp * options.train.accumulation);
    std::int64_t valid = 0;
    for (const std::int64_t sample : window.samples) {
      valid += corpus.valid_tokens(sample);
    }
    if (valid > 0) {
      job.windows.push_back(std::move(window));
      job.steps.push_back(s);
    }
  }
  if (job.windows.empty()) {
    throw ConfigError(
        "data.train: the first 1,000 windows have no valid token, so there is nothing to compare");
  }
  return job;
}

/// What one side's optimizer does in the steps of a job.
std::vector<StepSettings> settings_of(const Compilation& compilation, const RunOptions& options,
                                      const Corpus& corpus, const Job& job) {
  const std::int64_t total =
      options.train.steps > 0 ? options.train.steps
                              : sampler_of(options, corpus).windows_left(0, options.train.epochs);
  const int updates = compilation.updates_per_window();
  std::vector<StepSettings> settings;
  std::int64_t done = 0;
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    settings.push_back(step_settings(compilation, corpus, job.windows[i], total * updates, done,
                                     options.train.seed, job.steps[i]));
    const std::vector<UpdateSettings>& made = settings.back().updates;
    done += made.empty() ? 1 : std::count_if(made.begin(), made.end(), [](const auto& update) {
      return update.update > 0;
    });
  }
  return settings;
}

std::function<void(Session&)> fresh_start(const RunOptions& options) {
  return [&options](Session& session) {
    if (options.model.path.empty()) {
      session.initialize(options.train.seed);
    } else {
      session.load_model_folder(options.model.path);
    }
  };
}

void write_tensors(const std::filesystem::path& path, const Graph& graph,
                   const LogicalTensors& tensors) {
  std::vector<TensorDeclaration> declarations;
  for (const ValueId id : graph.parameters()) {
    if (tensors.contains(graph.value(id).name)) {
      declarations.push_back({graph.value(id).name, DType::Float32, graph.value(id).shape});
    }
  }
  SafetensorsWriter writer(real_files(), path, declarations);
  for (const TensorDeclaration& declaration : declarations) {
    writer.write(declaration.name, std::as_bytes(std::span(tensors.at(declaration.name))));
  }
  writer.finish();
}

void dump(const std::string& folder, const std::string& side, const Compilation& compilation,
          const SideRecord& record) {
  real_files().create_directories(folder);
  const Graph& graph = compilation.model().graph;
  write_tensors(std::filesystem::path(folder) / (side + ".gradients.safetensors"), graph,
                record.steps.back().gradients);
  write_tensors(std::filesystem::path(folder) / (side + ".weights.safetensors"), graph,
                record.steps.back().weights);
}

/// A folder that is gone when this is.
struct TemporaryFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("shardwright-verify-{}", ::getpid());
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

void refuse_wrong_account(const SideRecord& record, const char* side) {
  if (!record.account_equal) {
    throw InternalError(fmt::format("the {}'s bytes, calls or memory were not as planned", side));
  }
}

}  // namespace

Comparison verify_layout(const VerifyRequest& request) {
  const Compilation layout(compile_options(request.layout));
  const Compilation reference(compile_options(request.reference));
  for (const Compilation* side : {&layout, &reference}) {
    if (side->asynchronous()) {
      throw ConfigError(
          "verify compares with synchronous training, and an asynchronous pipeline does not equal "
          "it: its gradients are those of older weights, as `plan` and the run's ledger.json say");
    }
  }
  const Corpus corpus = load_corpus(request, layout.options().model.vocabulary);
  const Job job = first_steps(request.layout, corpus, request.steps);
  const std::vector<StepSettings> settings = settings_of(layout, request.layout, corpus, job);
  const SideRecord a = run_side(layout, corpus, job.windows, settings, fresh_start(request.layout));
  const SideRecord b = run_side(reference, corpus, job.windows,
                                settings_of(reference, request.reference, corpus, job),
                                fresh_start(request.reference));
  refuse_wrong_account(a, "layout");
  refuse_wrong_account(b, "reference");
  if (!request.dump.empty()) {
    dump(request.dump, "layout", layout, a);
    dump(request.dump, "reference", reference, b);
  }
  return compare(a, b, request.layout.optimizer, settings, verify_bound(layout.options()));
}

Comparison verify_resume(const VerifyRequest& request) {
  const Compilation layout(compile_options(request.layout));
  const Corpus corpus = load_corpus(request, layout.options().model.vocabulary);
  const Job job = first_steps(request.layout, corpus, request.steps + 1);
  const std::vector<StepSettings> settings = settings_of(layout, request.layout, corpus, job);
  const auto split_at = job.windows.end() - 1;
  const SideRecord straight =
      run_side(layout, corpus, job.windows, settings, fresh_start(request.layout));
  const TemporaryFolder folder;
  const auto save = [&](Session& session, World& world) {
    WriterOptions options;
    options.folder = folder.path;
    options.run = options.session = "verify";
    options.rank = world.rank();
    options.ranks = world.size();
    options.background = false;
    CheckpointWriter writer(real_files(), options);
    TrainingState state;
    state.step = static_cast<std::int64_t>(job.windows.size()) - 1;
    state.seed = request.layout.train.seed;
    writer.save(state, session.owned_state());
    writer.wait();
  };
  const std::vector<Window> before(job.windows.begin(), split_at);
  const std::vector<StepSettings> settings_before(settings.begin(), settings.end() - 1);
  (void)run_side(layout, corpus, before, settings_before, fresh_start(request.layout), save);
  const auto checkpoint = find_newest(folder.path, [](const std::string&) {});
  SW_CHECK(checkpoint.has_value(), "the checkpoint that was just written is not there");
  const auto load = [&](Session& session) {
    session.load_checkpoint(CheckpointReader(*checkpoint));
  };
  const std::vector<StepSettings> last_settings{settings.back()};
  const SideRecord resumed = run_side(layout, corpus, {job.windows.back()}, last_settings, load);
  SideRecord last = straight;
  last.steps = {straight.steps.back()};
  if (!request.dump.empty()) {
    dump(request.dump, "layout", layout, resumed);
    dump(request.dump, "reference", layout, last);
  }
  Comparison result = compare(resumed, last, request.layout.optimizer, last_settings,
                              verify_bound(layout.options()));
  result.equal = result.equal && result.bit_identical;
  return result;
}

}  // namespace sw
