#include "tests/model/reference_run.hpp"

#include <cstring>

#include "base/error.hpp"
#include "graph/operator.hpp"

namespace sw {
namespace {

DType type_in_reference(DType dtype) {
  return dtype == DType::Int32 || dtype == DType::Int64 ? dtype : DType::Float64;
}

}  // namespace

ReferenceRun::ReferenceRun(const Graph& graph) : graph_(graph) {
  for (const Value& value : graph.values()) {
    const std::int64_t size = elements(value.shape) * size_of(type_in_reference(value.dtype));
    memory_.emplace_back(static_cast<std::size_t>(size));
  }
}

void ReferenceRun::set(ValueId id, std::span<const double> values) {
  copy(id, DType::Float64, std::as_bytes(values));
}

void ReferenceRun::set(ValueId id, std::span<const std::int32_t> values) {
  copy(id, DType::Int32, std::as_bytes(values));
}

void ReferenceRun::set(ValueId id, std::span<const std::int64_t> values) {
  copy(id, DType::Int64, std::as_bytes(values));
}

void ReferenceRun::copy(ValueId id, DType dtype, std::span<const std::byte> bytes) {
  const Value& value = graph_.value(id);
  std::vector<std::byte>& memory = memory_.at(static_cast<std::size_t>(id));
  SW_CHECK(type_in_reference(value.dtype) == dtype && memory.size() == bytes.size(),
           "{} {} from {} bytes", value.name, to_text(value.shape), bytes.size());
  memory.assign(bytes.begin(), bytes.end());
}

void ReferenceRun::run() {
  for (const Op& op : graph_.ops()) {
    run(op);
  }
}

void ReferenceRun::run(const Op& op) {
  std::vector<Shape> inputs;
  std::vector<Shape> starts;
  std::vector<Shape> outputs;
  std::vector<DType> input_types;
  std::vector<DType> output_types;
  for (const ValueId input : op.inputs) {
    inputs.push_back(graph_.value(input).shape);
    starts.emplace_back(inputs.back().size(), 0);
    input_types.push_back(type_in_reference(graph_.value(input).dtype));
  }
  for (const ValueId output : op.outputs) {
    outputs.push_back(graph_.value(output).shape);
    output_types.push_back(type_in_reference(graph_.value(output).dtype));
  }
  kernels::KernelCall call =
      local_call(graph_, op, inputs, starts, input_types, outputs, output_types);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    call.inputs[i].data = memory_.at(static_cast<std::size_t>(op.inputs[i])).data();
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    call.outputs[i].data = memory_.at(static_cast<std::size_t>(op.outputs[i])).data();
  }
  kernels::run_reference(call);
}

std::vector<double> ReferenceRun::values(ValueId id) const {
  const std::vector<std::byte>& memory = memory_.at(static_cast<std::size_t>(id));
  std::vector<double> result(memory.size() / sizeof(double));
  std::memcpy(result.data(), memory.data(), memory.size());
  return result;
}

std::vector<double> ReferenceRun::gradient(ValueId parameter) const {
  std::vector<double> sum(static_cast<std::size_t>(elements(graph_.value(parameter).shape)));
  for (const ParameterGradient& gradient : graph_.parameter_gradients) {
    if (gradient.parameter != parameter) {
      continue;
    }
    for (const ValueId contribution : gradient.contributions) {
      const std::vector<double> part = values(contribution);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += part.at(i);
      }
    }
  }
  return sum;
}

}  // namespace sw
