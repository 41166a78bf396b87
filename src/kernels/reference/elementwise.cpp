#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "kernels/dropout.hpp"
#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

std::vector<double> zeros_like(const Shape& shape) {
  return std::vector<double>(static_cast<std::size_t>(elements(shape)), 0.0);
}

void add(const KernelCall& call) {
  std::vector<double> y = zeros_like(shape_of(call, 0));
  for (std::size_t input = 0; input < call.inputs.size(); ++input) {
    const double* x = doubles(call, input);
    for (double& value : y) value += *x++;
  }
  write(call, 0, y);
}

void bias_add(const KernelCall& call) {
  const double* x = doubles(call, 0);
  const double* b = doubles(call, 1);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> y = zeros_like(shape_of(call, 0));
  for (std::int64_t i = 0; i < rows * width; ++i) y[i] = x[i] + b[i % width];
  write(call, 0, y);
}

void bias_add_grad(const KernelCall& call) {
  const double* dy = doubles(call, 0);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> db(static_cast<std::size_t>(width), 0.0);
  for (std::int64_t i = 0; i < rows * width; ++i) db[i % width] += dy[i];
  write(call, 0, db);
}

/// Value and derivative of one function.
struct Point {
  double value;
  double slope;
};

/// Source: Hendrycks and Gimpel 2016, arXiv:1606.08415; the tanh form is equation 2 there.
Point gelu_at(double x, bool tanh_form) {
  if (!tanh_form) {
    const double cdf = 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
    const double pdf = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    return {x * cdf, cdf + x * pdf};
  }
  const double c = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(c * (x + 0.044715 * x * x * x));
  const double inner = c * (1 + 3 * 0.044715 * x * x);
  return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner};
}

double sigmoid_at(double x) { return 1 / (1 + std::exp(-x)); }

Point silu_at(double x) {
  const double s = sigmoid_at(x);
  return {x * s, s * (1 + x * (1 - s))};
}

void gelu(const KernelCall& call) {
  const bool tanh_form = std::get<GeluParameters>(call.parameters).tanh;
  const double* x = doubles(call, 0);
  std::vector<double> y = zeros_like(shape_of(call, 0));
  for (double& value : y) value = gelu_at(*x++, tanh_form).value;
  write(call, 0, y);
}

void gelu_grad(const KernelCall& call) {
  const bool tanh_form = std::get<GeluParameters>(call.parameters).tanh;
  const double* x = doubles(call, 0);
  const double* dy = doubles(call, 1);
  std::vector<double> dx = zeros_like(shape_of(call, 0));
  for (double& value : dx) value = gelu_at(*x++, tanh_form).slope * *dy++;
  write(call, 0, dx);
}

void swiglu(const KernelCall& call) {
  const double* gate = doubles(call, 0);
  const double* up = doubles(call, 1);
  std::vector<double> y = zeros_like(shape_of(call, 0));
  for (double& value : y) value = silu_at(*gate++).value * *up++;
  write(call, 0, y);
}

void swiglu_grad(const KernelCall& call) {
  const double* gate = doubles(call, 0);
  const double* up = doubles(call, 1);
  const double* dy = doubles(call, 2);
  std::vector<double> dgate = zeros_like(shape_of(call, 0));
  std::vector<double> dup = dgate;
  for (std::size_t i = 0; i < dgate.size(); ++i) {
    const Point silu = silu_at(gate[i]);
    dgate[i] = dy[i] * up[i] * silu.slope;
    dup[i] = dy[i] * silu.value;
  }
  write(call, 0, dgate);
  write(call, 1, dup);
}

void sigmoid(const KernelCall& call) {
  const double* x = doubles(call, 0);
  std::vector<double> y = zeros_like(shape_of(call, 0));
  for (double& value : y) value = sigmoid_at(*x++);
  write(call, 0, y);
}

void sigmoid_grad(const KernelCall& call) {
  const double* x = doubles(call, 0);
  const double* dy = doubles(call, 1);
  std::vector<double> dx = zeros_like(shape_of(call, 0));
  for (double& value : dx) {
    const double y = sigmoid_at(*x++);
    value = y * (1 - y) * *dy++;
  }
  write(call, 0, dx);
}

/// The same for x and for its gradient: a product with the mask.
void dropout(const KernelCall& call) {
  const auto& parameters = std::get<DropoutParameters>(call.parameters);
  const double* x = doubles(call, 0);
  const std::int64_t* key = long_integers(call, 1);
  const DropoutMask mask(parameters, key[0], key[1]);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> y = zeros_like(shape_of(call, 0));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = whole_index_of_row(parameters, shape_of(call, 0), row);
    for (std::int64_t column = 0; column < width; ++column) {
      const std::int64_t i = row * width + column;
      y[i] = mask.keeps(first + column) ? x[i] / (1 - parameters.rate) : 0;
    }
  }
  write(call, 0, y);
}

/// In double a cast changes nothing.
void cast(const KernelCall& call) {
  const double* x = doubles(call, 0);
  write(call, 0, std::vector<double>(x, x + elements(shape_of(call, 0))));
}

}  // namespace

std::vector<Operator> elementwise_operators() {
  return {{"add", add},
          {"bias_add", bias_add},
          {"bias_add_grad", bias_add_grad},
          {"gelu", gelu},
          {"gelu_grad", gelu_grad},
          {"swiglu", swiglu},
          {"swiglu_grad", swiglu_grad},
          {"sigmoid", sigmoid},
          {"sigmoid_grad", sigmoid_grad},
          {"dropout", dropout},
          {"dropout_grad", dropout},
          {"cast", cast}};
}

}  // namespace sw::kernels::reference
