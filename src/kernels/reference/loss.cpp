#include <algorithm>
#include <cmath>

#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

std::int64_t start_of(const KernelCall& call) {
  return std::get<VocabularyParameters>(call.parameters).start;
}

void row_max(const KernelCall& call) {
  const double* logits = doubles(call, 0);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> result;
  for (std::int64_t row = 0; row < rows; ++row) {
    result.push_back(*std::max_element(logits + row * width, logits + (row + 1) * width));
  }
  write(call, 0, result);
}

void sum_exp(const KernelCall& call) {
  const double* logits = doubles(call, 0);
  const double* most = doubles(call, 1);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> result(static_cast<std::size_t>(rows), 0.0);
  for (std::int64_t i = 0; i < rows * width; ++i) {
    result[i / width] += std::exp(logits[i] - most[i / width]);
  }
  write(call, 0, result);
}

void pick(const KernelCall& call) {
  const double* logits = doubles(call, 0);
  const std::int32_t* labels = integers(call, 1);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> result(static_cast<std::size_t>(rows), 0.0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t column = labels[row] - start_of(call);
    if (labels[row] >= 0 && column >= 0 && column < width) {
      result[row] = logits[row * width + column];
    }
  }
  write(call, 0, result);
}

void token_loss(const KernelCall& call) {
  const double* most = doubles(call, 0);
  const double* sum = doubles(call, 1);
  const double* picked = doubles(call, 2);
  const std::int32_t* labels = integers(call, 3);
  std::vector<double> result(static_cast<std::size_t>(elements(shape_of(call, 0))), 0.0);
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (labels[i] >= 0) result[i] = std::log(sum[i]) + most[i] - picked[i];
  }
  write(call, 0, result);
}

void loss_sum(const KernelCall& call) {
  const double* losses = doubles(call, 0);
  double sum = 0;
  for (std::int64_t i = 0; i < elements(shape_of(call, 0)); ++i) sum += losses[i];
  write(call, 0, {sum / *doubles(call, 1)});
}

void loss_grad(const KernelCall& call) {
  const double* logits = doubles(call, 0);
  const double* most = doubles(call, 1);
  const double* sum = doubles(call, 2);
  const std::int32_t* labels = integers(call, 3);
  const double count = *doubles(call, 4);
  const auto [rows, width] = rows_of(shape_of(call, 0));
  std::vector<double> result(static_cast<std::size_t>(rows * width), 0.0);
  for (std::int64_t i = 0; i < rows * width; ++i) {
    const std::int64_t row = i / width;
    if (labels[row] < 0) continue;
    const double one_hot = labels[row] - start_of(call) == i % width ? 1 : 0;
    result[i] = (std::exp(logits[i] - most[row]) / sum[row] - one_hot) / count;
  }
  write(call, 0, result);
}

}  // namespace

std::vector<Operator> loss_operators() {
  return {{"row_max", row_max},       {"sum_exp", sum_exp},   {"pick", pick},
          {"token_loss", token_loss}, {"loss_sum", loss_sum}, {"loss_grad", loss_grad}};
}

}  // namespace sw::kernels::reference
