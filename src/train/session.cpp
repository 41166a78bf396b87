#include "train/session.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "model/parameters.hpp"
#include "optim/schedule.hpp"

namespace sw {
namespace {

bool can_spin(const CompileOptions& options) {
  return static_cast<unsigned>(options.parallel.layout.world() * options.threads) <=
         std::thread::hardware_concurrency();
}

double total_seconds(const Ledger& ledger, double LedgerEntry::*member) {
  double total = 0;
  for (const auto& [key, entry] : ledger) {
    total += entry.*member;
  }
  return total;
}

Piece make_piece(const Value& parameter, const char* state, DType dtype, const UnitMember& member,
                 Range elements, const std::byte* data) {
  Piece piece;
  piece.tensor = parameter.name;
  piece.state = state;
  piece.dtype = dtype;
  piece.whole = parameter.shape;
  piece.range.box = member.box;
  piece.range.elements = elements;
  piece.data = data;
  return piece;
}

void add_steps(Ledger& into, const Ledger& one, std::int64_t steps) {
  if (steps == 0) {
    return;
  }
  for (const auto& [key, entry] : one) {
    into[key].calls += entry.calls * steps;
    into[key].sent_bytes += entry.sent_bytes * steps;
    into[key].seconds += entry.seconds;
    into[key].wait_seconds += entry.wait_seconds;
  }
}

Session::ReadRow rows_of(const Corpus& corpus) {
  return
      [&corpus](std::int64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> labels,
                std::span<std::int32_t> positions, std::span<std::int32_t> documents) {
        corpus.read(sample, tokens, labels, positions, documents);
      };
}

}  // namespace

StepSettings step_settings(const Compilation& compilation, const Corpus& corpus,
                           const Window& window, std::int64_t total_updates, std::int64_t completed,
                           std::uint64_t seed, std::int64_t step) {
  const OptimizerOptions& optimizer = compilation.options().optimizer;
  StepSettings settings{learning_rate(optimizer, total_updates, completed), optimizer.gradient_clip,
                        completed + 1, seed, step};
  const auto rows = static_cast<std::size_t>(compilation.rows_per_update());
  for (std::size_t row = 0; compilation.asynchronous() && row < window.samples.size();
       row += rows) {
    std::int64_t valid = 0;
    for (const std::int64_t sample : std::span(window.samples).subspan(row, rows)) {
      valid += corpus.valid_tokens(sample);
    }
    settings.updates.emplace_back();
    if (valid > 0) {
      settings.learning_rate = learning_rate(optimizer, total_updates, completed);
      settings.updates.back() = {settings.learning_rate, ++completed};
    }
  }
  return settings;
}

int threads_per_rank(const ParallelOptions& parallel) {
  if (parallel.threads_per_rank > 0) {
    return parallel.threads_per_rank;
  }
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::max(1, cores / parallel.layout.world());
}

Session::Session(const Compilation& compilation, World& world, std::int64_t control_bytes)
    : compilation_(compilation),
      world_(world),
      state_(compilation.state(world.rank())),
      training_(compilation.training(world.rank())),
      evaluation_(compilation.evaluation(world.rank())),
      column_order_(compilation.column_order()) {
  SW_CHECK(world.size() == compilation.world(), "{} ranks for a layout of {}", world.size(),
           compilation.world());
  const CompileOptions& options = compilation.options();
  const Program* programs[] = {&training_, &evaluation_};
  memory_ = std::make_unique<RankMemory>(world, programs, control_bytes);
  for (std::size_t i = 0; i < state_.buffers.size(); ++i) {
    const auto buffer = static_cast<BufferId>(i);
    std::memset(address({buffer, 0, DType::UInt8, {state_.buffers[i].bytes}}), 0,
                static_cast<std::size_t>(state_.buffers[i].bytes));
  }
  team_ = std::make_unique<Team>(options.threads);
  const ExecutorOptions executor{options.parallel.algorithm, options.threads, can_spin(options),
                                 options.parallel.offload_gb_per_s * 1e9};
  train_executor_ = std::make_unique<Executor>(training_, world, *memory_, *team_, executor);
  evaluate_executor_ = std::make_unique<Executor>(evaluation_, world, *memory_, *team_, executor);
}

Session::~Session() = default;

float* Session::floats(BufferId buffer, std::int64_t element) const {
  return reinterpret_cast<float*>(address({buffer, element * 4, DType::Float32, {1}}));
}

const Value& Session::parameter(const UnitMember& member) const {
  return compilation_.model().graph.value(member.parameter);
}

void Session::for_each_member(
    const std::function<void(const Unit&, const UnitMember&)>& visit) const {
  for (const Unit& unit : state_.units) {
    for (const UnitMember& member : unit.members) {
      visit(unit, member);
    }
  }
}

const char* moment_name(int index) { return index == 0 ? "momentum" : "variance"; }

std::vector<std::pair<const char*, BufferId>> moments(const Unit& unit) {
  std::vector<std::pair<const char*, BufferId>> result;
  for (const BufferId buffer : unit.moments) {
    result.emplace_back(moment_name(static_cast<int>(result.size())), buffer);
  }
  return result;
}

/// Sets weights from element `begin` of the unit on, all of which this rank keeps: the copy that is
/// multiplied, and the master.
void Session::set_weights(const Unit& unit, std::int64_t begin, std::span<const float> values) {
  const Range range{begin, begin + static_cast<std::int64_t>(values.size())};
  std::byte* weights = address(state_.weights(unit, range));
  const auto round_to = [](std::span<const float> from, std::byte* to) {
    std::transform(from.begin(), from.end(), reinterpret_cast<BFloat16*>(to), to_bfloat16);
  };
  if (state_.options.precision == DType::Float32) {
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(weights));
  } else {
    round_to(values, weights);
  }
  const Range kept = state_.optimizer_range(unit);
  const Range mine{std::max(range.begin, kept.begin), std::min(range.end, kept.end)};
  if (mine.size() <= 0) {
    return;
  }
  const auto owned = values.subspan(static_cast<std::size_t>(mine.begin - begin),
                                    static_cast<std::size_t>(mine.size()));
  if (unit.master >= 0) {
    std::copy(owned.begin(), owned.end(), floats(unit.master, mine.begin - kept.begin));
  }
  if (unit.rounded >= 0) {
    round_to(owned, address(state_.rounded(unit, mine)));
  }
}

