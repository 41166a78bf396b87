#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The sizes of a call and what a query may see, written as the contract says it.
struct Attention {
  explicit Attention(const KernelCall& call)
      : p(std::get<AttentionParameters>(call.parameters)),
        batch(shape_of(call, 0).at(0)),
        queries(shape_of(call, 0).at(1)),
        heads(shape_of(call, 0).at(2)),
        size(shape_of(call, 0).at(3)),
        keys(shape_of(call, 1).at(1)),
        kv_heads(shape_of(call, 1).at(2)),
        positions_q(integers(call, 3)),
        positions_k(integers(call, 4)),
        documents_q(integers(call, 5)),
        documents_k(integers(call, 6)) {}

  [[nodiscard]] std::int64_t kv_head(std::int64_t head) const {
    const std::int64_t result = (p.query_head_start + head) / p.heads_per_kv - p.kv_head_start;
    SW_CHECK(result >= 0 && result < kv_heads, "query head {} needs KV head {} of {}", head, result,
             kv_heads);
    return result;
  }
  [[nodiscard]] bool sees(std::int64_t b, std::int64_t query, std::int64_t key) const {
    const std::int64_t q = b * queries + query;
    const std::int64_t k = b * keys + key;
    return documents_q[q] == documents_k[k] && positions_k[k] <= positions_q[q] &&
           (p.window == 0 || positions_k[k] > positions_q[q] - p.window);
  }
  /// Index of the first element of a query row, of a key row, and of a statistic.
  [[nodiscard]] std::int64_t query_row(std::int64_t b, std::int64_t query, std::int64_t h) const {
    return ((b * queries + query) * heads + h) * size;
  }
  [[nodiscard]] std::int64_t key_row(std::int64_t b, std::int64_t key, std::int64_t h) const {
    return ((b * keys + key) * kv_heads + kv_head(h)) * size;
  }
  [[nodiscard]] double dot(const double* x, const double* y) const {
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) sum += x[i] * y[i];
    return sum;
  }

  AttentionParameters p;
  std::int64_t batch, queries, heads, size, keys, kv_heads;
  const std::int32_t *positions_q, *positions_k, *documents_q, *documents_k;
};

void attention(const KernelCall& call) {
  const Attention a(call);
  const double* q = doubles(call, 0);
  const double* k = doubles(call, 1);
  const double* v = doubles(call, 2);
  std::vector<double> o(static_cast<std::size_t>(elements(shape_of(call, 0))), 0.0);
  std::vector<double> lse(static_cast<std::size_t>(a.batch * a.queries * a.heads), -kInfinity);
  KernelCall whole = call;
  whole.accumulate.clear();
  // Accumulating: a sum of exp(lse) in exponents, and the mean of values over it, are there
  // already.
  std::vector<double> before;
  if (!call.accumulate.empty() && call.accumulate[0]) {
    const auto* there = reinterpret_cast<const double*>(call.outputs[1].data);
    before.assign(there, there + lse.size());
  }
  for (std::int64_t b = 0; b < a.batch; ++b) {
    for (std::int64_t i = 0; i < a.queries; ++i) {
      for (std::int64_t h = 0; h < a.heads; ++h) {
        const std::int64_t row = a.query_row(b, i, h);
        double most = before.empty() ? -kInfinity : before[row / a.size];
        for (std::int64_t j = 0; j < a.keys; ++j) {
          if (a.sees(b, i, j)) {
            most = std::max(most, a.p.scale * a.dot(q + row, k + a.key_row(b, j, h)));
          }
        }
        if (most == -kInfinity) continue;
        double sum = 0;
        if (!before.empty()) {
          const double* there = reinterpret_cast<const double*>(call.outputs[0].data) + row;
          sum = std::exp(before[row / a.size] - most);
          for (std::int64_t x = 0; x < a.size; ++x) o[row + x] = sum * there[x];
        }
        for (std::int64_t j = 0; j < a.keys; ++j) {
          if (!a.sees(b, i, j)) continue;
          const std::int64_t key = a.key_row(b, j, h);
          const double weight = std::exp(a.p.scale * a.dot(q + row, k + key) - most);
          sum += weight;
          for (std::int64_t x = 0; x < a.size; ++x) o[row + x] += weight * v[key + x];
        }
        for (std::int64_t x = 0; x < a.size; ++x) o[row + x] /= sum;
        lse[row / a.size] = most + std::log(sum);
      }
    }
  }
  write(whole, 0, o);
  write(whole, 1, lse);
}

void attention_grad(const KernelCall& call) {
  const Attention a(call);
  const double* q = doubles(call, 0);
  const double* k = doubles(call, 1);
  const double* v = doubles(call, 2);
  const double* o = doubles(call, 7);
  const double* lse = doubles(call, 8);
  const double* d_o = doubles(call, 9);
  std::vector<double> dq(static_cast<std::size_t>(elements(shape_of(call, 0))), 0.0);
  std::vector<double> dk(static_cast<std::size_t>(elements(shape_of(call, 1))), 0.0);
  std::vector<double> dv = dk;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    for (std::int64_t i = 0; i < a.queries; ++i) {
      for (std::int64_t h = 0; h < a.heads; ++h) {
        const std::int64_t row = a.query_row(b, i, h);
        const double delta = a.dot(d_o + row, o + row);
        for (std::int64_t j = 0; j < a.keys; ++j) {
          if (!a.sees(b, i, j)) continue;
          const std::int64_t key = a.key_row(b, j, h);
          const double weight = std::exp(a.p.scale * a.dot(q + row, k + key) - lse[row / a.size]);
          const double ds = weight * (a.dot(d_o + row, v + key) - delta) * a.p.scale;
          for (std::int64_t x = 0; x < a.size; ++x) {
            dq[row + x] += ds * k[key + x];
            dk[key + x] += ds * q[row + x];
            dv[key + x] += weight * d_o[row + x];
          }
        }
      }
    }
  }
  write(call, 0, dq);
  write(call, 1, dk);
  write(call, 2, dv);
}

}  // namespace

std::vector<Operator> attention_operators() {
  return {{"attention", attention}, {"attention_grad", attention_grad}};
}

}  // namespace sw::kernels::reference
