#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/simd/rows.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

template <typename T>
Prepared count_slots(const KernelCall& call, Scratch& scratch, T* load) {
  const View& choice = call.inputs[0];
  const std::int64_t slots = elements(choice.shape);
  const std::int64_t tokens = elements(call.inputs[1].shape);
  const std::int64_t experts = elements(call.outputs[0].shape);
  SW_CHECK(tokens > 0 && slots % tokens == 0, "{}: {} slots of {} tokens", call.op, slots, tokens);
  return [=, add = accumulates(call, 0), numbers = integers(choice),
          labels = integers(call.inputs[1]), counts = scratch.take<std::int64_t>(experts)](Team&) {
    std::fill_n(counts, experts, 0);
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      const std::int64_t expert = numbers[slot];
      SW_CHECK(expert >= -1 && expert < experts, "slot {} chose expert {} of {}", slot, expert,
               experts);
      if (expert >= 0 && labels[slot / (slots / tokens)] >= 0) ++counts[expert];
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      load[e] = static_cast<T>(counts[e]) + (add ? load[e] : T{0});
    }
  };
}

Prepared prepare_expert_load(const KernelCall& call, Scratch& scratch, int) {
  const bool whole = call.outputs.at(0).dtype == DType::Int64;
  check_views(call, 2, 1, whole ? 1 : 0);
  return whole ? count_slots(call, scratch, reinterpret_cast<std::int64_t*>(call.outputs[0].data))
               : count_slots(call, scratch, floats(call.outputs[0]));
}

/// What the terms that a router adds to the loss read: logits first, labels and count last.
struct RouterTerm {
  View logits;
  const std::int32_t* labels;
  const float* count;
  double coefficient;
  std::int64_t tokens;
  std::int64_t experts;
  float* rows;  ///< [threads, 2, E]

  RouterTerm(const KernelCall& call, Scratch& scratch, int threads)
      : logits(call.inputs[0]),
        labels(integers(call.inputs[call.inputs.size() - 2])),
        count(floats(call.inputs.back())),
        coefficient(std::get<TermParameters>(call.parameters).coefficient),
        tokens(rows_of(logits.shape).count),
        experts(rows_of(logits.shape).width),
        rows(scratch.take<float>(threads * 2 * experts)) {
    SW_CHECK(elements(call.inputs[call.inputs.size() - 2].shape) == tokens && experts > 0,
             "{}: {} with {} labels", call.op, to_text(logits.shape),
             elements(call.inputs[call.inputs.size() - 2].shape));
  }

  [[nodiscard]] float* probabilities(int thread) const { return rows + thread * 2 * experts; }

  /// A token's softmax into `probabilities`; returns log(sum(exp(logits))).
  [[nodiscard]] double soften(std::int64_t token, int thread) const {
    float* p = probabilities(thread);
    const float* row = read(logits, token * experts, experts, p + experts);
    const float most = simd::maximum(row, experts);
    const double sum = simd::sum_of_exponentials(row, most, experts);
    simd::exponentials(row, most, static_cast<float>(1 / sum), p, experts);
    return static_cast<double>(most) + std::log(sum);
  }

  /// body(token, thread)
  template <typename Body>
  void for_tokens(Team& team, const Body& body) const {
    const std::int64_t tile_tokens = rows_per_tile(experts);
    for_tiles(team, tiles_of(tokens, tile_tokens), [&](std::int64_t tile, int thread) {
      const std::int64_t end = std::min(tokens, (tile + 1) * tile_tokens);
      for (std::int64_t token = tile * tile_tokens; token < end; ++token) body(token, thread);
    });
  }

  /// The sum of part(token, thread) over tokens with a label, in order whatever the threads;
  /// `parts` has room for one of each.
  template <typename Part>
  [[nodiscard]] double sum(Team& team, float* parts, const Part& part) const {
    for_tokens(team, [&](std::int64_t token, int thread) {
      parts[token] = labels[token] < 0 ? 0.0F : part(token, thread);
    });
    double all = 0;
    for (std::int64_t token = 0; token < tokens; ++token) all += static_cast<double>(parts[token]);
    return all;
  }