std::vector<Piece> Session::owned_state() const {
  std::vector<Piece> pieces;
  for (const OwnedPiece& owned : owned_pieces(state_)) {
    const auto add = [&](const char* state, DType dtype, const std::byte* data) {
      pieces.push_back(
          make_piece(parameter(*owned.member), state, dtype, *owned.member, owned.elements, data));
    };
    const std::int64_t in_state = owned.in_unit - state_.optimizer_range(*owned.unit).begin;
    if (owned.unit->master >= 0) {
      add("weight", DType::Float32,
          reinterpret_cast<const std::byte*>(floats(owned.unit->master, in_state)));
    } else {
      const DType dtype = state_.options.precision;
      add("weight", dtype, address(state_.weights(*owned.unit, owned.place())));
    }
    for (const auto& [name, buffer] : moments(*owned.unit)) {
      add(name, DType::Float32, reinterpret_cast<const std::byte*>(floats(buffer, in_state)));
    }
  }
  if (world_.rank() == 0) {
    const std::vector<Piece> biases = router_biases();
    pieces.insert(pieces.end(), biases.begin(), biases.end());
  }
  return pieces;
}

/// The same on every rank.
std::vector<Piece> Session::router_biases() const {
  std::vector<Piece> pieces;
  for (const Value* bias : sw::router_biases(compilation_.model().graph)) {
    const PieceRange all = whole_range(bias->shape);
    pieces.push_back({bias->name, "weight", DType::Float32, bias->shape, all,
                      address(state_.router_bias_of(*bias))});
  }
  return pieces;
}

std::vector<Piece> Session::owned_gradients() const {
  std::vector<Piece> pieces;
  for (const OwnedPiece& owned : owned_pieces(state_)) {
    if (owned.unit->gradients >= 0) {
      pieces.push_back(make_piece(parameter(*owned.member), "gradient",
                                  state_.options.gradient_precision, *owned.member, owned.elements,
                                  address(state_.gradients(*owned.unit, owned.place()))));
    }
  }
  return pieces;
}

int Session::first_non_finite() const {
  int first = -1;
  const auto finite_number = [](float value) { return std::isfinite(value); };
  const auto finite_half = [](BFloat16 value) { return std::isfinite(to_float(value)); };
  for (const OwnedPiece& owned : owned_pieces(state_)) {
    if (owned.unit->gradients < 0) {
      continue;
    }
    const std::byte* data = address(state_.gradients(*owned.unit, owned.place()));
    const std::int64_t count = owned.elements.size();
    const auto* halves = reinterpret_cast<const BFloat16*>(data);
    const auto* numbers = reinterpret_cast<const float*>(data);
    const bool finite = state_.options.gradient_precision == DType::BFloat16
                            ? std::all_of(halves, halves + count, finite_half)
                            : std::all_of(numbers, numbers + count, finite_number);
    const auto place = static_cast<int>(owned.member->order);
    if (!finite && (first < 0 || place < first)) {
      first = place;
    }
  }
  return first;
}

