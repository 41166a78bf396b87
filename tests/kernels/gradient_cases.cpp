#include <utility>

#include "tests/kernels/cases.hpp"

namespace sw::kernels::testing {
namespace {

/// An operator whose gradient is `op`_grad of chosen inputs, chosen outputs and the output's
/// gradient.
struct OperatorGradient {
  std::string op;
  Parameters parameters;
  std::vector<Tensor> inputs;
  std::vector<Shape> outputs;
  std::vector<std::size_t> differentiated;
  std::vector<std::size_t> gradient_inputs;
  std::vector<std::size_t> saved_outputs = {};
};

GradientCase of_operator(const OperatorGradient& g) {
  return {.name = g.op,
          .inputs = g.inputs,
          .differentiated = g.differentiated,
          .forward =
              [g](const std::vector<Tensor>& inputs) {
                return run(g.op, g.parameters, inputs, g.outputs);
              },
          .gradient =
              [g](const std::vector<Tensor>& inputs, const Values& outputs,
                  const std::vector<double>& d_output) {
                std::vector<Tensor> given;
                for (const std::size_t i : g.gradient_inputs) given.push_back(inputs[i]);
                for (const std::size_t i : g.saved_outputs) {
                  given.push_back({g.outputs[i], outputs[i]});
                }
                given.push_back({g.outputs[0], d_output});
                std::vector<Shape> results;
                for (const std::size_t i : g.differentiated) results.push_back(inputs[i].shape);
                return run(g.op + "_grad", g.parameters, given, results);
              }};
}

/// The gradient of a product is two products: with the letters of the operand asked for last.
GradientCase of_einsum() {
  const Shape c{2, 3, 2, 4};
  return {.name = "einsum",
          .inputs = {normals({2, 3, 5}, 1), normals({2, 4, 5}, 2)},
          .differentiated = {0, 1},
          .forward =
              [c](const std::vector<Tensor>& inputs) {
                return run("einsum", EinsumParameters{"bsd,hkd->bshk"}, inputs, {c});
              },
          .gradient =
              [c](const std::vector<Tensor>& inputs, const Values&,
                  const std::vector<double>& d_output) {
                const Tensor dc{c, d_output};
                Values da = run("einsum", EinsumParameters{"bshk,hkd->bsd"}, {dc, inputs[1]},
                                {inputs[0].shape});
                Values db = run("einsum", EinsumParameters{"bshk,bsd->hkd"}, {dc, inputs[0]},
                                {inputs[1].shape});
                return Values{da[0], db[0]};
              }};
}

/// A sum hands its gradient to every input.
GradientCase of_add() {
  const Shape shape{2, 3};
  return {
      .name = "add",
      .inputs = {normals(shape, 1), normals(shape, 2), normals(shape, 3)},
      .differentiated = {0, 1, 2},
      .forward =
          [shape](const std::vector<Tensor>& inputs) { return run("add", {}, inputs, {shape}); },
      .gradient =
          [](const std::vector<Tensor>&, const Values&, const std::vector<double>& d_output) {
            return Values{d_output, d_output, d_output};
          }};
}

GradientCase of_bias_add() {
  const Shape shape{2, 3, 5};
  return {.name = "bias_add",
          .inputs = {normals(shape, 1), normals({5}, 2)},
          .differentiated = {0, 1},
          .forward =
              [shape](const std::vector<Tensor>& inputs) {
                return run("bias_add", {}, inputs, {shape});
              },
          .gradient =
              [shape](const std::vector<Tensor>& inputs, const Values&,
                      const std::vector<double>& d_output) {
                const Values db = run("bias_add_grad", {}, {{shape, d_output}}, {inputs[1].shape});
                return Values{d_output, db[0]};
              }};
}

/// The five small operators of the loss together, on the vocabulary's rows [2, 2 + 7).
GradientCase of_loss() {
  const Shape rows{2, 4};
  const Shape logits{2, 4, 7};
  const Tensor labels = integers(rows, {2, 8, -1, 4, 3, -1, 6, 2});
  const VocabularyParameters part{2};
  const Tensor count{{}, {6}};
  const auto statistics = [=](const std::vector<Tensor>& inputs) {
    const Tensor most{rows, run("row_max", {}, inputs, {rows})[0]};
    const Tensor sum{rows, run("sum_exp", {}, {inputs[0], most}, {rows})[0]};
    return std::pair(most, sum);
  };
  return {
      .name = "loss",
      .inputs = {normals(logits, 1, 2)},
      .differentiated = {0},
      .forward =
          [=](const std::vector<Tensor>& inputs) {
            const auto [most, sum] = statistics(inputs);
            const Tensor picked{rows, run("pick", part, {inputs[0], labels}, {rows})[0]};
            const Tensor losses{rows,
                                run("token_loss", {}, {most, sum, picked, labels}, {rows})[0]};
            return run("loss_sum", {}, {losses, count}, {Shape{}});
          },
      .gradient =
          [=](const std::vector<Tensor>& inputs, const Values&,
              const std::vector<double>& d_output) {
            const auto [most, sum] = statistics(inputs);
            Values grad = run("loss_grad", part, {inputs[0], most, sum, labels, count}, {logits});
            for (double& value : grad[0]) value *= d_output[0];
            return grad;
          }};
}

OperatorGradient attention(const AttentionParameters& parameters, const Shape& q, const Shape& k,
                           const Tensor& positions_q, const Tensor& documents_q,
                           const Tensor& positions_k, const Tensor& documents_k) {
  return {.op = "attention",
          .parameters = parameters,
          .inputs = {normals(q, 1), normals(k, 2), normals(k, 3), positions_q, positions_k,
                     documents_q, documents_k},
          .outputs = {q, {q[0], q[1], q[2]}},
          .differentiated = {0, 1, 2},
          .gradient_inputs = {0, 1, 2, 3, 4, 5, 6},
          .saved_outputs = {0, 1}};
}

/// Attention over keys that come in two blocks, each of which an accumulating call adds: what a
/// ring does. The second rows of a query see nothing of the first block.
GradientCase of_attention_in_blocks() {
  constexpr std::int64_t kQueries = 4;
  constexpr std::int64_t kBlocks = 2;
  const AttentionParameters parameters{.scale = 0.6, .heads_per_kv = 2};
  const Shape q{1, kQueries, 2, 3};
  const Shape k{1, 3, 1, 3};
  const Tensor positions_q = integers({1, kQueries}, {5, 0, 2, 1});
  const Tensor documents_q = integers({1, kQueries}, {0, 1, 1, 0});
  const Tensor positions_k[kBlocks] = {integers({1, 3}, {0, 1, 2}), integers({1, 3}, {0, 1, 3})};
  const Tensor documents_k[kBlocks] = {integers({1, 3}, {0, 0, 0}), integers({1, 3}, {1, 1, 0})};
  const auto arguments = [=](const std::vector<Tensor>& inputs, std::size_t block) {
    return std::vector<Tensor>{inputs[0],         inputs[1 + block],  inputs[3 + block],
                               positions_q,       positions_k[block], documents_q,
                               documents_k[block]};
  };
  return {.name = "attention over two blocks of keys",
          .inputs = {normals(q, 1), normals(k, 2), normals(k, 3), normals(k, 4), normals(k, 5)},
          .differentiated = {0, 1, 2, 3, 4},
          .forward =
              [=](const std::vector<Tensor>& inputs) {
                Values state = run("attention", parameters, arguments(inputs, 0), {q, {1, 4, 2}});
                OwnedCall second("attention", parameters, arguments(inputs, 1),
                                 {{q, state[0]}, {{1, 4, 2}, state[1]}}, DType::Float64,
                                 DType::Float64);
                second.call.accumulate = {true, true};
                run_reference(second.call);
                return Values{second.output(0), second.output(1)};
              },
          .gradient =
              [=](const std::vector<Tensor>& inputs, const Values& outputs,
                  const std::vector<double>& d_output) {
                Values of_block[kBlocks];
                for (std::size_t block = 0; block < kBlocks; ++block) {
                  std::vector<Tensor> all = arguments(inputs, block);
                  all.push_back({q, outputs[0]});
                  all.push_back({{1, 4, 2}, outputs[1]});
                  all.push_back({q, d_output});
                  of_block[block] = run("attention_grad", parameters, all, {q, k, k});
                }
                Values result = {of_block[0][0], of_block[0][1], of_block[1][1], of_block[0][2],
                                 of_block[1][2]};
                for (std::size_t i = 0; i < result[0].size(); ++i) {
                  result[0][i] += of_block[1][0][i];
                }
                return result;
              }};
}

void add_attention(std::vector<GradientCase>& all) {
  const Tensor documents = integers({2, 5}, {0, 0, 0, 1, 1, 0, 1, 1, 1, 1});
  const Tensor positions = integers({2, 5}, {0, 1, 2, 0, 1, 4, 0, 1, 2, 3});
  all.push_back(of_operator(attention({.scale = 0.7, .heads_per_kv = 2}, {2, 5, 4, 3}, {2, 5, 2, 3},
                                      positions, documents, positions, documents)));
  all.back().name = "attention with documents and grouped heads";
  const Tensor counted = counted_positions(1, 6);
  const Tensor same = integers({1, 6}, {0, 0, 0, 0, 0, 0});
  all.push_back(of_operator(attention({.scale = 0.5, .window = 3}, {1, 6, 2, 4}, {1, 6, 2, 4},
                                      counted, same, counted, same)));
  all.back().name = "attention with a window";
  // This rank holds whole heads 3 to 5 of a model with 3 query heads per KV head.
  all.push_back(of_operator(
      attention({.scale = 0.5, .heads_per_kv = 3, .query_head_start = 3, .kv_head_start = 1},
                {1, 6, 3, 2}, {1, 6, 1, 2}, counted, same, counted, same)));
  all.back().name = "attention with heads from the middle";
  all.push_back(of_attention_in_blocks());
}

}  // namespace

std::vector<GradientCase> gradient_cases() {
  const Shape shape{2, 3, 6};
  const Shape heads{2, 3, 2, 6};
  const Tensor x = normals(shape, 1);
  const Tensor w = normals({6}, 2);
  const Tensor b = normals({6}, 3);
  const Tensor positions = integers({2, 3}, {0, 5, 900, 3, 4, 5});
  const Tensor ids = integers({2, 3}, {4, 5, 4, 9, 3, 6});
  const Tensor key = long_integers({2}, {3, 8});
  const DropoutParameters dropout{.rate = 0.4, .stream = 2, .whole = {4, 3, 8}, .start = {1, 0, 2}};
  std::vector<GradientCase> all = {
      of_einsum(),
      of_add(),
      of_bias_add(),
      of_loss(),
      of_operator({"rms_norm", NormParameters{1e-3}, {x, w}, {shape}, {0, 1}, {0, 1}}),
      of_operator({"layer_norm", NormParameters{1e-3}, {x, w, b}, {shape}, {0, 1, 2}, {0, 1, 2}}),
      of_operator({"rope",
                   RopeParameters{.theta = 100},
                   {normals(heads, 1), positions},
                   {heads},
                   {0},
                   {1}}),
      of_operator({"gelu", GeluParameters{true}, {x}, {shape}, {0}, {0}}),
      of_operator({"gelu", GeluParameters{false}, {x}, {shape}, {0}, {0}}),
      of_operator({"sigmoid", {}, {x}, {shape}, {0}, {0}}),
      of_operator({"swiglu", {}, {x, normals(shape, 4)}, {shape}, {0, 1}, {0, 1}}),
      of_operator(
          {"embedding", VocabularyParameters{3}, {ids, normals({4, 6}, 1)}, {shape}, {1}, {0, 1}}),
      of_operator({"dropout", dropout, {x, key}, {shape}, {0}, {}}),
      of_operator({"cast", {}, {x}, {shape}, {0}, {}}),
  };
  // A gradient operator of its own would be noise: the key goes last, a cast's gradient is a cast.
  all[all.size() - 2].gradient = [dropout, shape](const std::vector<Tensor>& inputs, const Values&,
                                                  const std::vector<double>& d_output) {
    return run("dropout_grad", dropout, {{shape, d_output}, inputs[1]}, {shape});
  };
  all.back().gradient = [shape](const std::vector<Tensor>&, const Values&,
                                const std::vector<double>& d_output) {
    return run("cast", {}, {{shape, d_output}}, {shape});
  };
  add_attention(all);
  for (GradientCase& row : expert_gradient_cases()) all.push_back(std::move(row));
  return all;
}

}  // namespace sw::kernels::testing
