#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tests/kernels/cases.hpp"

namespace sw::kernels::testing {
namespace {

constexpr DType kFloat32 = DType::Float32;
constexpr DType kBFloat16 = DType::BFloat16;

class Kernel : public ::testing::TestWithParam<std::string> {};
class AccumulatingKernel : public Kernel {};
class InPlaceKernel : public Kernel {};

const std::vector<std::string> kAccumulating = {
    "attention",    "attention_grad",  "bias_add_grad",
    "einsum",       "embedding_grad",  "expert_product_grad_weight",
    "loss_sum",     "layer_norm_grad", "rms_norm_grad",
    "balance_loss", "expert_load",     "z_loss"};
const std::vector<std::string> kInPlace = {
    "add",        "bias_add",        "cast",      "dropout",       "dropout_grad", "gelu",
    "gelu_grad",  "layer_norm_grad", "loss_grad", "rms_norm_grad", "rope",         "rope_grad",
    "scale_rows", "scale_rows_grad", "sigmoid",   "sigmoid_grad",  "swiglu",       "swiglu_grad"};

const auto kName = [](const auto& row) { return row.param; };
INSTANTIATE_TEST_SUITE_P(Cpu, Kernel, ::testing::ValuesIn(cpu_kernel_names()), kName);
INSTANTIATE_TEST_SUITE_P(Cpu, AccumulatingKernel, ::testing::ValuesIn(kAccumulating), kName);
INSTANTIATE_TEST_SUITE_P(Cpu, InPlaceKernel, ::testing::ValuesIn(kInPlace), kName);

/// What the reference gives for the numbers that the inputs hold once stored in `input`.
Values expected(const Case& c, DType input, const std::vector<bool>& accumulate) {
  std::vector<Tensor> inputs = c.inputs;
  for (Tensor& tensor : inputs) {
    if (tensor.dtype != DType::Float64) continue;
    const DType type = tensor.always_float32 ? kFloat32 : input;
    tensor.values = loaded(stored(tensor, type), type);
  }
  OwnedCall call(c.op, c.parameters, inputs, c.outputs, DType::Float64, DType::Float64);
  call.call.accumulate = accumulate;
  run_reference(call.call);
  Values values;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) values.push_back(call.output(i));
  return values;
}

/// Rounding to float32 has unit 2^-24. A sum of n numbers in any order is off by a random walk of
/// about sqrt(n) such roundings of its partial sums, which are of the size of the largest result;
/// six of them, and sixteen for the steps of an elementwise formula (exp, division), are room
/// enough, and a wrong formula is off by far more. A bfloat16 result, of 8 bits, is rounded once
/// more, by at most 2^-8 of itself.
double bound(const Case& c, DType output, double value, double largest) {
  const double float32_part = (16 + 6 * std::sqrt(c.summands)) * 0x1p-24 * largest;
  return output == kBFloat16 ? float32_part + 0x1p-8 * std::fabs(value) : float32_part;
}

void expect_close(const Case& c, const OwnedCall& call, const Values& reference) {
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const std::vector<double> result = call.output(i);
    const DType type = call.call.outputs[i].dtype;
    double largest = c.cancelling;
    for (const double value : reference[i]) {
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
    }
    for (std::size_t j = 0; j < result.size(); ++j) {
      if (result[j] == reference[i][j]) continue;  // infinities too
      ASSERT_LE(std::fabs(result[j] - reference[i][j]), bound(c, type, reference[i][j], largest))
          << c.name << ": output " << i << " element " << j << " is " << result[j] << " and not "
          << reference[i][j];
    }
  }
}

TEST_P(Kernel, AgreesWithItsReferenceInEveryType) {
  const struct {
    DType input;
    DType output;
  } types[] = {
      {kFloat32, kFloat32}, {kBFloat16, kBFloat16}, {kBFloat16, kFloat32}, {kFloat32, kBFloat16}};
  for (const Case& c : cases_of(GetParam())) {
    for (const auto& [input, output] : types) {
      OwnedCall call(c.op, c.parameters, c.inputs, c.outputs, input, output);
      call.run_cpu(2);
      expect_close(c, call, expected(c, input, {}));
    }
  }
}

