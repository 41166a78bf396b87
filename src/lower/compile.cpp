#include "lower/compile.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/files.hpp"
#include "kernels/notes.hpp"
#include "lower/recompute.hpp"
#include "model/model.hpp"

namespace sw {
namespace {

/// An axis cut in parts, given innermost first.
void append_parts(std::vector<Mesh::Axis>& axes, const std::string& name,
                  const std::vector<Mesh::Axis>& parts) {
  for (std::size_t i = parts.size(); i-- > 0;) {
    const char* which = parts.size() == 1      ? ""
                        : i == 0               ? "_in"
                        : i + 1 < parts.size() ? "_mid"
                                               : "_out";
    axes.push_back({name + which, parts[i].size, parts[i].experts});
  }
}

/// dp x cp is one chain of parts, cut wherever something lies on neighbours only. Heads that tp cut
/// are cut again where attention is exchanged over cp, and who cuts last stands innermost.
Mesh mesh_of(const ParallelOptions& parallel) {
  const Layout& layout = parallel.layout;
  std::vector<Mesh::Axis> dp, cp;
  int inner = 1;
  for (const int cut : data_cuts(parallel)) {
    SW_CHECK(cut % inner == 0, "dp x cp is cut in {} and in {}", inner, cut);
    (cut <= layout.cp ? cp : dp).push_back({"", cut / inner, cut <= layout.ep});
    inner = cut;
  }
  std::vector<Mesh::Axis> axes{{"pp", layout.pp}};
  append_parts(axes, "dp", dp);
  if (parallel.context == ContextAlgorithm::AllToAll) {
    axes.push_back({"tp", layout.tp});
    append_parts(axes, "cp", cp);
  } else {
    append_parts(axes, "cp", cp);
    axes.push_back({"tp", layout.tp});
  }
  return Mesh(axes);
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

/// Marks frozen weights; refuses a pattern that matches nothing, and a model with nothing left to
/// train.
void freeze(Graph& graph, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool matched = false;
    for (const ValueId id : graph.parameters()) {
      if (matches(pattern, graph.value(id).name)) {
        graph.value(id).frozen = true;
        matched = true;
      }
    }
    if (!matched) {
      throw ConfigError(fmt::format("train.freeze: '{}' matches no weight; the first is called {}",
                                    pattern, graph.value(graph.parameters().front()).name));
    }
  }
  const std::vector<ValueId> parameters = graph.parameters();
  if (std::all_of(parameters.begin(), parameters.end(),
                  [&](ValueId id) { return graph.value(id).frozen; })) {
    throw ConfigError("train.freeze: every weight is frozen, so there is nothing to train");
  }
}

/// Of one stage: a micro-batch forward, then backward, then the next, whatever was asked for: there
/// is nothing to overlap, and it takes the least memory.
PipelineOrder order_of(const CompileOptions& options, const Stages& stages) {
  const auto micro_batches = static_cast<int>(options.accumulation);
  const ParallelOptions& parallel = options.parallel;
  if (!parallel.pipeline_file.empty()) {
    return parse_pipeline(read_whole_file(parallel.pipeline_file, 1 << 20), parallel.pipeline_file,
                          stages, micro_batches);
  }
  return pipeline_order(
      stages.segments() == 1 ? PipelineSchedule::OneForwardOneBackward : parallel.pipeline, stages,
      micro_batches);
}

/// What an asynchronous pipeline cannot honour, or does not do yet.
void check_asynchronous(const CompileOptions& options, const std::vector<std::vector<int>>& homes) {
  const ParallelOptions& parallel = options.parallel;
  const char* name =
      parallel.pipeline == PipelineSchedule::PipeDream ? "pipedream" : "pipedream_2bw";
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(fmt::format("parallel.pipeline = \"{}\": {}", name, what));
  };
  if (parallel.layout.pp == 1) {
    refuse("one stage waits for no other; it needs parallel.pp of at least 2");
  }
  if (options.optimizer.gradient_clip > 0) {
    refuse(
        fmt::format("optimizer.gradient_clip = {} needs the gradients of all stages before any "
                    "is used, and stages do not wait for each other; set it to 0",
                    options.optimizer.gradient_clip));
  }
  if (std::any_of(homes.begin(), homes.end(),
                  [](const std::vector<int>& stages) { return stages.size() > 1; })) {
    refuse(
        "a tied embedding is on the first and the last stage, which update at different times; "
        "untie it (model.config.tie_word_embeddings = false)");
  }
  const ModelConfig& model = options.model;
  if (model.balance_loss > 0 || model.z_loss > 0 || model.balance_bias > 0) {
    refuse(
        "model.balance_loss, z_loss and balance_bias count a window and not an update; set them to "
        "0");
  }
  if (parallel.zero >= 2 && parallel.layout.dp * parallel.layout.cp > 1) {
    refuse(fmt::format("parallel.zero = {} would gather every version; use 0 or 1", parallel.zero));
  }
  if (parallel.offload != Offload::None) {
    refuse("parallel.offload would copy every version; set it to none");
  }
  if (parallel.reduce_gradients == ReduceGradients::MicroBatch) {
    refuse("gradients are reduced once an update; set parallel.reduce_gradients to window");
  }
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) {
    return name.empty();
  }
  if (pattern.front() == '*') {
    return matches(pattern.substr(1), name) || (!name.empty() && matches(pattern, name.substr(1)));
  }
  return !name.empty() && (pattern.front() == '?' || pattern.front() == name.front()) &&
         matches(pattern.substr(1), name.substr(1));
}

