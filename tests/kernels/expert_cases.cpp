#include <algorithm>
#include <utility>

#include "tests/kernels/cases.hpp"

namespace sw::kernels::testing {
namespace {

/// Sizes of one layer of experts: tokens [B,S], k slots each.
struct Experts {
  Shape tokens;
  std::int64_t chosen;
  std::int64_t experts;
  std::int64_t inputs;
  std::int64_t outputs;
  std::int64_t without_slot = -1;  ///< this expert is never chosen

  [[nodiscard]] Shape slots() const { return {tokens[0], tokens[1], chosen}; }
  [[nodiscard]] Shape slots_of(std::int64_t width) const {
    return {tokens[0], tokens[1], chosen, width};
  }
  [[nodiscard]] Shape weight() const { return {experts, outputs, inputs}; }
  [[nodiscard]] Tensor choice() const {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < elements(slots()); ++i) {
      const std::int64_t expert = (i * i * 37 + i / 3 + 11) % experts;
      values.push_back(expert == without_slot ? (expert + 1) % experts : expert);
    }
    return integers(slots(), values);
  }
};

const std::vector<Experts> kExperts = {
    {{1, 1}, 1, 1, 1, 1},         {{2, 7}, 2, 4, 40, 24, 2}, {{1, 1}, 2, 8, 24, 40},  // few rows
    {{2, 65}, 2, 3, 40, 500},      // shared by threads
    {{2, 65}, 2, 2, 70, 130, 0},   // all rows to one expert
    {{3, 5}, 2, 2, 1300, 24},      // a long sum
    {{1, 1300}, 1, 2, 17, 24, 1},  // a long sum over slots
    {{1, 5}, 2, 1, 1000, 470},     // columns in several blocks
};

/// Logits so far apart that a step of a finite difference changes no choice.
GradientCase of_route(std::int64_t chosen, bool normalize) {
  const RouteParameters parameters{.chosen = chosen, .normalize = normalize};
  const Shape slots = {2, 3, chosen};
  Tensor logits = zeros({2, 3, 5});
  for (std::size_t i = 0; i < logits.values.size(); ++i) {
    const std::size_t token = i / 5;
    logits.values[i] =
        0.37 * static_cast<double>((i % 5 * 3 + token) % 5) - 0.1 * static_cast<double>(token);
  }
  const Tensor choice =
      integers(slots, std::vector<std::int64_t>(static_cast<std::size_t>(elements(slots)), -1));
  return {.name = "route to " + std::to_string(chosen) + (normalize ? " normalized" : ""),
          .inputs = {logits},
          .differentiated = {0},
          .forward =
              [=](const std::vector<Tensor>& inputs) {
                return run_into("route", parameters, inputs, {zeros(slots), choice});
              },
          .gradient =
              [=](const std::vector<Tensor>& inputs, const Values& outputs,
                  const std::vector<double>& d_output) {
                Tensor picked = choice;
                picked.values = outputs[1];
                return run("route_grad", parameters, {inputs[0], picked, {slots, d_output}},
                           {inputs[0].shape});
              }};
}

GradientCase of_expert_product() {
  const Experts e{{2, 3}, 2, 4, 5, 3, 1};
  const Tensor choice = e.choice();
  const Shape y = e.slots_of(e.outputs);
  return {.name = "expert_product",
          .inputs = {normals(e.slots_of(e.inputs), 1), normals(e.weight(), 2)},
          .differentiated = {0, 1},
          .forward =
              [=](const std::vector<Tensor>& inputs) {
                return run("expert_product", {}, {inputs[0], inputs[1], choice}, {y});
              },
          .gradient =
              [=](const std::vector<Tensor>& inputs, const Values&,
                  const std::vector<double>& d_output) {
                const Tensor dy{y, d_output};
                return Values{run("expert_product_grad_input", {}, {dy, inputs[1], choice},
                                  {inputs[0].shape})[0],
                              run("expert_product_grad_weight", {}, {inputs[0], choice, dy},
                                  {inputs[1].shape})[0]};
              }};
}

/// The load is constant: a step of a finite difference moves no slot.
GradientCase of_balance() {
  const Shape logits = {2, 3, 4};
  const std::vector<Tensor> constant = {
      {{4}, {3, 0, 6, 1}}, integers({2, 3}, {5, -1, 0, 2, 7, -1}), {{}, {9}}};
  const TermParameters parameters{0.3};
  const auto inputs_of = [=](const std::vector<Tensor>& inputs) {
    std::vector<Tensor> all = {inputs[0]};
    all.insert(all.end(), constant.begin(), constant.end());
    return all;
  };
  return {.name = "balance",
          .inputs = {normals(logits, 1)},
          .differentiated = {0},
          .forward =
              [=](const std::vector<Tensor>& inputs) {
                return run("balance_loss", parameters, inputs_of(inputs), {Shape{}});
              },
          .gradient =
              [=](const std::vector<Tensor>& inputs, const Values&,
                  const std::vector<double>& d_output) {
                Values grad = run("balance_grad", parameters, inputs_of(inputs), {logits});
                for (double& value : grad[0]) value *= d_output[0];
                return grad;
              }};
}

GradientCase of_z() {
  const Shape logits = {2, 3, 4};
  const Tensor labels = integers({2, 3}, {5, -1, 0, 2, 7, -1});
  const Tensor count{{}, {9}};
  const TermParameters parameters{0.3};
  return {.name = "z",
          .inputs = {normals(logits, 1)},
          .differentiated = {0},
          .forward =
              [=](const std::vector<Tensor>& inputs) {
                return run("z_loss", parameters, {inputs[0], labels, count}, {Shape{}});
              },
          .gradient =
              [=](const std::vector<Tensor>& inputs, const Values&,
                  const std::vector<double>& d_output) {
                Values grad = run("z_grad", parameters, {inputs[0], labels, count}, {logits});
                for (double& value : grad[0]) value *= d_output[0];
                return grad;
              }};
}

/// Two operators of which each is the other's gradient.
GradientCase of_pair(const std::string& op, const std::string& other, const Shape& from,
                     const Shape& to) {
  const DispatchParameters parameters{3};
  return {.name = op,
          .inputs = {normals(from, 1)},
          .differentiated = {0},
          .forward =
              [=](const std::vector<Tensor>& inputs) { return run(op, parameters, inputs, {to}); },
          .gradient =
              [=](const std::vector<Tensor>&, const Values&, const std::vector<double>& d_output) {
                return run(other, parameters, {{to, d_output}}, {from});
              }};
}

GradientCase of_scale_rows(const Shape& shape, const Shape& scale) {
  return {
      .name = "scale_rows by " + to_text(scale),
      .inputs = {normals(shape, 1), normals(scale, 2)},
      .differentiated = {0, 1},
      .forward =
          [=](const std::vector<Tensor>& inputs) { return run("scale_rows", {}, inputs, {shape}); },
      .gradient =
          [=](const std::vector<Tensor>& inputs, const Values&,
              const std::vector<double>& d_output) {
            return run("scale_rows_grad", {}, {inputs[0], inputs[1], {shape, d_output}},
                       {shape, scale});
          }};
}

}  // namespace