TEST_P(AccumulatingKernel, AddsToWhatIsThere) {
  for (const Case& c : cases_of(GetParam())) {
    std::vector<bool> accumulate(c.outputs.size(), false);
    for (const std::size_t output : c.accumulating) accumulate[output] = true;
    for (const DType type : {kFloat32, kBFloat16}) {
      for (const DType sums : {kFloat32, kBFloat16}) {
        OwnedCall call(c.op, c.parameters, c.inputs, c.outputs, type, sums);
        call.call.accumulate = accumulate;
        call.run_cpu(2);
        expect_close(c, call, expected(c, type, accumulate));
      }
    }
  }
}

TEST_P(Kernel, GivesTheSameBitsOnOneTwoAndThreeThreads) {
  for (const Case& c : cases_of(GetParam())) {
    for (const DType type : {kFloat32, kBFloat16}) {
      OwnedCall one(c.op, c.parameters, c.inputs, c.outputs, type, type);
      one.run_cpu(1);
      for (const int threads : {2, 3}) {
        OwnedCall several(c.op, c.parameters, c.inputs, c.outputs, type, type);
        several.run_cpu(threads);
        for (std::size_t i = 0; i < c.outputs.size(); ++i) {
          ASSERT_EQ(one.output_bytes(i), several.output_bytes(i)) << c.name << " " << threads;
        }
      }
    }
  }
}

TEST_P(InPlaceKernel, GivesTheSameBits) {
  for (const Case& c : cases_of(GetParam())) {
    const auto input = static_cast<std::size_t>(c.in_place);
    for (const DType type : {kFloat32, kBFloat16}) {
      if (c.inputs[input].always_float32 && type != kFloat32) continue;
      OwnedCall apart(c.op, c.parameters, c.inputs, c.outputs, type, type);
      apart.run_cpu(2);
      OwnedCall together(c.op, c.parameters, c.inputs, c.outputs, type, type);
      const View& view = together.call.inputs[input];
      together.call.outputs[0].data = view.data;
      together.run_cpu(2);
      const std::vector<std::byte>& result = apart.output_bytes(0);
      EXPECT_TRUE(std::equal(result.begin(), result.end(), view.data)) << c.name;
    }
  }
}

TEST_P(Kernel, NeedsScratchByItsShapesAlone) {
  for (const Case& c : cases_of(GetParam())) {
    OwnedCall call(c.op, c.parameters, c.inputs, c.outputs, kBFloat16, kBFloat16);
    const std::int64_t bytes = scratch_bytes(call.call, 3);
    for (View& view : call.call.inputs) view.data = nullptr;
    for (View& view : call.call.outputs) view.data = nullptr;
    EXPECT_EQ(scratch_bytes(call.call, 3), bytes);
  }
}

TEST(KernelTable, CoversEveryOperatorOfTheKernelsAndOfTheReference) {
  std::set<std::string> rows;
  for (const Case& c : cases()) rows.insert(c.op);
  EXPECT_EQ(cpu_kernel_names(), std::vector<std::string>(rows.begin(), rows.end()));
  EXPECT_EQ(cpu_kernel_names(), reference_kernel_names());
}

TEST(KernelTable, NamesWhatAccumulatesAndWhatRunsInPlace) {
  for (const Case& c : cases()) {
    EXPECT_EQ(!c.accumulating.empty(),
              std::ranges::find(kAccumulating, c.op) != kAccumulating.end())
        << c.name;
    EXPECT_EQ(c.in_place >= 0, std::ranges::find(kInPlace, c.op) != kInPlace.end()) << c.name;
  }
}

}  // namespace
}  // namespace sw::kernels::testing
