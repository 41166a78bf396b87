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
  std::vector<std::int64_t> load(static_cast<std::size_t>(call.outputs.at(0).shape.at(0)), 0);
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    if (choice[slot] >= 0 && labels[slot / chosen] >= 0) load[choice[slot]] += 1;
  }
  if (call.outputs[0].dtype == DType::Int64) return write_long_integers(call, 0, load);
  write(call, 0, {load.begin(), load.end()});
}

/// What the terms that a router adds to the loss read.
struct RouterTerm {
  const double* logits;
  const std::int32_t* labels;
  std::int64_t tokens;
  std::int64_t experts;
  double scale;  ///< of a token

  explicit RouterTerm(const KernelCall& call)
      : logits(doubles(call, 0)),
        labels(integers(call, call.inputs.size() - 2)),
        tokens(rows_of(shape_of(call, 0)).count),
        experts(shape_of(call, 0).back()),
        scale(std::get<TermParameters>(call.parameters).coefficient /
              *doubles(call, call.inputs.size() - 1)) {}

  [[nodiscard]] bool counts(std::int64_t token) const { return labels[token] >= 0; }
  /// log(sum(exp(logits)))
  [[nodiscard]] double log_sum(std::int64_t token) const {
    const double* row = logits + token * experts;
    const double most = *std::max_element(row, row + experts);
    double sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(row[e] - most);
    return most + std::log(sum);
  }
  [[nodiscard]] std::vector<double> softmax(std::int64_t token) const {
    std::vector<double> p;
    const double* row = logits + token * experts;
    for (std::int64_t e = 0; e < experts; ++e) p.push_back(std::exp(row[e] - log_sum(token)));
    return p;
  }
};

struct BalanceTerm : RouterTerm {
  std::vector<double> share;  ///< of the slots, per expert

  explicit BalanceTerm(const KernelCall& call)
      : RouterTerm(call), share(doubles(call, 1), doubles(call, 1) + experts) {
    scale *= static_cast<double>(experts);
    const double slots = std::accumulate(share.begin(), share.end(), 0.0);
    for (double& value : share) value = slots > 0 ? value / slots : 0;
  }
};

void balance_loss(const KernelCall& call) {
  const BalanceTerm balance(call);
  double loss = 0;
  for (std::int64_t token = 0; token < balance.tokens; ++token) {
    if (!balance.counts(token)) continue;
    const std::vector<double> p = balance.softmax(token);
    loss += balance.scale * std::inner_product(p.begin(), p.end(), balance.share.begin(), 0.0);
  }
  write(call, 0, {loss});
}

void balance_grad(const KernelCall& call) {
  const BalanceTerm balance(call);
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

void z_loss(const KernelCall& call) {
  const RouterTerm term(call);
  double loss = 0;
  for (std::int64_t token = 0; token < term.tokens; ++token) {
    if (term.counts(token)) loss += term.scale * std::pow(term.log_sum(token), 2);
  }
  write(call, 0, {loss});
}

void z_grad(const KernelCall& call) {
  const RouterTerm term(call);
  std::vector<double> dlogits;
  for (std::int64_t token = 0; token < term.tokens; ++token) {
    for (const double p : term.softmax(token)) {
      dlogits.push_back(term.counts(token) ? 2 * term.scale * term.log_sum(token) * p : 0);
    }
  }
  write(call, 0, dlogits);
}

}  // namespace

std::vector<Operator> balance_operators() {
  return {{"expert_load", expert_load},
          {"balance_loss", balance_loss},
          {"balance_grad", balance_grad},
          {"z_loss", z_loss},
          {"z_grad", z_grad}};
}

}  // namespace sw::kernels::reference
