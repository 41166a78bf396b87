#include "tests/kernels/tensors.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

namespace sw::kernels::testing {
namespace {

template <typename T, typename Convert>
std::vector<std::byte> as_bytes(const std::vector<double>& values, const Convert& convert) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

template <typename T, typename Convert>
std::vector<double> as_doubles(const std::vector<std::byte>& bytes, const Convert& convert) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = convert(value);
  }
  return values;
}

Tensor whole_numbers(Shape shape, const std::vector<std::int64_t>& values, DType dtype) {
  Tensor tensor{std::move(shape), {}, dtype};
  for (const std::int64_t value : values) tensor.values.push_back(static_cast<double>(value));
  SW_CHECK(static_cast<std::int64_t>(values.size()) == elements(tensor.shape),
           "{} values for a shape of {}", values.size(), to_text(tensor.shape));
  return tensor;
}

DType stored_type(const Tensor& tensor, DType floating) {
  if (tensor.dtype != DType::Float64) return tensor.dtype;
  return tensor.always_float32 && floating == DType::BFloat16 ? DType::Float32 : floating;
}

}  // namespace

Tensor normals(Shape shape, std::uint64_t stream, double scale) {
  Tensor tensor{std::move(shape), {}};
  for (std::int64_t i = 0; i < elements(tensor.shape); ++i) {
    const double value = scale * normal(11, stream, static_cast<std::uint64_t>(i));
    tensor.values.push_back(to_float(to_bfloat16(static_cast<float>(value))));
  }
  return tensor;
}

Tensor integers(Shape shape, std::vector<std::int64_t> values) {
  return whole_numbers(std::move(shape), values, DType::Int32);
}

Tensor long_integers(Shape shape, std::vector<std::int64_t> values) {
  return whole_numbers(std::move(shape), values, DType::Int64);
}

Tensor zeros(Shape shape) {
  Tensor tensor{std::move(shape), {}};
  tensor.values.assign(static_cast<std::size_t>(elements(tensor.shape)), 0.0);
  return tensor;
}

Tensor float32(Tensor tensor) {
  tensor.always_float32 = true;
  return tensor;
}

Tensor counted_positions(std::int64_t batch, std::int64_t sequence) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < batch * sequence; ++i) values.push_back(i % sequence);
  return integers({batch, sequence}, values);
}

std::vector<std::byte> stored(const Tensor& tensor, DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return as_bytes<double>(tensor.values, [](double v) { return v; });
    case DType::Float32:
      return as_bytes<float>(tensor.values, [](double v) { return static_cast<float>(v); });
    case DType::BFloat16:
      return as_bytes<BFloat16>(tensor.values,
                                [](double v) { return to_bfloat16(static_cast<float>(v)); });
    case DType::Int32:
      return as_bytes<std::int32_t>(tensor.values,
                                    [](double v) { return static_cast<std::int32_t>(v); });
    default:
      return as_bytes<std::int64_t>(tensor.values,
                                    [](double v) { return static_cast<std::int64_t>(v); });
  }
}

std::vector<double> loaded(const std::vector<std::byte>& bytes, DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return as_doubles<double>(bytes, [](double v) { return v; });
    case DType::Float32:
      return as_doubles<float>(bytes, [](float v) { return static_cast<double>(v); });
    case DType::Int32:
      return as_doubles<std::int32_t>(bytes, [](std::int32_t v) { return static_cast<double>(v); });
    case DType::Int64:
      return as_doubles<std::int64_t>(bytes, [](std::int64_t v) { return static_cast<double>(v); });
    default:
      return as_doubles<BFloat16>(bytes,
                                  [](BFloat16 v) { return static_cast<double>(to_float(v)); });
  }
}

OwnedCall::OwnedCall(std::string op, Parameters parameters, const std::vector<Tensor>& inputs,
                     const std::vector<Tensor>& outputs, DType input, DType output) {
  call.op = std::move(op);
  call.parameters = std::move(parameters);
  for (const Tensor& tensor : inputs) {
    input_memory_.push_back(stored(tensor, stored_type(tensor, input)));
    call.inputs.push_back({input_memory_.back().data(), stored_type(tensor, input), tensor.shape});
  }
  for (const Tensor& tensor : outputs) {
    output_memory_.push_back(stored(tensor, stored_type(tensor, output)));
    call.outputs.push_back(
        {output_memory_.back().data(), stored_type(tensor, output), tensor.shape});
  }
}

std::vector<double> OwnedCall::output(std::size_t index) const {
  return loaded(output_memory_.at(index), call.outputs.at(index).dtype);
}

void OwnedCall::run_cpu(int threads) {
  // Scratch of NaN, with a guard behind: a kernel that reads what it did not write, or takes more
  // than it said, is found.
  constexpr std::int64_t kGuard = 256;
  const std::int64_t bytes = scratch_bytes(call, threads);
  std::vector<std::byte> scratch(static_cast<std::size_t>(bytes + kGuard + 64), std::byte{0xff});
  void* aligned = scratch.data();
  std::size_t space = scratch.size();
  std::align(64, static_cast<std::size_t>(bytes), aligned, space);
  Team team(threads);
  prepare(call, static_cast<std::byte*>(aligned), threads)(team);
  const auto* end = static_cast<std::byte*>(aligned) + bytes;
  for (std::int64_t i = 0; i < kGuard; ++i) {
    SW_CHECK(end[i] == std::byte{0xff}, "{} wrote beyond its {} bytes of scratch", call.op, bytes);
  }
}

}  // namespace sw::kernels::testing