std::vector<Piece> Session::held_weights() const {
  std::vector<Piece> pieces = router_biases();
  for_each_member([&](const Unit& unit, const UnitMember& member) {
    const Range kept = part_in(member, state_.weight_range(unit));
    if (kept.size() > 0) {
      pieces.push_back(make_piece(parameter(member), "weight", state_.options.precision, member,
                                  kept_of(unit, member), address(state_.weights(unit, kept))));
    }
  });
  return pieces;
}

void Session::write_batch(const Program& program, std::size_t micro_batch, const ReadRow& read,
                          std::span<const std::int64_t> samples, std::int64_t& valid) const {
  const BatchSlot& slot = program.batches.at(micro_batch);
  const auto sequence = static_cast<std::size_t>(compilation_.options().sequence);
  const auto row = [&](const Operand& operand, std::int64_t index) {
    auto* begin = reinterpret_cast<std::int32_t*>(memory_->address(program, operand));
    return std::span(begin + static_cast<std::size_t>(index) * sequence, sequence);
  };
  const Range rows = compilation_.rows(world_.rank());
  const Range columns = compilation_.columns(world_.rank());
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const std::int64_t local = r - rows.begin;
    const std::span<std::int32_t> labels = row(slot.labels, local);
    const std::array<std::span<std::int32_t>, 4> all = {
        row(slot.tokens, local), labels, row(slot.positions, local), row(slot.documents, local)};
    read(samples[static_cast<std::size_t>(r)], all[0], all[1], all[2], all[3]);
    for (const std::span<std::int32_t> values : all) {
      reorder(values);
    }
    valid += std::count_if(labels.begin() + columns.begin, labels.begin() + columns.end,
                           [](std::int32_t label) { return label >= 0; });
  }
}

/// Into the order in which context-parallel ranks hold a row.
void Session::reorder(std::span<std::int32_t> row) const {
  if (column_order_.empty()) {
    return;
  }
  const std::vector<std::int32_t> before(row.begin(), row.end());
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = before[static_cast<std::size_t>(column_order_[i])];
  }
}

/// The mean over valid tokens: each update has that of its own.
void Session::read_loss(const Program& program, StepResult& result) const {
  const auto* losses = reinterpret_cast<const float*>(memory_->address(program, program.host.loss));
  const auto* counts =
      reinterpret_cast<const std::int64_t*>(memory_->address(program, program.host.valid_count));
  const int updates = updates_of(program);
  if (updates == 1) {
    result.loss = *losses;
    result.valid_tokens = *counts;
    return;
  }
  double sum = 0;
  for (int u = 0; u < updates; ++u) {
    sum += static_cast<double>(losses[u]) * static_cast<double>(counts[u]);
    result.valid_tokens += counts[u];
  }
  result.loss = sum / static_cast<double>(result.valid_tokens);
}

StepResult Session::run(Executor& executor, const Program& program) {
  const auto start = std::chrono::steady_clock::now();
  executor.run();
  StepResult result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  read_loss(program, result);
  // Layers in their order, whatever stages they are on.
  const auto number = [&](const Operand& operand) {
    std::optional<double> read;
    if (operand.buffer >= 0) {
      const auto* parts = reinterpret_cast<const float*>(memory_->address(program, operand));
      read = std::accumulate(parts, parts + elements(operand.shape), 0.0);
    }
    return read;
  };
  result.balance_loss = number(program.host.balance_loss);
  result.z_loss = number(program.host.z_loss);
  if (const Operand& load = program.host.expert_load; load.buffer >= 0) {
    result.expert_load.resize(static_cast<std::size_t>(elements(load.shape)));
    std::memcpy(result.expert_load.data(), memory_->address(program, load),
                static_cast<std::size_t>(bytes_of(load)));
  }
  const Ledger now = executor.ledger();
  result.communication_seconds = total_seconds(now, &LedgerEntry::seconds);
  result.wait_seconds = total_seconds(now, &LedgerEntry::wait_seconds);
  result.exposed_communication_seconds = exposed_communication(program, executor.timeline());
  return result;
}

void Session::write_settings(const StepSettings& settings) const {
  const HostOperands& host = training_.host;
  std::vector<double> values;
  if (updates_of(training_) == 1) {
    values = {settings.learning_rate, settings.gradient_clip, static_cast<double>(settings.update)};
  }
  for (const UpdateSettings& update : settings.updates) {
    values.insert(values.end(), {update.learning_rate, 0.0, static_cast<double>(update.update)});
  }
  SW_CHECK(static_cast<std::int64_t>(values.size()) == elements(host.settings.shape),
           "settings of {} updates for a window of {}", settings.updates.size(),
           updates_of(training_));
  std::memcpy(address(host.settings), values.data(), values.size() * sizeof(double));
  if (host.dropout_key.buffer >= 0) {
    const std::int64_t key[2] = {static_cast<std::int64_t>(settings.seed), settings.step};
    std::memcpy(address(host.dropout_key), key, sizeof(key));
  }
}

