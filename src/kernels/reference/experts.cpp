#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

std::vector<double> nothing_of(const Shape& shape) {
  return std::vector<double>(static_cast<std::size_t>(elements(shape)), 0.0);
}

/// A row's softmax.
std::vector<double> probabilities(const double* logits, std::int64_t experts) {
  const double most = *std::max_element(logits, logits + experts);
  std::vector<double> p(logits, logits + experts);
  for (double& value : p) value = std::exp(value - most);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

/// What the gates of a token are divided by.
double divisor(const RouteParameters& parameters, const std::vector<double>& p,
               const std::int32_t* choice) {
  if (!parameters.normalize) return 1;
  double sum = 0;
  for (std::int64_t slot = 0; slot < parameters.chosen; ++slot) sum += p[choice[slot]];
  return sum;
}

void route(const KernelCall& call) {
  const auto& parameters = std::get<RouteParameters>(call.parameters);
  const auto [tokens, experts] = rows_of(shape_of(call, 0));
  std::vector<double> gate;
  std::vector<std::int32_t> choice;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const double* logits = doubles(call, 0) + token * experts;
    std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    const std::vector<double> p = probabilities(logits, experts);
    std::vector<double> scores(logits, logits + experts);
    if (call.inputs.size() == 2) {
      std::transform(p.begin(), p.end(), doubles(call, 1), scores.begin(), std::plus<>());
    }
    std::ranges::stable_sort(order,
                             [&](std::int32_t a, std::int32_t b) { return scores[a] > scores[b]; });
    for (std::int64_t slot = 0; slot < parameters.chosen; ++slot) {
      gate.push_back(p[order[slot]] / divisor(parameters, p, order.data()));
      choice.push_back(order[slot]);
    }
  }
  write(call, 0, gate);
  write_integers(call, 1, choice);
}

/// Through the quotient, then through the softmax of all experts.
void route_grad(const KernelCall& call) {
  const auto& parameters = std::get<RouteParameters>(call.parameters);
  const std::int64_t chosen = parameters.chosen;
  const auto [tokens, experts] = rows_of(shape_of(call, 0));
  std::vector<double> dlogits = nothing_of(shape_of(call, 0));
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::vector<double> p = probabilities(doubles(call, 0) + token * experts, experts);
    const std::int32_t* choice = integers(call, 1) + token * chosen;
    const double* dgate = doubles(call, 2) + token * chosen;
    const double sum = divisor(parameters, p, choice);
    double dsum = 0;  // of gate = p / sum
    for (std::int64_t slot = 0; slot < chosen; ++slot) {
      dsum -= dgate[slot] * p[choice[slot]] / (sum * sum);
    }
    std::vector<double> dp(p.size(), 0.0);
    for (std::int64_t slot = 0; slot < chosen; ++slot) {
      dp[choice[slot]] += dgate[slot] / sum + (parameters.normalize ? dsum : 0);
    }
    const double mean = std::inner_product(p.begin(), p.end(), dp.begin(), 0.0);
    for (std::int64_t e = 0; e < experts; ++e) {
      dlogits[token * experts + e] = p[e] * (dp[e] - mean);
    }
  }
  write(call, 0, dlogits);
}

/// Slots of a token: [B,S,k,D].
std::int64_t slots_of(const Shape& slots) { return slots.at(slots.size() - 2); }

void dispatch(const KernelCall& call) {
  const double* x = doubles(call, 0);
  const std::int64_t chosen = slots_of(call.outputs.at(0).shape);
  const auto [tokens, width] = rows_of(shape_of(call, 0));
  std::vector<double> y;
  for (std::int64_t slot = 0; slot < tokens * chosen; ++slot) {
    const double* row = x + slot / chosen * width;
    y.insert(y.end(), row, row + width);
  }
  write(call, 0, y);
}

void combine(const KernelCall& call) {
  const double* y = doubles(call, 0);
  const std::int64_t chosen = slots_of(shape_of(call, 0));
  const auto [slots, width] = rows_of(shape_of(call, 0));
  std::vector<double> x = nothing_of(call.outputs.at(0).shape);
  for (std::int64_t i = 0; i < slots * width; ++i) {
    x[i / width / chosen * width + i % width] += y[i];
  }
  write(call, 0, x);
}

