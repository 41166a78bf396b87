#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/product.hpp"
#include "tests/kernels/tensors.hpp"

namespace sw::kernels::testing {
namespace {

struct Routed {
  std::vector<double> gate;
  std::vector<double> choice;
};

Routed route(const std::vector<double>& logits, const RouteParameters& parameters) {
  const Shape slots = {1, 1, parameters.chosen};
  const std::vector<std::int64_t> nobody(static_cast<std::size_t>(parameters.chosen), -1);
  OwnedCall call("route", parameters, {{{1, 1, static_cast<std::int64_t>(logits.size())}, logits}},
                 {zeros(slots), integers(slots, nobody)}, DType::Float32, DType::Float32);
  call.run_cpu(1);
  return {call.output(0), call.output(1)};
}

TEST(Route, ChoosesTheLargestInFallingOrderAndOfEqualsTheLowerExpert) {
  EXPECT_EQ(route({1, 3, 2, 3, 1}, {.chosen = 1}).choice, (std::vector<double>{1}));
  EXPECT_EQ(route({1, 3, 2, 3, 1}, {.chosen = 4}).choice, (std::vector<double>{1, 3, 2, 0}));
  EXPECT_EQ(route({0, 0, 0, 0}, {.chosen = 3}).choice, (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(route({1, 2, 3}, {.chosen = 3}).choice, (std::vector<double>{2, 1, 0}));
}

// exp(log n) = n: gates are fractions.
TEST(Route, WeighsByTheSoftmaxOfAllOrOfTheChosen) {
  const std::vector<double> logits = {std::log(1), std::log(5), std::log(2), std::log(8)};
  const Routed chosen = route(logits, {.chosen = 2, .normalize = true});
  EXPECT_NEAR(chosen.gate[0], 8.0 / 13, 1e-6);
  EXPECT_NEAR(chosen.gate[1], 5.0 / 13, 1e-6);
  const Routed all = route(logits, {.chosen = 2, .normalize = false});
  EXPECT_NEAR(all.gate[0], 8.0 / 16, 1e-6);
  EXPECT_NEAR(all.gate[1], 5.0 / 16, 1e-6);
}

// Far below the largest, exp is 0 for both; the order is still that of the logits.
TEST(Route, ComparesLogitsAndNotTheirExponentials) {
  EXPECT_EQ(route({-900, 0, -800}, {.chosen = 3}).choice, (std::vector<double>{1, 2, 0}));
}

TEST(Route, LetsNotANumberThroughAndStillChoosesExperts) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool normalize : {true, false}) {
    for (std::size_t place = 0; place < 4; ++place) {
      std::vector<double> logits = {4, 3, 2, 1};
      logits[place] = nan;
      const Routed routed = route(logits, {.chosen = 2, .normalize = normalize});
      for (const double gate : routed.gate) EXPECT_TRUE(std::isnan(gate)) << place;
      EXPECT_NE(routed.choice[0], routed.choice[1]);
      for (const double expert : routed.choice) {
        EXPECT_GE(expert, 0);
        EXPECT_LT(expert, 4);
      }
    }
  }
}

Routed route_biased(const std::vector<double>& logits, const std::vector<double>& bias,
                    const RouteParameters& parameters) {
  const Shape slots = {1, 1, parameters.chosen};
  const auto experts = static_cast<std::int64_t>(logits.size());
  const std::vector<std::int64_t> nobody(static_cast<std::size_t>(parameters.chosen), -1);
  OwnedCall call("route", parameters, {{{1, 1, experts}, logits}, {{experts}, bias}},
                 {zeros(slots), integers(slots, nobody)}, DType::Float32, DType::Float32);
  call.run_cpu(1);
  return {call.output(0), call.output(1)};
}

// Softmax 1/16, 5/16, 2/16, 8/16, and with the biases 9/16, 5/16, 8/16, 7/16: the first and the
// third are chosen, and their gates know no bias.
TEST(Route, WithABiasChoosesBySumsAndWeighsByTheSoftmaxAlone) {
  const std::vector<double> logits = {std::log(1), std::log(5), std::log(2), std::log(8)};
  const std::vector<double> bias = {8.0 / 16, 0, 6.0 / 16, -1.0 / 16};
  const Routed chosen = route_biased(logits, bias, {.chosen = 2, .normalize = true});
  EXPECT_EQ(chosen.choice, (std::vector<double>{0, 2}));
  EXPECT_NEAR(chosen.gate[0], 1.0 / 3, 1e-6);
  EXPECT_NEAR(chosen.gate[1], 2.0 / 3, 1e-6);
  const Routed all = route_biased(logits, bias, {.chosen = 2, .normalize = false});
  EXPECT_NEAR(all.gate[0], 1.0 / 16, 1e-6);
  EXPECT_NEAR(all.gate[1], 2.0 / 16, 1e-6);
}

// Their softmax is 0 in float32, and their quotient is not.
TEST(Route, WeighsExpertsThatOnlyABiasChooses) {
  const Routed routed =
      route_biased({0, -200, -200 + std::log(3)}, {0, 3, 2}, {.chosen = 2, .normalize = true});
  EXPECT_EQ(routed.choice, (std::vector<double>{1, 2}));
  EXPECT_NEAR(routed.gate[0], 0.25, 1e-5);
  EXPECT_NEAR(routed.gate[1], 0.75, 1e-5);
}

// 10 slots and 4 experts: 1.25 times an even load is 3.125, so each takes 4; 1.1 times 10 is 11 and
// not, as in binary, a little more. Nobody takes more than there are.
TEST(Capacity, IsItsMultipleOfAnEvenLoadRoundedUpAndTakesTheFirstSlots) {
  EXPECT_EQ(capacity({4, 1.25}, 10), 4);
  EXPECT_EQ(capacity({10, 1.1}, 100), 11);
  EXPECT_EQ(capacity({4, 1}, 8), 2);
  EXPECT_EQ(capacity({4, 1e300}, 8), 8);
  const Tensor choice = integers({1, 5, 2}, {0, 1, 0, 2, 0, 1, 1, 0, 1, 0});
  OwnedCall call("drop_slots", CapacityParameters{4, 1}, {choice},
                 {integers({1, 5, 2}, std::vector<std::int64_t>(10, 7))}, DType::Float32,
                 DType::Float32);
  call.run_cpu(2);
  EXPECT_EQ(call.output(0), (std::vector<double>{0, 1, 0, 2, 0, 1, 1, -1, -1, -1}));
}

/// Load, loss and gradient of one micro-batch, with as many tokens in the window as have a label.
struct Balanced {
  std::vector<double> load, loss, gradient;
};

Balanced balance(const Tensor& logits, std::int64_t chosen, const std::vector<std::int64_t>& labels,
                 double coefficient) {
  const std::int64_t tokens = logits.shape[1];
  const std::int64_t experts = logits.shape[2];
  const Shape slots = {1, tokens, chosen};
  const std::vector<std::int64_t> nobody(static_cast<std::size_t>(tokens * chosen), -1);
  OwnedCall routed("route", RouteParameters{.chosen = chosen}, {logits},
                   {zeros(slots), integers(slots, nobody)}, DType::Float32, DType::Float32);
  routed.run_cpu(2);
  Tensor choice = integers(slots, nobody);
  choice.values = routed.output(1);
  const Tensor label = integers({1, tokens}, labels);
  OwnedCall load("expert_load", LoadParameters{experts}, {choice, label}, {zeros({experts})},
                 DType::Float32, DType::Float32);
  load.run_cpu(2);
  const auto valid = static_cast<double>(
      std::count_if(labels.begin(), labels.end(), [](std::int64_t l) { return l >= 0; }));
  const std::vector<Tensor> inputs = {logits, {{experts}, load.output(0)}, label, {{}, {valid}}};
  OwnedCall loss("balance_loss", TermParameters{coefficient}, inputs, {zeros({})}, DType::Float32,
                 DType::Float32);
  OwnedCall gradient("balance_grad", TermParameters{coefficient}, inputs, {zeros(logits.shape)},
                     DType::Float32, DType::Float32);
  loss.run_cpu(2);
  gradient.run_cpu(2);
  return {load.output(0), loss.output(0), gradient.output(0)};
}

// Where all logits are equal, every probability is 1/E whatever the load; where all tokens go to
// one expert with certainty, its share and its mean probability are 1.
TEST(BalanceLoss, IsTheCoefficientWhereBalancedAndETimesItWhereOneExpertHasAll) {
  EXPECT_NEAR(balance(zeros({1, 6, 4}), 2, {1, 1, 1, 1, 1, 1}, 0.5).loss[0], 0.5, 1e-6);
  Tensor one = zeros({1, 6, 4});
  for (std::size_t token = 0; token < 6; ++token) one.values[token * 4 + 2] = 100;
  EXPECT_NEAR(balance(one, 1, {1, 1, 1, 1, 1, 1}, 0.5).loss[0], 0.5 * 4, 1e-6);
}

TEST(BalanceLoss, IsNothingWhereNoTokenHasALabel) {
  const Tensor logits = normals({1, 6, 4}, 1);
  const Tensor label = integers({1, 6}, {-1, -1, -1, -1, -1, -1});
  const std::vector<Tensor> inputs = {logits, zeros({4}), label, {{}, {9}}};
  OwnedCall loss("balance_loss", TermParameters{1}, inputs, {normals({}, 2)}, DType::Float32,
                 DType::Float32);
  loss.run_cpu(1);
  EXPECT_EQ(loss.output(0)[0], 0);
  OwnedCall gradient("balance_grad", TermParameters{1}, inputs, {normals({1, 6, 4}, 2)},
                     DType::Float32, DType::Float32);
  gradient.run_cpu(1);
  EXPECT_EQ(gradient.output(0), std::vector<double>(24, 0.0));
}

// load_balancing_loss_func of transformers 5.24 (Mixtral), of one layer, and its gradient by torch
// 2.15, both of float64 logits, rounded to 9 digits: tests/fixtures/router_losses.py. There the
// shares of a token's k slots add up to k. 2e-6 and 1e-7: float32 here and in part there, of
// numbers around 2 and 0.05.
TEST(BalanceLoss, IsThatOfTransformersTimesTheSlotsOfAToken) {
  Tensor logits = zeros({1, 6, 4});
  for (std::int64_t i = 0; i < 24; ++i) {
    logits.values[static_cast<std::size_t>(i)] =
        static_cast<double>((i * 7 + 3) % 11) / 4 - 1 + static_cast<double>(i * 5 % 3) / 8;
  }
  const Balanced all = balance(logits, 2, {1, 1, 1, 1, 1, 1}, 2);
  EXPECT_NEAR(all.loss[0], 2.01171064, 2e-6);
  const std::vector<double> gradient = {
      0.0149121617,   -0.0317731295,  0.0127285973,  0.00413237051,  0.0349228143,
      -0.0213239749,  -0.0016210214,  -0.011977818,  0.0209768084,   -0.00921375649,
      -0.00888010415, -0.00288294772, 0.0360693583,  -0.0266174261,  -0.00155499844,
      -0.00789693368, 0.0242825609,   -0.0113441221, -0.00878751208, -0.00415092679,
      0.00643982355,  -0.0219207147,  0.00254686145, 0.0129340297};
  for (std::size_t i = 0; i < 24; ++i) EXPECT_NEAR(all.gradient[i], gradient[i], 1e-7) << i;
  // Its mask of tokens is our labels.
  const Balanced masked = balance(logits, 2, {1, 1, -1, 1, -1, 1}, 2);
  EXPECT_NEAR(masked.loss[0], 2.22461843, 2e-6);
  EXPECT_NEAR(masked.gradient[3], 0.0191904283, 1e-7);
  EXPECT_EQ(masked.gradient[8], 0);
  EXPECT_NEAR(masked.gradient[23], 0.0776069207, 1e-7);
}

struct Z {
  std::vector<double> loss, gradient;
};

Z z_of(const Tensor& logits, const std::vector<std::int64_t>& labels, double count) {
  const std::vector<Tensor> inputs = {
      logits, integers({logits.shape[0], logits.shape[1]}, labels), {{}, {count}}};
  OwnedCall loss("z_loss", TermParameters{1}, inputs, {zeros({})}, DType::Float32, DType::Float32);
  OwnedCall gradient("z_grad", TermParameters{1}, inputs, {zeros(logits.shape)}, DType::Float32,
                     DType::Float32);
  loss.run_cpu(2);
  gradient.run_cpu(2);
  return {loss.output(0), gradient.output(0)};
}

// Of equal logits x the logarithm of the sum is x + log E, also where exp(x) is no float32.
TEST(ZLoss, OfEqualLogitsIsAClosedForm) {
  for (const double x : {0.0, 1.5, 300.0, -300.0}) {
    Tensor logits = zeros({1, 3, 4});
    std::fill(logits.values.begin(), logits.values.end(), x);
    const double z = x + std::log(4);
    const Z all = z_of(logits, {1, 1, 1}, 6);
    EXPECT_NEAR(all.loss[0], z * z / 2, 1e-6 * z * z);
    EXPECT_NEAR(all.gradient[5], 2 * z / 4 / 6, 1e-6 * std::abs(z));
  }
}

// router_z_loss_func of transformers 5.24 (Switch) and its gradient by torch 2.15:
// tests/fixtures/router_losses.py. 1e-6: float32 here.
TEST(ZLoss, IsThatOfTransformers) {
  Tensor logits = zeros({1, 6, 4});
  for (std::int64_t i = 0; i < 24; ++i) {
    logits.values[static_cast<std::size_t>(i)] =
        static_cast<double>((i * 7 + 3) % 11) / 4 - 1 + static_cast<double>(i * 5 % 3) / 8;
  }
  const Z all = z_of(logits, {1, 1, 1, 1, 1, 1}, 6);
  EXPECT_NEAR(all.loss[0], 4.3919551, 5e-6);
  const std::vector<double> gradient = {
      0.0633464153, 0.468070217, 0.151960151,  0.0493342379, 0.345952354,  0.112314285,
      0.0364631098, 0.269427964, 0.12064829,   0.039168765,  0.289420202,  0.0939609826,
      0.329566674,  0.155676274, 0.0505406864, 0.256666784,  0.161891505,  0.0525584766,
      0.266913968,  0.126081231, 0.0347404208, 0.176426414,  0.0833379371, 0.423224967};
  for (std::size_t i = 0; i < 24; ++i) EXPECT_NEAR(all.gradient[i], gradient[i], 1e-6) << i;
  // Tokens without a label are as if they were not there.
  const Z masked = z_of(logits, {1, 1, -1, 1, -1, 1}, 4);
  EXPECT_NEAR(masked.loss[0], 5.09381121, 5e-6);
  EXPECT_NEAR(masked.gradient[3], 0.0740013568, 1e-6);
  EXPECT_EQ(masked.gradient[8], 0);
  EXPECT_NEAR(masked.gradient[23], 0.63483745, 1e-6);
}

constexpr std::int64_t kSlots = 130;

Tensor choices(std::int64_t slots, std::int64_t experts, std::int64_t factor) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < slots; ++i) values.push_back((i * factor + 1) % experts);
  return integers({1, slots, 1}, values);
}

