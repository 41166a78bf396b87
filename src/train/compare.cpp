#include "train/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/error.hpp"

namespace sw {
namespace {

/// Room for every tensor that the pieces are parts of.
LogicalTensors empty_tensors(const Graph& graph, bool trained_only) {
  LogicalTensors tensors;
  for (const ValueId id : graph.parameters()) {
    const Value& value = graph.value(id);
    if (!trained_only || !value.frozen) {
      tensors[value.name].assign(static_cast<std::size_t>(elements(value.shape)), 0.0F);
    }
  }
  for (const Value* bias : router_biases(graph)) {
    if (!trained_only) {
      tensors[bias->name].assign(static_cast<std::size_t>(elements(bias->shape)), 0.0F);
    }
  }
  return tensors;
}

/// Ranks own disjoint elements, so they may write at the same time.
void put_together(const std::vector<Piece>& pieces, const std::string& state,
                  LogicalTensors& into) {
  for (const Piece& piece : pieces) {
    if (piece.state != state) {
      continue;
    }
    std::vector<float>& whole = into.at(piece.tensor);
    std::vector<float> widened;
    const std::byte* data = piece.data;
    if (piece.dtype == DType::BFloat16) {
      const auto* values = reinterpret_cast<const BFloat16*>(piece.data);
      std::transform(values, values + piece.range.elements.size(), std::back_inserter(widened),
                     [](BFloat16 value) { return to_float(value); });
      data = reinterpret_cast<const std::byte*>(widened.data());
    }
    copy_common(piece.whole, 4, piece.range, data, whole_range(piece.whole),
                reinterpret_cast<std::byte*>(whole.data()));
  }
}

/// Whether what a rank multiplies with is, to the bit, what every other holder has.
class ReplicaCheck {
 public:
  void add(const std::vector<Piece>& pieces) {
    const std::scoped_lock lock(mutex_);
    for (const Piece& piece : pieces) {
      std::string key = piece.tensor;
      for (const Range& range : piece.range.box) {
        key += fmt::format(" {}", range.begin);
      }
      key += fmt::format(" {}", piece.range.elements.begin);
      const auto* begin = reinterpret_cast<const char*>(piece.data);
      const std::string bytes(
          begin, static_cast<std::size_t>(piece.range.elements.size() * size_of(piece.dtype)));
      const auto [slot, added] = first_.try_emplace(std::move(key), bytes);
      equal_ = equal_ && (added || slot->second == bytes);
    }
  }
  [[nodiscard]] bool equal() const { return equal_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> first_;
  bool equal_ = true;
};

bool same_account(const Session& session) {
  const Ledger planned = session.planned();
  const Ledger measured = session.measured();
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.calls == b.second.calls &&
           a.second.sent_bytes == b.second.sent_bytes;
  };
  return planned.size() == measured.size() &&
         std::equal(planned.begin(), planned.end(), measured.begin(), same) &&
         session.planned_peak() == session.measured_peak() &&
         session.planned_host() == session.measured_host() &&
         session.planned_versions() == session.version_uses();
}

double largest(const std::vector<float>& values) {
  double result = 0;
  for (const float value : values) {
    result = std::max(result, std::abs(static_cast<double>(value)));
  }
  return result;
}

/// The denominator of a gradient's relative error.
double gradient_scale(const StepRecord& reference, const std::string& name) {
  double of_all = 0;
  for (const auto& [other, values] : reference.gradients) {
    of_all = std::max(of_all, largest(values));
  }
  return std::max(largest(reference.gradients.at(name)), 1e-3 * of_all);
}

void raise(WorstTensor& worst, const std::string& name, double error) {
  if (worst.name.empty() || !(error <= worst.relative_error)) {  // NaN counts as the worst
    worst = {name, error};
  }
}

void compare_gradients(const StepRecord& a, const StepRecord& b, Comparison& result) {
  for (const auto& [name, expected] : b.gradients) {
    const std::vector<float>& found = a.gradients.at(name);
    double difference = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double here = std::abs(static_cast<double>(found[i]) - expected[i]);
      difference = here <= difference ? difference : here;
    }
    const double scale = gradient_scale(b, name);
    raise(result.worst_gradient, name, difference == 0 ? 0 : difference / scale);
  }
}

/// How far one step may move an element further apart, per unit of gradient error.
double image_of_gradient_bound(const OptimizerOptions& optimizer, const StepSettings& settings,
                               double gradient, double scale, double delta) {
  if (optimizer.name == OptimizerName::Sgd) {
    return settings.learning_rate * delta * scale;
  }
  return settings.learning_rate *
         std::min(2.0, delta * scale / (std::abs(gradient) * scale + optimizer.epsilon));
}

void compare_weights(const SideRecord& a, const SideRecord& b, const OptimizerOptions& optimizer,
                     const std::vector<StepSettings>& settings, Comparison& result) {
  const LogicalTensors& found = a.steps.back().weights;
  for (const auto& [name, expected] : b.steps.back().weights) {
    const std::vector<float>& mine = found.at(name);
    const double base = result.bound * largest(expected);
    const bool trained = b.steps.back().gradients.contains(name);
    std::vector<double> allowance(expected.size(), base);
    for (std::size_t s = 0; trained && s < b.steps.size(); ++s) {
      const StepRecord& step = b.steps[s];
      const double delta = result.bound * gradient_scale(step, name);
      const double clip = settings[s].gradient_clip;
      const double scale = clip > 0 && step.gradient_norm > clip ? clip / step.gradient_norm : 1.0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        allowance[i] += image_of_gradient_bound(optimizer, settings[s], step.gradients.at(name)[i],
                                                scale, delta);
      }
    }
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(static_cast<double>(mine[i]) - expected[i]);
      const double ratio = difference == 0 ? 0 : difference / allowance[i];
      worst = ratio <= worst ? worst : ratio;
    }
    raise(result.worst_weight, name, worst * result.bound);
  }
}