void add_expert_product_cases(std::vector<Case>& all) {
  for (const Experts& e : kExperts) {
    const Tensor choice = e.choice();
    const Tensor x = normals(e.slots_of(e.inputs), 1);
    const Tensor dy = normals(e.slots_of(e.outputs), 2);
    const Tensor w = normals(e.weight(), 3);
    const std::string suffix = " " + to_text(x.shape) + " by " + to_text(w.shape);
    all.push_back({.name = "expert_product" + suffix,
                   .op = "expert_product",
                   .inputs = {x, w, choice},
                   .outputs = {zeros(dy.shape)},
                   .summands = static_cast<double>(e.inputs)});
    all.push_back({.name = "expert_product_grad_input" + suffix,
                   .op = "expert_product_grad_input",
                   .inputs = {dy, w, choice},
                   .outputs = {zeros(x.shape)},
                   .summands = static_cast<double>(e.outputs)});
    all.push_back({.name = "expert_product_grad_weight" + suffix,
                   .op = "expert_product_grad_weight",
                   .inputs = {x, choice, dy},
                   .outputs = {normals(w.shape, 99)},
                   .summands = static_cast<double>(elements(choice.shape)),
                   .accumulating = {0}});
  }
}

void add_route_cases(std::vector<Case>& all) {
  for (const bool normalize : {true, false}) {
    for (const auto& [logits, chosen] : std::vector<std::pair<Shape, std::int64_t>>{
             {{1, 1, 1}, 1}, {{2, 7, 8}, 1}, {{2, 7, 8}, 2}, {{2, 5, 4}, 4}, {{3, 65, 60}, 4}}) {
      const RouteParameters parameters{.chosen = chosen, .normalize = normalize};
      const Shape slots = {logits[0], logits[1], chosen};
      const Tensor l = normals(logits, 1, 2);
      const Tensor choice =
          integers(slots, std::vector<std::int64_t>(static_cast<std::size_t>(elements(slots)), -1));
      const std::string suffix = " " + to_text(logits) + " to " + std::to_string(chosen) +
                                 (normalize ? ", normalized" : "");
      const auto experts = static_cast<double>(logits[2]);
      all.push_back({.name = "route" + suffix,
                     .op = "route",
                     .parameters = parameters,
                     .inputs = {l},
                     .outputs = {zeros(slots), choice},
                     .summands = experts});
      all.push_back({.name = "biased route" + suffix,
                     .op = "route",
                     .parameters = parameters,
                     .inputs = {l, float32(normals({logits[2]}, 4, 0.3))},
                     .outputs = {zeros(slots), choice},
                     .summands = experts});
      const Values chose = run_into("route", parameters, {l}, {zeros(slots), choice});
      Tensor picked = choice;
      picked.values = chose[1];
      all.push_back({.name = "route_grad" + suffix,
                     .op = "route_grad",
                     .parameters = parameters,
                     .inputs = {l, picked, normals(slots, 2)},
                     .outputs = {zeros(logits)},
                     .summands = experts,
                     .cancelling = 1});  // a gate of 1 times what it takes from its own gradient
    }
  }
}