std::vector<std::byte> run_bytes(const std::string& op, const Parameters& parameters,
                                 const std::vector<Tensor>& inputs, const Shape& output,
                                 DType type) {
  OwnedCall call(op, parameters, inputs, {zeros(output)}, type, type);
  call.run_cpu(2);
  return call.output_bytes(0);
}

// With every slot at one expert, a product by experts is the plain product with that expert's
// matrix: the same sums in the same order.
TEST(ExpertProduct, OfOneExpertHasTheBitsOfAPlainProduct) {
  for (const auto& [inputs, outputs] :
       {std::pair<std::int64_t, std::int64_t>{70, 90}, {1300, 40}, {40, 1300}}) {
    for (const DType type : {DType::Float32, DType::BFloat16}) {
      const Tensor x = normals({1, kSlots, 1, inputs}, 1);
      const Tensor dy = normals({1, kSlots, 1, outputs}, 2);
      const Tensor w = normals({3, outputs, inputs}, 3);
      const Tensor plain_x{{kSlots, inputs}, x.values};
      const Tensor plain_dy{{kSlots, outputs}, dy.values};
      const Tensor choice = choices(kSlots, 3, 0);  // expert 1
      const auto second = w.values.begin() + outputs * inputs;
      const Tensor plain_w{{outputs, inputs}, {second, second + outputs * inputs}};
      EXPECT_EQ(run_bytes("expert_product", {}, {x, w, choice}, dy.shape, type),
                run_bytes("einsum", EinsumParameters{"ti,oi->to"}, {plain_x, plain_w},
                          plain_dy.shape, type));
      EXPECT_EQ(run_bytes("expert_product_grad_input", {}, {dy, w, choice}, x.shape, type),
                run_bytes("einsum", EinsumParameters{"to,oi->ti"}, {plain_dy, plain_w},
                          plain_x.shape, type));
      const std::vector<std::byte> dw =
          run_bytes("expert_product_grad_weight", {}, {x, choice, dy}, w.shape, type);
      const std::vector<std::byte> plain_dw = run_bytes("einsum", EinsumParameters{"to,ti->oi"},
                                                        {plain_dy, plain_x}, plain_w.shape, type);
      const auto bytes = static_cast<std::ptrdiff_t>(plain_dw.size());
      EXPECT_EQ(std::vector<std::byte>(dw.begin() + bytes, dw.begin() + 2 * bytes), plain_dw);
      EXPECT_EQ(std::vector<std::byte>(dw.begin() + 2 * bytes, dw.end()),
                std::vector<std::byte>(plain_dw.size(), std::byte{0}));
    }
  }
}