  /// Writes each token's gradient, which change(p, z) makes of its softmax p where it stands, with
  /// z = log(sum(exp(logits))); zeros without a label.
  template <typename Change>
  void write_gradient(Team& team, const View& dlogits, const Change& change) const {
    for_tokens(team, [&](std::int64_t token, int thread) {
      if (labels[token] < 0) return fill_zero(dlogits, token * experts, experts);
      float* p = probabilities(thread);
      change(p, soften(token, thread));
      store(dlogits, token * experts, experts, p, false);
    });
  }
};

struct BalanceTerm : RouterTerm {
  const float* load;

  BalanceTerm(const KernelCall& call, Scratch& scratch, int threads)
      : RouterTerm(call, scratch, threads), load(floats(call.inputs[1])) {
    SW_CHECK(elements(call.inputs[1].shape) == experts, "{}: {} with the load {}", call.op,
             to_text(logits.shape), to_text(call.inputs[1].shape));
  }

  /// What a token's sum of load times probability counts for.
  [[nodiscard]] float scale() const {
    double slots = 0;
    for (std::int64_t e = 0; e < experts; ++e) slots += static_cast<double>(load[e]);
    if (slots == 0) return 0;
    return static_cast<float>(coefficient * static_cast<double>(experts) /
                              (static_cast<double>(*count) * slots));
  }
};

Prepared prepare_balance_loss(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 4, 1);
  const BalanceTerm term(call, scratch, threads);
  return [term, add = accumulates(call, 0), result = floats(call.outputs[0]),
          parts = scratch.take<float>(term.tokens)](Team& team) {
    double sum = term.sum(team, parts, [&](std::int64_t token, int thread) {
      (void)term.soften(token, thread);
      return simd::dot(term.probabilities(thread), term.load, term.experts);
    });
    sum *= static_cast<double>(term.scale());
    *result = static_cast<float>(add ? static_cast<double>(*result) + sum : sum);
  };
}

Prepared prepare_balance_grad(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 4, 1);
  check_same_shape(call, call.inputs[0], call.outputs[0]);
  const BalanceTerm term(call, scratch, threads);
  return [term, dlogits = call.outputs[0]](Team& team) {
    const float scale = term.scale();
    term.write_gradient(team, dlogits, [&](float* p, double) {
      const float mean = simd::dot(p, term.load, term.experts);
      for (std::int64_t e = 0; e < term.experts; ++e) p[e] *= scale * (term.load[e] - mean);
    });
  };
}

Prepared prepare_z_loss(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 3, 1);
  const RouterTerm term(call, scratch, threads);
  return [term, add = accumulates(call, 0), result = floats(call.outputs[0]),
          parts = scratch.take<float>(term.tokens)](Team& team) {
    double sum = term.sum(team, parts, [&](std::int64_t token, int thread) {
      const double z = term.soften(token, thread);
      return static_cast<float>(z * z);
    });
    sum *= term.coefficient / static_cast<double>(*term.count);
    *result = static_cast<float>(add ? static_cast<double>(*result) + sum : sum);
  };
}

Prepared prepare_z_grad(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 3, 1);
  check_same_shape(call, call.inputs[0], call.outputs[0]);
  const RouterTerm term(call, scratch, threads);
  return [term, dlogits = call.outputs[0]](Team& team) {
    const double scale = 2 * term.coefficient / static_cast<double>(*term.count);
    term.write_gradient(team, dlogits, [&](float* p, double z) {
      simd::scale(p, static_cast<float>(scale * z), p, term.experts);
    });
  };
}

}  // namespace

std::vector<Operator> balance_operators() {
  return {{"expert_load", prepare_expert_load},
          {"balance_loss", prepare_balance_loss},
          {"balance_grad", prepare_balance_grad},
          {"z_loss", prepare_z_loss},
          {"z_grad", prepare_z_grad}};
}

}  // namespace sw::kernels::cpu