void add_balance_cases(std::vector<Case>& all) {
  for (const Shape& logits : {Shape{1, 1, 1}, Shape{2, 7, 8}, Shape{3, 65, 60}}) {
    const Shape tokens = {logits[0], logits[1]};
    std::vector<std::int64_t> labels;
    std::vector<std::int64_t> chosen;
    for (std::int64_t i = 0; i < elements(tokens); ++i) {
      labels.push_back(i % 5 == 3 ? -1 : i);
      chosen.push_back((i * 37 + 11) % logits[2]);
      chosen.push_back((i * i + 3) % logits[2]);
    }
    const Tensor label = integers(tokens, labels);
    const Tensor choice = integers({logits[0], logits[1], 2}, chosen);
    const Tensor empty = float32(normals({logits[2]}, 99));
    const Parameters size = LoadParameters{logits[2]};
    const Tensor load =
        float32({empty.shape, run("expert_load", size, {choice, label}, {empty.shape})[0]});
    const Tensor count = float32({{}, {37}});
    const TermParameters parameters{0.7};
    const std::string suffix = " " + to_text(logits);
    const auto experts = static_cast<double>(logits[2]);
    std::vector<std::int64_t> there(static_cast<std::size_t>(logits[2]), 5);
    for (const Tensor& result : {empty, long_integers(empty.shape, there)}) {
      all.push_back({.name = "expert_load" + suffix + " in " + std::string(to_text(result.dtype)),
                     .op = "expert_load",
                     .parameters = size,
                     .inputs = {choice, label},
                     .outputs = {result},
                     .accumulating = {0}});
    }
    for (const double factor : {0.1, 1.0, 1.5}) {
      const CapacityParameters of{logits[2], factor};
      const std::vector<std::int64_t> nobody(static_cast<std::size_t>(elements(choice.shape)), 99);
      all.push_back({.name = "drop_slots" + suffix + " beyond " + std::to_string(factor),
                     .op = "drop_slots",
                     .parameters = of,
                     .inputs = {choice},
                     .outputs = {integers(choice.shape, nobody)}});
    }
    all.push_back({.name = "balance_loss" + suffix,
                   .op = "balance_loss",
                   .parameters = parameters,
                   .inputs = {normals(logits, 1, 2), load, label, count},
                   .outputs = {float32(normals({}, 99))},
                   .summands = experts,
                   .accumulating = {0}});
    all.push_back({.name = "balance_grad" + suffix,
                   .op = "balance_grad",
                   .parameters = parameters,
                   .inputs = {normals(logits, 1, 2), load, label, count},
                   .outputs = {zeros(logits)},
                   .summands = experts,
                   .cancelling = 0.1});  // a share of 1 and its mean, where there is one expert
    for (const bool loss : {true, false}) {
      all.push_back(
          {.name = (loss ? "z_loss" : "z_grad") + suffix,
           .op = loss ? "z_loss" : "z_grad",
           .parameters = parameters,
           .inputs = {normals(logits, 1, 2), label, count},
           .outputs = {loss ? float32(normals({}, 99)) : zeros(logits)},
           .summands = experts,
           .accumulating = loss ? std::vector<std::size_t>{0} : std::vector<std::size_t>{}});
    }
  }
}