// Tokens may lie on any rank, and beside any others.
TEST(ExpertProduct, GivesASlotTheSameBitsWhateverOthersThereAre) {
  const Tensor w = normals({3, 90, 700}, 3);
  for (const bool forward : {true, false}) {
    const std::string op = forward ? "expert_product" : "expert_product_grad_input";
    const std::int64_t from = forward ? 700 : 90;
    const std::int64_t to = forward ? 90 : 700;
    const Tensor x = normals({1, kSlots, 1, from}, 1);
    const Tensor choice = choices(kSlots, 3, 7);
    for (const DType type : {DType::Float32, DType::BFloat16}) {
      const auto all = run_bytes(op, {}, {x, w, choice}, {1, kSlots, 1, to}, type);
      for (const std::int64_t first : {0, 1, 47, 129}) {
        const std::int64_t count = std::min<std::int64_t>(40, kSlots - first);
        const Tensor part_x{
            {1, count, 1, from},
            {x.values.begin() + first * from, x.values.begin() + (first + count) * from}};
        Tensor part_choice = choice;
        part_choice.shape = {1, count, 1};
        part_choice.values = {choice.values.begin() + first, choice.values.begin() + first + count};
        const auto part = run_bytes(op, {}, {part_x, w, part_choice}, {1, count, 1, to}, type);
        const auto begin = all.begin() + first * to * size_of(type);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), begin)) << op << " from " << first;
      }
    }
  }
}

// `of` throws where a number of rows would need more scratch than the whole product took.
TEST(ExpertProduct, HasScratchForAnyNumberOfSlotsOfAnExpert) {
  const std::vector<std::int64_t> sizes = {1, 7, 64, 500, 1153, 5000};
  for (const std::int64_t n : sizes) {
    for (const std::int64_t other : sizes) {
      for (const DType type : {DType::Float32, DType::BFloat16}) {
        constexpr std::int64_t kMost = 2600;
        const View view{nullptr, type, {}};
        cpu::Scratch scratch(nullptr);
        const cpu::Product rows({.m = kMost, .n = n, .k = other, .b_transposed = true}, view, view,
                                view, false, scratch, 3, cpu::Listed::M);
        const cpu::Product sums({.m = other, .n = n, .k = kMost, .a_transposed = true}, view, view,
                                view, false, scratch, 3, cpu::Listed::K);
        for (std::int64_t count = 1; count <= kMost; ++count) {
          ASSERT_NO_THROW((void)rows.of(nullptr, count, 0)) << n << " " << other << " " << count;
          ASSERT_NO_THROW((void)sums.of(nullptr, count, 0)) << n << " " << other << " " << count;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sw::kernels::testing