Compilation::Compilation(CompileOptions options)
    : options_(std::move(options)), mesh_(mesh_of(options_.parallel)) {
  const ShardingOptions sharding{
      options_.parallel.sequence_parallel && options_.parallel.layout.tp > 1,
      options_.parallel.keep_gathered, options_.parallel.context};
  const auto make = [&](const ModelConfig& config) {
    ModelGraph model = build(config, rows_per_micro_batch(), options_.sequence, options_.precision);
    freeze(model.graph, options_.freeze);
    return model;
  };
  forward_ = make(for_evaluation(options_.model));
  check_sizes(forward_, mesh_, sharding);
  stages_ = cut_into_stages(forward_, options_.parallel);
  order_ = order_of(options_, stages_);
  sharded_forward_ = propagate(forward_, mesh_, sharding);
  verify(forward_, sharded_forward_);
  if (options_.train) {
    joint_ = make(options_.model);
    differentiate(joint_);
    sharded_ = propagate(joint_, mesh_, sharding);
    verify(joint_, sharded_);
    sharded_ = recompute(joint_, sharded_, options_.parallel.recompute);
    verify(joint_, sharded_);
  } else {
    joint_ = forward_;
    sharded_ = sharded_forward_;
  }
  find_homes();
  if (options_.train && options_.parallel.pipeline_file.empty()) {
    if (is_asynchronous(options_.parallel.pipeline)) {
      check_asynchronous(options_, homes_);
    }
    update_ = update_rule(options_.parallel.pipeline, stages_, order_,
                          static_cast<int>(options_.accumulation));
  }
}

int Compilation::updates_per_window() const {
  return update_.updates(static_cast<int>(options_.accumulation));
}

std::int64_t Compilation::rows_per_update() const {
  return rows_per_window() / updates_per_window();
}

std::int64_t Compilation::rows_per_micro_batch() const {
  return options_.micro_batch * options_.parallel.layout.dp;
}

std::int64_t Compilation::rows_per_window() const {
  return rows_per_micro_batch() * options_.accumulation;
}

Range Compilation::rows(int rank) const {
  Sharding sharding(mesh_.axes().size());
  for (const int axis : mesh_.parts("dp")) {
    sharding[static_cast<std::size_t>(axis)] = shard(0);
  }
  return local_box({rows_per_micro_batch()}, sharding, mesh_, mesh_.coordinates(rank)).front();
}

int Compilation::stage(int rank) const {
  const int pp = mesh_.find("pp");
  return pp < 0 ? 0 : mesh_.coordinates(rank)[static_cast<std::size_t>(pp)];
}

std::vector<std::int64_t> Compilation::column_order() const {
  const int cp = options_.parallel.layout.cp;
  if (cp == 1 || joint_.dropout_key >= 0 ||
      options_.parallel.context == ContextAlgorithm::AllToAll) {
    return {};
  }
  const std::int64_t chunk = options_.sequence / 2 / cp;
  std::vector<std::int64_t> order;
  for (int rank = 0; rank < cp; ++rank) {
    for (const std::int64_t from : {rank, 2 * cp - 1 - rank}) {
      for (std::int64_t i = 0; i < chunk; ++i) {
        order.push_back(from * chunk + i);
      }
    }
  }
  return order;
}

Range Compilation::columns(int rank) const {
  return split(options_.sequence, options_.parallel.layout.cp,
               mesh_.place(rank, mesh_.parts("cp")));
}

double Compilation::model_flops_per_window() const {
  const ModelConfig& model = options_.model;
  const double per_token = 6.0 * static_cast<double>(active_parameter_count(model)) +
                           12.0 * static_cast<double>(model.layers * model.hidden) *
                               static_cast<double>(options_.sequence);
  return per_token * static_cast<double>(rows_per_window() * options_.sequence);
}

void Compilation::find_homes() {
  std::map<ValueId, std::set<int>> users;
  const std::vector<int> segments = segments_of_steps(joint_, sharded_, stages_);
  for (std::size_t at = 0; at < segments.size(); ++at) {
    for (const CopyId id : sharded_.steps[at].inputs) {
      users[sharded_.copies[static_cast<std::size_t>(id)].value].insert(
          stages_.stage_of(segments[at]));
    }
  }
  for (const ValueId parameter : joint_.graph.parameters()) {
    const std::set<int>& stages = users[parameter];
    homes_.emplace_back(stages.begin(), stages.end());
  }
}

