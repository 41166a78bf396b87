#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/cpu/operator.hpp"
#include "kernels/cpu/simd/elementwise.hpp"
#include "kernels/cpu/simd/rows.hpp"
#include "kernels/cpu/views.hpp"

namespace sw::kernels::cpu {
namespace {

/// Sizes of a routing and a thread's memory for one token.
struct Routing {
  std::int64_t tokens;
  std::int64_t experts;
  std::int64_t chosen;
  bool normalize;
  float* rows;   ///< [threads, E]
  float* gates;  ///< [threads, k]

  Routing(const KernelCall& call, Scratch& scratch, int threads) {
    const auto& parameters = std::get<RouteParameters>(call.parameters);
    const Rows all = rows_of(call.inputs[0].shape);
    tokens = all.count;
    experts = all.width;
    chosen = parameters.chosen;
    normalize = parameters.normalize;
    SW_CHECK(chosen >= 1 && chosen <= experts, "{}: {} of {} experts", call.op, chosen, experts);
    rows = scratch.take<float>(threads * experts);
    gates = scratch.take<float>(threads * chosen);
  }

  void check_slots(const KernelCall& call, const View& view) const {
    SW_CHECK(elements(view.shape) == tokens * chosen, "{}: {} for {} tokens of {} slots", call.op,
             to_text(view.shape), tokens, chosen);
  }

  [[nodiscard]] float* row(int thread) const { return rows + thread * experts; }
  [[nodiscard]] float* gate(int thread) const { return gates + thread * chosen; }

  /// body(token, thread)
  template <typename Body>
  void for_tokens(Team& team, const Body& body) const {
    const std::int64_t tile_tokens = rows_per_tile(experts);
    for_tiles(team, tiles_of(tokens, tile_tokens), [&](std::int64_t tile, int thread) {
      const std::int64_t end = std::min(tokens, (tile + 1) * tile_tokens);
      for (std::int64_t token = tile * tile_tokens; token < end; ++token) {
        body(token, thread);
      }
    });
  }

  /// The largest in falling order; of equals the first.
  void choose(const float* scores, std::int32_t* choice) const {
    std::int64_t found = 0;
    for (std::int32_t e = 0; e < experts; ++e) {
      std::int64_t at = found;
      while (at > 0 && scores[e] > scores[choice[at - 1]]) --at;
      if (at == chosen) continue;
      found = std::min(found + 1, chosen);
      std::copy_backward(choice + at, choice + found - 1, choice + found);
      choice[at] = e;
    }
  }

  /// Gates of the chosen; returns what exp(logit - most) is to be multiplied with. A logit that is
  /// not a number makes all gates so.
  [[nodiscard]] float weigh(const float* logits, const std::int32_t* choice, float* gate) const {
    float most = simd::maximum(logits, experts);
    if (normalize && !std::isnan(most)) {  // with a bias the largest may not be among the chosen
      most = logits[choice[0]];
      for (std::int64_t slot = 1; slot < chosen; ++slot) {
        most = std::max(most, logits[choice[slot]]);
      }
    }
    double sum = 0;
    for (std::int64_t slot = 0; slot < chosen; ++slot) {
      gate[slot] = std::exp(logits[choice[slot]] - most);
      sum += static_cast<double>(gate[slot]);
    }
    if (!normalize) sum = simd::sum_of_exponentials(logits, most, experts);
    const auto factor = static_cast<float>(1 / sum);
    simd::scale(gate, factor, gate, chosen);
    return factor;
  }
};

Prepared prepare_route(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, std::clamp<std::size_t>(call.inputs.size(), 1, 2), 2, 1);
  const Routing routing(call, scratch, threads);
  for (const View& view : call.outputs) routing.check_slots(call, view);
  const bool biased = call.inputs.size() == 2;
  SW_CHECK(!biased || elements(call.inputs[1].shape) == routing.experts, "{}: {} with a bias {}",
           call.op, to_text(call.inputs[0].shape), to_text(call.inputs[1].shape));
  const float* bias = biased ? floats(call.inputs[1]) : nullptr;
  float* sums = biased ? scratch.take<float>(threads * routing.experts) : nullptr;
  return [routing, biased, bias, sums, logits = call.inputs[0], gates = call.outputs[0],
          choices = written_integers(call.outputs[1])](Team& team) {
    const std::int64_t experts = routing.experts;
    const std::int64_t chosen = routing.chosen;
    routing.for_tokens(team, [&](std::int64_t token, int thread) {
      const float* row = read(logits, token * experts, experts, routing.row(thread));
      std::int32_t* choice = choices + token * chosen;
      if (biased) {
        float* scores = sums + thread * experts;
        const float most = simd::maximum(row, experts);
        const auto factor = static_cast<float>(1 / simd::sum_of_exponentials(row, most, experts));
        simd::exponentials(row, most, factor, scores, experts);
        for (std::int64_t e = 0; e < experts; ++e) scores[e] += bias[e];
        routing.choose(scores, choice);
      } else {
        routing.choose(row, choice);
      }
      float* gate = routing.gate(thread);
      (void)routing.weigh(row, choice, gate);
      store(gates, token * chosen, chosen, gate, false);
    });
  };
}

/// With m = the sum over slots of gate dgate: dlogit = p (dgate - m) of a chosen expert and -p m of
/// another, where p is its softmax; normalized, p is the gate and the others have none.
struct RouteGrad {
  Routing routing;
  View logits;
  const std::int32_t* choices;
  View dgate;
  View dlogits;
  float* received;  ///< [threads, k]: dgate in float32
  float* results;   ///< [threads, E]

