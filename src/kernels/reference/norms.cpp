#include <cmath>

#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

double epsilon_of(const KernelCall& call) {
  return std::get<NormParameters>(call.parameters).epsilon;
}

std::vector<double> zeros(std::int64_t count) {
  return std::vector<double>(static_cast<std::size_t>(count), 0.0);
}

/// 1 / sqrt(mean square + epsilon) of one row.
double inverse_rms(const double* x, std::int64_t width, double epsilon) {
  double squares = 0;
  for (std::int64_t i = 0; i < width; ++i) squares += x[i] * x[i];
  return 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
}

void rms_norm(const KernelCall& call) {
  const double* x = doubles(call, 0);
  const double* w = doubles(call, 1);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> y = zeros(rows * width);
  for (std::int64_t row = 0; row < rows; ++row) {
    const double inverse = inverse_rms(x + row * width, width, epsilon_of(call));
    for (std::int64_t i = 0; i < width; ++i) {
      y[row * width + i] = x[row * width + i] * inverse * w[i];
    }
  }
  write(call, 0, y);
}

void rms_norm_grad(const KernelCall& call) {
  const double* w = doubles(call, 1);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> dx = zeros(rows * width);
  std::vector<double> dw = zeros(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* x = doubles(call, 0) + row * width;
    const double* dy = doubles(call, 2) + row * width;
    const double inverse = inverse_rms(x, width, epsilon_of(call));
    double mean = 0;  // of dy * w * normalized x
    for (std::int64_t i = 0; i < width; ++i) {
      mean += dy[i] * w[i] * x[i] * inverse / static_cast<double>(width);
    }
    for (std::int64_t i = 0; i < width; ++i) {
      dx[row * width + i] = inverse * (dy[i] * w[i] - x[i] * inverse * mean);
      dw[i] += dy[i] * x[i] * inverse;
    }
  }
  write(call, 0, dx);
  write(call, 1, dw);
}

struct Moments {
  double mean;
  double inverse_deviation;
};

Moments moments(const double* x, std::int64_t width, double epsilon) {
  double mean = 0;
  for (std::int64_t i = 0; i < width; ++i) mean += x[i] / static_cast<double>(width);
  double variance = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(width);
  }
  return {mean, 1 / std::sqrt(variance + epsilon)};
}

void layer_norm(const KernelCall& call) {
  const double* w = doubles(call, 1);
  const double* b = doubles(call, 2);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> y = zeros(rows * width);
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* x = doubles(call, 0) + row * width;
    const auto [mean, inverse] = moments(x, width, epsilon_of(call));
    for (std::int64_t i = 0; i < width; ++i) {
      y[row * width + i] = (x[i] - mean) * inverse * w[i] + b[i];
    }
  }
  write(call, 0, y);
}

void layer_norm_grad(const KernelCall& call) {
  const double* w = doubles(call, 1);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> dx = zeros(rows * width);
  std::vector<double> dw = zeros(width);
  std::vector<double> db = zeros(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* x = doubles(call, 0) + row * width;
    const double* dy = doubles(call, 3) + row * width;
    const auto [mean, inverse] = moments(x, width, epsilon_of(call));
    double mean_g = 0;         // of g = dy * w
    double mean_g_normal = 0;  // of g * normalized x
    for (std::int64_t i = 0; i < width; ++i) {
      mean_g += dy[i] * w[i] / static_cast<double>(width);
      mean_g_normal += dy[i] * w[i] * (x[i] - mean) * inverse / static_cast<double>(width);
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const double normal = (x[i] - mean) * inverse;
      dx[row * width + i] = inverse * (dy[i] * w[i] - mean_g - normal * mean_g_normal);
      dw[i] += dy[i] * normal;
      db[i] += dy[i];
    }
  }
  write(call, 0, dx);
  write(call, 1, dw);
  write(call, 2, db);
}

}  // namespace

std::vector<Operator> norm_operators() {
  return {{"rms_norm", rms_norm},
          {"rms_norm_grad", rms_norm_grad},
          {"layer_norm", layer_norm},
          {"layer_norm_grad", layer_norm_grad}};
}

}  // namespace sw::kernels::reference
