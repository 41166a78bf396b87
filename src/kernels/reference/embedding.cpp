#include "kernels/reference/operator.hpp"

namespace sw::kernels::reference {
namespace {

/// Local row of the table for an id, or -1.
std::int64_t local_row(const KernelCall& call, std::int32_t id, std::int64_t rows) {
  const std::int64_t row = id - std::get<VocabularyParameters>(call.parameters).start;
  return row >= 0 && row < rows ? row : -1;
}

void embedding(const KernelCall& call) {
  const std::int32_t* ids = integers(call, 0);
  const double* w = doubles(call, 1);
  const auto [rows, width] = rows_of(shape_of(call, 1));
  const std::int64_t count = elements(shape_of(call, 0));
  std::vector<double> y(static_cast<std::size_t>(count * width), 0.0);
  for (std::int64_t i = 0; i < count * width; ++i) {
    const std::int64_t row = local_row(call, ids[i / width], rows);
    if (row >= 0) y[i] = w[row * width + i % width];
  }
  write(call, 0, y);
}

void embedding_grad(const KernelCall& call) {
  const std::int32_t* ids = integers(call, 0);
  const double* dy = doubles(call, 2);
  const auto [rows, width] = rows_of(call.outputs.at(0).shape);
  const std::int64_t count = elements(shape_of(call, 0));
  std::vector<double> dw(static_cast<std::size_t>(rows * width), 0.0);
  for (std::int64_t i = 0; i < count * width; ++i) {
    const std::int64_t row = local_row(call, ids[i / width], rows);
    if (row >= 0) dw[row * width + i % width] += dy[i];
  }
  write(call, 0, dw);
}

}  // namespace

std::vector<Operator> embedding_operators() {
  return {{"embedding", embedding}, {"embedding_grad", embedding_grad}};
}

}  // namespace sw::kernels::reference