  void run_token(std::int64_t token, int thread) const {
    const std::int64_t experts = routing.experts;
    const std::int64_t chosen = routing.chosen;
    const float* row = read(logits, token * experts, experts, routing.row(thread));
    const std::int32_t* choice = choices + token * chosen;
    float* gate = routing.gate(thread);
    const float* d = read(dgate, token * chosen, chosen, received + thread * chosen);
    float* result = results + thread * experts;
    const float factor = routing.weigh(row, choice, gate);
    const float mean = simd::dot(gate, d, chosen);
    if (routing.normalize) {
      std::fill_n(result, experts, 0.0F);
    } else {
      simd::exponentials(row, simd::maximum(row, experts), -mean * factor, result, experts);
    }
    for (std::int64_t slot = 0; slot < chosen; ++slot) {
      result[choice[slot]] = gate[slot] * (d[slot] - mean);
    }
    store(dlogits, token * experts, experts, result, false);
  }
};

Prepared prepare_route_grad(const KernelCall& call, Scratch& scratch, int threads) {
  check_views(call, 3, 1);
  check_same_shape(call, call.inputs[0], call.outputs[0]);
  const Routing routing(call, scratch, threads);
  for (const std::size_t i : {1, 2}) routing.check_slots(call, call.inputs[i]);
  const RouteGrad grad{.routing = routing,
                       .logits = call.inputs[0],
                       .choices = integers(call.inputs[1]),
                       .dgate = call.inputs[2],
                       .dlogits = call.outputs[0],
                       .received = scratch.take<float>(threads * routing.chosen),
                       .results = scratch.take<float>(threads * routing.experts)};
  return [grad](Team& team) {
    grad.routing.for_tokens(team,
                            [&](std::int64_t token, int thread) { grad.run_token(token, thread); });
  };
}

/// In the order of slots: cheap beside the router's product, so one thread does it.
Prepared prepare_drop_slots(const KernelCall& call, Scratch& scratch, int) {
  check_views(call, 1, 1, 1);
  const auto& parameters = std::get<CapacityParameters>(call.parameters);
  const std::int64_t slots = elements(call.inputs[0].shape);
  SW_CHECK(elements(call.outputs[0].shape) == slots && parameters.experts > 0,
           "{}: {} into {} of {} experts", call.op, to_text(call.inputs[0].shape),
           to_text(call.outputs[0].shape), parameters.experts);
  return [slots, experts = parameters.experts, most = capacity(parameters, slots),
          choice = integers(call.inputs[0]), kept = written_integers(call.outputs[0]),
          taken = scratch.take<std::int64_t>(parameters.experts)](Team&) {
    std::fill_n(taken, experts, 0);
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      const std::int32_t expert = choice[slot];
      SW_CHECK(expert >= 0 && expert < experts, "slot {} chose expert {} of {}", slot, expert,
               experts);
      kept[slot] = taken[expert]++ < most ? expert : -1;
    }
  };
}

}  // namespace

std::vector<Operator> route_operators() {
  return {{"route", prepare_route},
          {"route_grad", prepare_route_grad},
          {"drop_slots", prepare_drop_slots}};
}

}  // namespace sw::kernels::cpu
