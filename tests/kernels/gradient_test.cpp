#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/kernels/cases.hpp"

namespace sw::kernels::testing {
namespace {

class Gradient : public ::testing::TestWithParam<GradientCase> {};

std::string test_name(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(Reference, Gradient, ::testing::ValuesIn(gradient_cases()),
                         [](const auto& row) {
                           return test_name(std::to_string(row.index) + "_" + row.param.name);
                         });

double weighted_sum(const std::vector<double>& values, const std::vector<double>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
  return sum;
}

// Central differences with step h are wrong by h^2 f'''/6 and by rounding, 1e-16 |f| / h: with h =
// 1e-5 both stay below 1e-9 for functions of size one.
TEST_P(Gradient, AgreesWithCentralDifferences) {
  const GradientCase& c = GetParam();
  const Values outputs = c.forward(c.inputs);
  const Tensor d_output = normals({static_cast<std::int64_t>(outputs[0].size())}, 77);
  const Values gradients = c.gradient(c.inputs, outputs, d_output.values);
  ASSERT_EQ(gradients.size(), c.differentiated.size());
  for (std::size_t g = 0; g < gradients.size(); ++g) {
    double largest = 0;
    for (const double value : gradients[g]) largest = std::max(largest, std::fabs(value));
    ASSERT_GT(largest, 0) << "a gradient of zeros shows nothing";
    std::vector<Tensor> moved = c.inputs;
    std::vector<double>& x = moved[c.differentiated[g]].values;
    ASSERT_EQ(x.size(), gradients[g].size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double at = x[i];
      const double step = 1e-5 * std::max(1.0, std::fabs(at));
      x[i] = at + step;
      const double above = weighted_sum(c.forward(moved)[0], d_output.values);
      x[i] = at - step;
      const double below = weighted_sum(c.forward(moved)[0], d_output.values);
      x[i] = at;
      EXPECT_NEAR(gradients[g][i], (above - below) / (2 * step), 1e-6 * largest)
          << "gradient " << g << " element " << i;
    }
  }
}

TEST(GradientTable, CoversEveryGradientOperator) {
  // Each *_grad* operator of the reference is the gradient of one row.
  std::set<std::string> rows;
  for (const GradientCase& c : gradient_cases()) rows.insert(c.name.substr(0, c.name.find(' ')));
  for (const std::string& name : reference_kernel_names()) {
    if (const std::size_t end = name.find("_grad"); end != std::string::npos) {
      EXPECT_TRUE(rows.contains(name.substr(0, end))) << name;
    }
  }
}

}  // namespace
}  // namespace sw::kernels::testing