/// Calls visit(o of a slot's output, o and i of its expert's matrix, i of its input), each an index
/// into the whole tensor. `choice` and the weight's shape give the sizes.
template <typename Visit>
void for_products(const std::int32_t* choice, std::int64_t slots, const Shape& weight,
                  const Visit& visit) {
  const std::int64_t outputs = weight.at(1);
  const std::int64_t inputs = weight.at(2);
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    if (choice[slot] < 0) continue;
    for (std::int64_t o = 0; o < outputs; ++o) {
      for (std::int64_t i = 0; i < inputs; ++i) {
        visit(slot * outputs + o, (choice[slot] * outputs + o) * inputs + i, slot * inputs + i);
      }
    }
  }
}

void expert_product(const KernelCall& call) {
  const double* x = doubles(call, 0);
  const double* w = doubles(call, 1);
  std::vector<double> y = nothing_of(call.outputs.at(0).shape);
  for_products(
      integers(call, 2), elements(shape_of(call, 2)), shape_of(call, 1),
      [&](std::int64_t out, std::int64_t at, std::int64_t in) { y[out] += w[at] * x[in]; });
  write(call, 0, y);
}

void expert_product_grad_input(const KernelCall& call) {
  const double* dy = doubles(call, 0);
  const double* w = doubles(call, 1);
  std::vector<double> dx = nothing_of(call.outputs.at(0).shape);
  for_products(
      integers(call, 2), elements(shape_of(call, 2)), shape_of(call, 1),
      [&](std::int64_t out, std::int64_t at, std::int64_t in) { dx[in] += w[at] * dy[out]; });
  write(call, 0, dx);
}

void expert_product_grad_weight(const KernelCall& call) {
  const double* x = doubles(call, 0);
  const double* dy = doubles(call, 2);
  const Shape& weight = call.outputs.at(0).shape;
  std::vector<double> dw = nothing_of(weight);
  for_products(
      integers(call, 1), elements(shape_of(call, 1)), weight,
      [&](std::int64_t out, std::int64_t at, std::int64_t in) { dw[at] += dy[out] * x[in]; });
  write(call, 0, dw);
}

void scale_rows(const KernelCall& call) {
  const double* x = doubles(call, 0);
  const double* scale = doubles(call, 1);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> y = nothing_of(shape_of(call, 0));
  for (std::int64_t i = 0; i < rows * width; ++i) y[i] = x[i] * scale[i / width];
  write(call, 0, y);
}

void scale_rows_grad(const KernelCall& call) {
  const double* x = doubles(call, 0);
  const double* scale = doubles(call, 1);
  const double* dy = doubles(call, 2);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> dx = nothing_of(shape_of(call, 0));
  std::vector<double> dscale = nothing_of(shape_of(call, 1));
  for (std::int64_t i = 0; i < rows * width; ++i) {
    dx[i] = dy[i] * scale[i / width];
    dscale[i / width] += dy[i] * x[i];
  }
  write(call, 0, dx);
  write(call, 1, dscale);
}

/// A slot is kept if fewer slots before it chose its expert than the expert takes.
void drop_slots(const KernelCall& call) {
  const std::int32_t* choice = integers(call, 0);
  const std::int64_t slots = elements(shape_of(call, 0));
  const std::int64_t most = capacity(std::get<CapacityParameters>(call.parameters), slots);
  std::vector<std::int32_t> kept;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const auto before = std::count(choice, choice + slot, choice[slot]);
    kept.push_back(before < most ? choice[slot] : -1);
  }
  write_integers(call, 0, kept);
}

}  // namespace

std::vector<Operator> expert_operators() {
  return {{"route", route},
          {"route_grad", route_grad},
          {"drop_slots", drop_slots},
          {"dispatch", dispatch},
          {"combine", combine},
          {"expert_product", expert_product},
          {"expert_product_grad_input", expert_product_grad_input},
          {"expert_product_grad_weight", expert_product_grad_weight},
          {"scale_rows", scale_rows},
          {"scale_rows_grad", scale_rows_grad}};
}

}  // namespace sw::kernels::reference
