#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

void expert_load(const KernelCall& call) {
  const std::int32_t* choice = integers(call, 0);
  const std::int32_t* labels = integers(call, 1);
  const std::int64_t slots = elements(shape_of(call, 0));
  const std::int64_t chosen = shape_of(call, 0).back();
  std::vector<double> load(static_cast<std::size_t>(call.outputs.at(0).shape.at(0)), 0.0);
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    if (labels[slot / chosen] >= 0) load[choice[slot]] += 1;
  }
  write(call, 0, load);
}

/// What both operators of the balance loss read.
struct Balance {
  const double* logits;
  const std::int32_t* labels;
  std::int64_t tokens;
  std::int64_t experts;
  std::vector<double> share;  ///< of the slots, per expert
  double scale;

  explicit Balance(const KernelCall& call)
      : logits(doubles(call, 0)),
        labels(integers(call, 2)),
        tokens(rows_of(shape_of(call, 0)).count),
        experts(shape_of(call, 0).back()),
        share(doubles(call, 1), doubles(call, 1) + experts),
        scale(std::get<BalanceParameters>(call.parameters).coefficient *
              static_cast<double>(experts) / *doubles(call, 3)) {
    const double slots = std::accumulate(share.begin(), share.end(), 0.0);
    for (double& value : share) value = slots > 0 ? value / slots : 0;
  }

  [[nodiscard]] bool counts(std::int64_t token) const { return labels[token] >= 0; }
  [[nodiscard]] std::vector<double> softmax(std::int64_t token) const {
    const double* row = logits + token * experts;
    const double most = *std::max_element(row, row + experts);
    std::vector<double> p;
    for (std::int64_t e = 0; e < experts; ++e) p.push_back(std::exp(row[e] - most));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
    return p;
  }
};

void balance_loss(const KernelCall& call) {
  const Balance balance(call);
  double loss = 0;
  for (std::int64_t token = 0; token < balance.tokens; ++token) {
    if (!balance.counts(token)) continue;
    const std::vector<double> p = balance.softmax(token);
    loss += balance.scale * std::inner_product(p.begin(), p.end(), balance.share.begin(), 0.0);
  }
  write(call, 0, {loss});
}

void balance_grad(const KernelCall& call) {
  const Balance balance(call);
  std::vector<double> dlogits;
  for (std::int64_t token = 0; token < balance.tokens; ++token) {
    const std::vector<double> p = balance.softmax(token);
    const double mean = std::inner_product(p.begin(), p.end(), balance.share.begin(), 0.0);
    for (std::size_t e = 0; e < p.size(); ++e) {
      const double slope = balance.scale * p[e] * (balance.share[e] - mean);
      dlogits.push_back(balance.counts(token) ? slope : 0);
    }
  }
  write(call, 0, dlogits);
}

}  // namespace

std::vector<Operator> balance_operators() {
  return {
      {"expert_load", expert_load}, {"balance_loss", balance_loss}, {"balance_grad", balance_grad}};
}

}  // namespace sw::kernels::reference