void Session::read_verdicts(const StepSettings& settings, StepResult& result) const {
  const auto* verdicts = reinterpret_cast<const double*>(address(training_.host.verdict));
  const int updates = updates_of(training_);
  if (updates > 1) {
    result.updates = 0;
  }
  for (int u = 0; u < updates; ++u) {
    if (updates > 1 && settings.updates[static_cast<std::size_t>(u)].update == 0) {
      continue;
    }
    result.updates += updates > 1 ? 1 : 0;
    const double* verdict = verdicts + std::ptrdiff_t{u} * kVerdict;
    const double norm = verdict[0];
    if (!std::isnan(result.gradient_norm) && !(norm <= result.gradient_norm)) {
      result.gradient_norm = norm;  // what is no number stays
    }
    result.applied = result.applied && verdict[2] != 0;
  }
}

StepResult Session::step(const Corpus& corpus, const Window& window, const StepSettings& settings) {
  return step(rows_of(corpus), window, settings);
}

StepResult Session::step(const ReadRow& read, const Window& window, const StepSettings& settings) {
  const auto rows = static_cast<std::size_t>(compilation_.rows_per_micro_batch());
  SW_CHECK(window.samples.size() == rows * training_.batches.size(),
           "a window of {} rows for {} micro-batches of {}", window.samples.size(),
           training_.batches.size(), rows);
  const auto updates = static_cast<std::size_t>(updates_of(training_));
  std::vector<std::int64_t> valid(updates, 0);
  for (std::size_t m = 0; m < training_.batches.size(); ++m) {
    write_batch(training_, m, read, std::span(window.samples).subspan(m * rows, rows),
                valid[m * updates / training_.batches.size()]);
  }
  std::memcpy(address(training_.host.valid_count), valid.data(), updates * sizeof(std::int64_t));
  write_settings(settings);
  StepResult result = run(*train_executor_, training_);
  read_verdicts(settings, result);
  ++steps_;
  std::swap(result.communication_seconds, seen_seconds_);
  std::swap(result.wait_seconds, seen_wait_);
  result.communication_seconds = seen_seconds_ - result.communication_seconds;
  result.wait_seconds = seen_wait_ - result.wait_seconds;
  return result;
}

StepResult Session::evaluate(const Corpus& corpus, const std::vector<std::int64_t>& samples) {
  StepResult nothing;
  std::int64_t valid = 0;
  for (const std::int64_t sample : samples) {
    valid += corpus.valid_tokens(sample);
  }
  if (valid == 0) {
    return nothing;
  }
  valid = 0;
  write_batch(evaluation_, 0, rows_of(corpus), samples, valid);
  std::memcpy(memory_->address(evaluation_, evaluation_.host.valid_count), &valid, sizeof(valid));
  ++evaluations_;
  return run(*evaluate_executor_, evaluation_);
}

Ledger Session::measured() const {
  Ledger ledger;
  add_steps(ledger, train_executor_->ledger(), 1);
  add_steps(ledger, evaluate_executor_->ledger(), 1);
  return ledger;
}

Ledger Session::planned() const {
  const Algorithm algorithm = compilation_.options().parallel.algorithm;
  Ledger ledger;
  add_steps(ledger, planned_ledger(training_, algorithm, Routes::Apart), steps_);
  add_steps(ledger, planned_ledger(evaluation_, algorithm, Routes::Apart), evaluations_);
  add_steps(ledger, train_executor_->routed(), 1);
  add_steps(ledger, evaluate_executor_->routed(), 1);
  return ledger;
}

std::int64_t Session::planned_peak() const {
  std::int64_t private_bytes = training_.private_bytes;
  std::int64_t window_bytes = training_.window_bytes;
  if (evaluations_ > 0) {
    private_bytes = std::max(private_bytes, evaluation_.private_bytes);
    window_bytes = std::max(window_bytes, evaluation_.window_bytes);
  }
  return private_bytes + window_bytes;
}

std::int64_t Session::planned_host() const {
  return std::max(training_.host_bytes, evaluations_ > 0 ? evaluation_.host_bytes : 0);
}

std::vector<VersionUse> Session::planned_versions() const {
  return steps_ == 0 ? std::vector<VersionUse>{}
                     : sw::version_uses(training_, list_order(training_));
}

std::vector<VersionUse> Session::version_uses() const {
  return steps_ == 0 ? std::vector<VersionUse>{} : sw::version_uses(training_, timeline());
}

const Timeline& Session::timeline() const { return train_executor_->timeline(); }

}  // namespace sw