void add_slot_cases(std::vector<Case>& all) {
  for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 7, 2, 40}, Shape{2, 9, 3, 1025}}) {
    const Shape token = {shape[0], shape[1], shape[3]};
    const DispatchParameters parameters{shape[2]};
    const std::string suffix = " " + to_text(shape);
    all.push_back({.name = "dispatch" + suffix,
                   .op = "dispatch",
                   .parameters = parameters,
                   .inputs = {normals(token, 1)},
                   .outputs = {zeros(shape)}});
    all.push_back({.name = "combine" + suffix,
                   .op = "combine",
                   .parameters = parameters,
                   .inputs = {normals(shape, 1)},
                   .outputs = {zeros(token)},
                   .summands = static_cast<double>(shape[2])});
    for (const Shape& scale :
         {Shape{shape[0], shape[1], shape[2]}, Shape{shape[0], shape[1], shape[2], 1}}) {
      const std::string by = suffix + " by " + to_text(scale);
      all.push_back({.name = "scale_rows" + by,
                     .op = "scale_rows",
                     .inputs = {normals(shape, 1), normals(scale, 2)},
                     .outputs = {zeros(shape)},
                     .in_place = 0});
      all.push_back({.name = "scale_rows_grad" + by,
                     .op = "scale_rows_grad",
                     .inputs = {normals(shape, 1), normals(scale, 2), normals(shape, 3)},
                     .outputs = {zeros(shape), zeros(scale)},
                     .summands = static_cast<double>(shape[3]),
                     .in_place = 2});
    }
  }
}

std::vector<GradientCase> expert_gradient_cases() {
  const Shape token = {2, 3, 5};
  const Shape slots = {2, 3, 3, 5};
  return {of_route(1, false),
          of_route(2, true),
          of_route(3, false),
          of_route(5, true),
          of_expert_product(),
          of_balance(),
          of_z(),
          of_pair("dispatch", "combine", token, slots),
          of_pair("combine", "dispatch", slots, token),
          of_scale_rows(slots, {2, 3, 3}),
          of_scale_rows(token, {2, 3, 1})};
}

}  // namespace sw::kernels::testing