bool same_bits(const LogicalTensors& a, const LogicalTensors& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.size() == y.second.size() &&
           std::memcmp(x.second.data(), y.second.data(), x.second.size() * sizeof(float)) == 0;
  };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), same);
}

}  // namespace

SideRecord run_side(const Compilation& compilation, const Corpus& corpus,
                    const std::vector<Window>& windows, const std::vector<StepSettings>& settings,
                    const std::function<void(Session&)>& start,
                    const std::function<void(Session&, World&)>& after) {
  SideRecord record;
  const Graph& graph = compilation.model().graph;
  record.steps.resize(windows.size());
  for (StepRecord& step : record.steps) {
    step.gradients = empty_tensors(graph, true);
    step.weights = empty_tensors(graph, false);
  }
  WorldOptions options;
  options.deadline_s = compilation.options().parallel.deadline_s;
  options.threads_per_rank = compilation.options().threads;
  const auto worlds = make_local_worlds(compilation.world(), options);
  ReplicaCheck replicas;
  std::mutex mutex;
  std::exception_ptr error;
  const auto body = [&](World& world) {
    Session session(compilation, world);
    start(session);
    for (std::size_t s = 0; s < windows.size(); ++s) {
      const StepResult result = session.step(corpus, windows[s], settings[s]);
      StepRecord& step = record.steps[s];
      put_together(session.owned_gradients(), "gradient", step.gradients);
      put_together(session.owned_state(), "weight", step.weights);
      if (world.rank() == 0) {
        step.loss = result.loss;
        step.balance_loss = result.balance_loss.value_or(0);
        step.z_loss = result.z_loss.value_or(0);
        step.expert_load = result.expert_load;
        step.valid_tokens = result.valid_tokens;
        step.gradient_norm = result.gradient_norm;
        step.applied = result.applied;
      }
    }
    replicas.add(session.held_weights());
    std::int64_t owned = 0;
    for (const Piece& piece : session.owned_gradients()) {
      owned += piece.range.elements.size();
    }
    {
      const std::scoped_lock lock(mutex);
      record.account_equal = record.account_equal && same_account(session);
      record.owned_elements += owned;
    }
    if (after) {
      after(session, world);
    }
  };
  std::vector<std::thread> threads;
  for (const auto& world : worlds) {
    threads.emplace_back([&] {
      try {
        body(*world);
      } catch (const std::exception& thrown) {
        const std::scoped_lock lock(mutex);
        if (error == nullptr) {
          error = std::current_exception();
        }
        world->abort(thrown.what());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  record.replicas_equal = replicas.equal();
  return record;
}

Comparison compare(const SideRecord& a, const SideRecord& b, const OptimizerOptions& optimizer,
                   const std::vector<StepSettings>& settings, double bound) {
  SW_CHECK(a.steps.size() == b.steps.size() && !a.steps.empty(), "{} steps against {}",
           a.steps.size(), b.steps.size());
  Comparison result;
  result.bound = bound;
  result.bit_identical = true;
  compare_gradients(a.steps.front(), b.steps.front(), result);
  bool losses_equal = true;
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    result.valid_tokens[0] += a.steps[s].valid_tokens;
    result.valid_tokens[1] += b.steps[s].valid_tokens;
    for (double StepRecord::*loss :
         {&StepRecord::loss, &StepRecord::balance_loss, &StepRecord::z_loss}) {
      const double expected = b.steps[s].*loss;
      losses_equal =
          losses_equal && std::abs(a.steps[s].*loss - expected) <= bound * std::abs(expected);
      result.bit_identical = result.bit_identical && a.steps[s].*loss == expected;
    }
    losses_equal = losses_equal && a.steps[s].applied == b.steps[s].applied;
    result.bit_identical = result.bit_identical &&
                           a.steps[s].expert_load == b.steps[s].expert_load &&
                           same_bits(a.steps[s].gradients, b.steps[s].gradients) &&
                           same_bits(a.steps[s].weights, b.steps[s].weights);
  }
  compare_weights(a, b, optimizer, settings, result);
  result.loss[0] = a.steps.back().loss;
  result.loss[1] = b.steps.back().loss;
  result.equal = losses_equal && result.valid_tokens[0] == result.valid_tokens[1] &&
                 result.worst_gradient.relative_error <= bound &&
                 result.worst_weight.relative_error <= bound && a.replicas_equal &&
                 b.replicas_equal;
  return result;
}

double verify_bound(const CompileOptions& options) {
  const bool exact =
      options.precision == DType::Float32 && options.gradient_precision == DType::Float32;
  return exact ? 1e-5 : 3e-2;
}

CompileOptions one_rank(CompileOptions options) {
  options.micro_batch *= options.parallel.layout.dp;
  options.parallel = one_rank(options.parallel);
  options.threads = threads_per_rank(options.parallel);
  return options;
}

ParallelOptions one_rank(const ParallelOptions& layout) {
  ParallelOptions one;
  one.zero = 0;
  one.sequence_parallel = false;
  one.threads_per_rank = layout.threads_per_rank;
  one.deadline_s = layout.deadline_s;
  return one;
}

}  // namespace sw