StatePlan Compilation::state(int rank) const {
  StateOptions state;
  state.zero = options_.parallel.zero;
  state.zero_group = options_.parallel.zero_group;
  state.precision = options_.precision;
  state.gradient_precision = options_.gradient_precision;
  state.offload = options_.parallel.offload;
  state.train = options_.train;
  state.updates = updates_per_window();
  state.moments = options_.optimizer.name == OptimizerName::AdamW ? 2
                  : options_.optimizer.momentum > 0               ? 1
                                                                  : 0;
  state.homes = homes_;
  return plan_state(joint_, sharded_, rank, state);
}

LowerOptions Compilation::lower_options() const {
  LowerOptions lower;
  lower.stages = stages_;
  lower.order = order_;
  lower.micro_batches = static_cast<int>(options_.accumulation);
  lower.threads = options_.threads;
  lower.overlap = options_.parallel.overlap;
  lower.bucket_mib = options_.parallel.bucket_mib;
  lower.reduce_gradients = options_.parallel.reduce_gradients;
  lower.prefetch = options_.parallel.prefetch;
  lower.reshard_after_forward = options_.parallel.reshard_after_forward;
  lower.expert_buffer = options_.parallel.expert_buffer;
  lower.head_chunk = options_.head_chunk;
  lower.optimizer = options_.optimizer;
  lower.balance_bias = options_.model.balance_bias;
  lower.decays = [patterns = options_.optimizer.no_decay](const Value& value) {
    return value.decay && !matches_any(patterns, value.name);
  };
  return lower;
}

std::vector<std::string> Compilation::warnings() const {
  if (options_.sequence <= options_.model.max_positions) {
    return {};
  }
  return {
      fmt::format("data.sequence_length = {} is more than max_position_embeddings = {}: rope has "
                  "no end, but other programs may warn or cut there",
                  options_.sequence, options_.model.max_positions)};
}

std::vector<std::string> Compilation::notes() const {
  std::vector<std::string> notes = warnings();
  notes.push_back(kernels::matrix_product_note(options_.precision));
  const int tp = options_.parallel.layout.tp;
  if (options_.model.kv_heads % tp != 0) {
    notes.push_back(
        fmt::format("tp = {} does not divide the {} KV heads: key and value weights are whole on "
                    "every tp rank, their gradients summed over tp",
                    tp, options_.model.kv_heads));
  }
  if (options_.parallel.layout.cp > 1 && joint_.dropout_key >= 0 &&
      options_.parallel.context != ContextAlgorithm::AllToAll) {
    notes.push_back(
        "cp cuts the sequence in order, because of dropout: later ranks have more attention to do");
  }
  if (options_.parallel.layout.ep > 1) {
    notes.push_back(
        fmt::format("experts: bytes over ep are planned as if all experts were chosen alike; {}",
                    keeps_room_for_all_slots(joint_, sharded_, order_)
                        ? "a halved backward, or one that brings no slots back, keeps room for all "
                          "slots to come "
                          "to one rank"
                        : "slots beyond expert_buffer times as many come to a rank in "
                          "further rounds"));
  }
  if (options_.model.expert_capacity > 0) {
    notes.push_back(fmt::format(
        "experts take {} times an even load of a rank's slots in a micro-batch and drop "
        "the rest: the result depends on the layout",
        options_.model.expert_capacity));
  }
  if (options_.model.experts > 0 && options_.precision == DType::BFloat16) {
    notes.push_back(
        "experts in bfloat16: where two are nearly equal for a token, a layout that adds in "
        "another "
        "order may choose the other one, and verify's bound is then missed");
  }
  if (options_.parallel.algorithm == Algorithm::Ring) {
    notes.push_back(
        "algorithm = \"ring\" adds in an order that depends on slices: bits may change with "
        "bucket_mib and zero");
  }
  if (stages_.segments() > 1) {
    notes.push_back(fmt::format(
        "layers per segment: {}; most micro-batches whose activations a stage holds: {}",
        fmt::join(stages_.layers, ", "), fmt::join(live_micro_batches(order_), ", ")));
  }
  if (update_.asynchronous()) {
    notes.push_back(fmt::format(
        "asynchronous: a window of {} updates, which stages make on their own; it is not "
        "synchronous training, and the pipeline empties at the end of every window",
        updates_per_window()));
  }
  for (const ShardedStep& step : sharded_.steps) {
    if (step.kind == ShardedStep::Kind::Move && step.move.detour) {
      notes.push_back(fmt::format(
          "{} is gathered on its way from {} to {}: an inner axis is in the way",
          joint_.graph.value(sharded_.copies[static_cast<std::size_t>(step.to)].value).name,
          to_text(step.move.before), to_text(step.move.after)));
    }
  }
  return notes;
}

Program Compilation::training(int rank) const {
  LowerOptions lower = lower_options();
  lower.update = update_;
  Program program = lower_training(joint_, sharded_, state(rank), rank, lower);
  program.notes = notes();
  return program;
}

Program Compilation::evaluation(int rank) const {
  return lower_evaluation(forward_, sharded_forward_, state(rank), rank, lower_options());
}

GenerationProgram Compilation::generation(int rank) const {
  return lower_generation(forward_, sharded_forward_, state(rank), rank, lower_options());
}

}  // namespace sw
