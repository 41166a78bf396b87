#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/rows.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

Prepared prepare_expert_load(const KernelCall& call, Scratch& scratch, int) {
  check_views(call, 2, 1);
  const View& choice = call.inputs[0];
  const std::int64_t slots = elements(choice.shape);
  const std::int64_t tokens = elements(call.inputs[1].shape);
  const std::int64_t experts = elements(call.outputs[0].shape);
  SW_CHECK(tokens > 0 && slots % tokens == 0, "{}: {} slots of {} tokens", call.op, slots, tokens);
  return [=, numbers = integers(choice), labels = integers(call.inputs[1]),
          load = floats(call.outputs[0]), counts = scratch.take<std::int64_t>(experts)](Team&) {
    std::fill_n(counts, experts, 0);
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      const std::int64_t expert = numbers[slot];
      SW_CHECK(expert >= 0 && expert < experts, "slot {} chose expert {} of {}", slot, expert,
               experts);
      if (labels[slot / (slots / tokens)] >= 0) ++counts[expert];
    }
    for (std::int64_t e = 0; e < experts; ++e) load[e] = static_cast<float>(counts[e]);
  };
}

/// What both operators of the balance loss read.
struct Balance {
  View logits;
  const float* load;
  const std::int32_t* labels;
  const float* count;
  double coefficient;
  std::int64_t tokens;
  std::int64_t experts;
  float* rows;  ///< [threads, 2, E]

  Balance(const KernelCall& call, Scratch& scratch, int threads)
      : logits(call.inputs[0]),
        load(floats(call.inputs[1])),
        labels(integers(call.inputs[2])),
        count(floats(call.inputs[3])),
        coefficient(std::get<BalanceParameters>(call.parameters).coefficient),
        tokens(rows_of(logits.shape).count),
        experts(rows_of(logits.shape).width),
        rows(scratch.take<float>(threads * 2 * experts)) {
    SW_CHECK(elements(call.inputs[1].shape) == experts &&
                 elements(call.inputs[2].shape) == tokens && experts > 0,
             "{}: {} with the load {}", call.op, to_text(logits.shape),
             to_text(call.inputs[1].shape));
  }

  /// What a token's sum of load times probability counts for.
  [[nodiscard]] float scale() const {
    double slots = 0;
    for (std::int64_t e = 0; e < experts; ++e) slots += static_cast<double>(load[e]);
    if (slots == 0) return 0;
    return static_cast<float>(coefficient * static_cast<double>(experts) /
                              (static_cast<double>(*count) * slots));
  }

  [[nodiscard]] float* probabilities(int thread) const { return rows + thread * 2 * experts; }

  /// A token's softmax into `probabilities`; returns its sum of load times probability.
  [[nodiscard]] float weigh(std::int64_t token, int thread) const {
    float* p = probabilities(thread);
    const float* row = read(logits, token * experts, experts, p + experts);
    const float most = simd::maximum(row, experts);
    const auto factor = static_cast<float>(1 / simd::sum_of_exponentials(row, most, experts));
    simd::exponentials(row, most, factor, p, experts);
    return simd::dot(p, load, experts);
  }

  template <typename Body>
  void for_tokens(Team& team, const Body& body) const {
    const std::int64_t tile_tokens = rows_per_tile(experts);
    for_tiles(team, tiles_of(tokens, tile_tokens), [&](std::int64_t tile, int thread) {
      const std::int64_t end = std::min(tokens, (tile + 1) * tile_tokens);
      for (std::int64_t token = tile * tile_tokens; token < end; ++token) body(token, thread);
    });
  }
};

/// Each token's part first, then their sum in order.
Prepared prepare_balance_loss(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 4, 1);
  const Balance balance(call, scratch, threads);
  return [balance, add = accumulates(call, 0), result = floats(call.outputs[0]),
          parts = scratch.take<float>(balance.tokens)](Team& team) {
    balance.for_tokens(team, [&](std::int64_t token, int thread) {
      parts[token] = balance.labels[token] < 0 ? 0.0F : balance.weigh(token, thread);
    });
    double sum = 0;
    for (std::int64_t token = 0; token < balance.tokens; ++token) {
      sum += static_cast<double>(parts[token]);
    }
    sum *= static_cast<double>(balance.scale());
    *result = static_cast<float>(add ? static_cast<double>(*result) + sum : sum);
  };
}

Prepared prepare_balance_grad(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 4, 1);
  check_same_shape(call, call.inputs[0], call.outputs[0]);
  const Balance balance(call, scratch, threads);
  return [balance, dlogits = call.outputs[0]](Team& team) {
    const std::int64_t experts = balance.experts;
    const float scale = balance.scale();
    balance.for_tokens(team, [&](std::int64_t token, int thread) {
      if (balance.labels[token] < 0) return fill_zero(dlogits, token * experts, experts);
      const float mean = balance.weigh(token, thread);
      float* p = balance.probabilities(thread);
      for (std::int64_t e = 0; e < experts; ++e) p[e] *= scale * (balance.load[e] - mean);
      store(dlogits, token * experts, experts, p, false);
    });
  };
}

}  // namespace

std::vector<Operator> balance_operators() {
  return {{"expert_load", prepare_expert_load},
          {"balance_loss", prepare_balance_loss},
          {"balance_grad", prepare_balance_grad}};
}

}  // namespace sw::kernels::cpu
