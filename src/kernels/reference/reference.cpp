#include <algorithm>

#include "base/error.hpp"
#include "kernels/reference/operator.hpp"

namespace sw::kernels {
namespace reference {
namespace {

template <typename T>
const T* typed(const KernelCall& call, std::size_t index, DType dtype) {
  const View& view = call.inputs.at(index);
  SW_CHECK(view.dtype == dtype, "the reference of {} reads {} as input {} and got {}", call.op,
           to_text(dtype), index, to_text(view.dtype));
  return reinterpret_cast<const T*>(view.data);
}

template <typename T>
T* written(const KernelCall& call, std::size_t index, DType dtype, std::size_t values) {
  const View& view = call.outputs.at(index);
  SW_CHECK(view.dtype == dtype, "the reference of {} writes {} as output {} and got {}", call.op,
           to_text(dtype), index, to_text(view.dtype));
  SW_CHECK(elements(view.shape) == static_cast<std::int64_t>(values),
           "output {} of {} has shape {} and {} values", index, call.op, to_text(view.shape),
           values);
  return reinterpret_cast<T*>(view.data);
}

/// The only list of references.
std::vector<Operator> all_operators() {
  std::vector<Operator> all;
  for (const auto& part : {einsum_operators(), elementwise_operators(), norm_operators(),
                           rope_operators(), attention_operators(), embedding_operators(),
                           loss_operators(), expert_operators(), balance_operators()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

const double* doubles(const KernelCall& call, std::size_t index) {
  return typed<double>(call, index, DType::Float64);
}

const std::int32_t* integers(const KernelCall& call, std::size_t index) {
  return typed<std::int32_t>(call, index, DType::Int32);
}

const std::int64_t* long_integers(const KernelCall& call, std::size_t index) {
  return typed<std::int64_t>(call, index, DType::Int64);
}

const Shape& shape_of(const KernelCall& call, std::size_t input) {
  return call.inputs.at(input).shape;
}

Rows rows_of(const Shape& shape) {
  const std::int64_t width = shape.empty() ? 1 : shape.back();
  return {width == 0 ? 0 : elements(shape) / width, width};
}

void write(const KernelCall& call, std::size_t index, const std::vector<double>& values) {
  auto* out = written<double>(call, index, DType::Float64, values.size());
  const bool add = index < call.accumulate.size() && call.accumulate[index];
  for (const double value : values) {
    *out = add ? *out + value : value;
    ++out;
  }
}

void write_integers(const KernelCall& call, std::size_t index,
                    const std::vector<std::int32_t>& values) {
  std::ranges::copy(values, written<std::int32_t>(call, index, DType::Int32, values.size()));
}

void write_long_integers(const KernelCall& call, std::size_t index,
                         const std::vector<std::int64_t>& values) {
  auto* out = written<std::int64_t>(call, index, DType::Int64, values.size());
  const bool add = index < call.accumulate.size() && call.accumulate[index];
  for (const std::int64_t value : values) {
    *out = add ? *out + value : value;
    ++out;
  }
}

}  // namespace reference

void run_reference(const KernelCall& call) {
  for (const reference::Operator& op : reference::all_operators()) {
    if (op.name == call.op) return op.run(call);
  }
  SW_CHECK(false, "operator {} has no reference", call.op);
}

std::vector<std::string> reference_kernel_names() {
  std::vector<std::string> names;
  for (const reference::Operator& op : reference::all_operators()) names.emplace_back(op.name);
  std::ranges::sort(names);
  return names;
}

}  // namespace sw::kernels
