#include "tests/kernels/cases.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

namespace sw::kernels::testing {
namespace {

Tensor with_normals(Shape shape) { return normals(std::move(shape), 99); }

/// Labels or ids, some of them masked (-1), spread over [0, vocabulary).
std::vector<std::int64_t> labels(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(i % 5 == 3 ? -1 : (i * 37 + 11) % vocabulary);
  }
  return values;
}

Case einsum(const std::string& spec, const Shape& a, const Shape& b, const Shape& c,
            double summands) {
  return {.name = "einsum " + spec + " " + to_text(c),
          .op = "einsum",
          .parameters = EinsumParameters{spec},
          .inputs = {normals(a, 1), normals(b, 2)},
          .outputs = {with_normals(c)},
          .summands = summands,
          .accumulating = {0}};
}

/// The products of one linear layer, forward, both gradients, and one of a tied head.
void add_einsum_cases(std::vector<Case>& all) {
  all.push_back(einsum("bsd,hkd->bshk", {2, 7, 40}, {3, 24, 40}, {2, 7, 3, 24}, 40));
  all.push_back(einsum("bshk,hkd->bsd", {2, 7, 3, 24}, {3, 24, 40}, {2, 7, 40}, 72));
  all.push_back(einsum("bshk,bsd->hkd", {2, 7, 3, 24}, {2, 7, 40}, {3, 24, 40}, 14));
  all.push_back(einsum("bsd,bshk->hkd", {2, 7, 40}, {2, 7, 3, 24}, {3, 24, 40}, 14));
  all.push_back(einsum("bsd,vd->bsv", {1, 1, 40}, {259, 40}, {1, 1, 259}, 40));
  all.push_back(einsum("bsf,fd->bsd", {5, 65, 30}, {30, 500}, {5, 65, 500}, 30));
  all.push_back(einsum("bsv,bsd->vd", {4, 9, 450}, {4, 9, 259}, {450, 259}, 36));
}

Case one_input(const std::string& op, const Parameters& parameters, const Shape& shape,
               bool gradient) {
  Case result{.name = op + " " + to_text(shape),
              .op = op,
              .parameters = parameters,
              .inputs = {normals(shape, 3, 2)},
              .outputs = {zeros(shape)},
              .in_place = gradient ? 1 : 0};
  if (gradient) result.inputs.push_back(normals(shape, 4));
  return result;
}

void add_elementwise_cases(std::vector<Case>& all) {
  for (const Shape& shape : {Shape{1}, Shape{2, 7, 40}, Shape{3, 65, 259}}) {
    all.push_back(one_input("gelu", GeluParameters{true}, shape, false));
    all.push_back(one_input("gelu", GeluParameters{false}, shape, false));
    all.push_back(one_input("gelu_grad", GeluParameters{true}, shape, true));
    all.push_back(one_input("gelu_grad", GeluParameters{false}, shape, true));
    all.push_back(one_input("swiglu", NoParameters{}, shape, true));
    all.back().in_place = 0;
    all.push_back(one_input("swiglu_grad", NoParameters{}, shape, true));
    all.back().inputs.push_back(normals(shape, 5));
    all.back().outputs.push_back(zeros(shape));
    all.back().in_place = 2;
    all.push_back(one_input("sigmoid", NoParameters{}, shape, false));
    all.push_back(one_input("sigmoid_grad", NoParameters{}, shape, true));
    all.push_back(one_input("cast", NoParameters{}, shape, false));
    all.push_back(one_input("add", NoParameters{}, shape, true));
    all.back().inputs.push_back(normals(shape, 5));
    all.back().in_place = 0;
  }
  for (const char* op : {"dropout", "dropout_grad"}) {
    const DropoutParameters parameters{
        .rate = 0.3, .stream = 5, .whole = {4, 20, 60}, .start = {1, 10, 20}};
    all.push_back(one_input(op, parameters, {3, 7, 40}, false));
    all.back().inputs.push_back(long_integers({2}, {17, 1000}));
  }
}

void add_bias_cases(std::vector<Case>& all) {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 7, 40}, Shape{5, 65, 259}}) {
    const double rows = static_cast<double>(shape[0] * shape[1]);
    all.push_back({.name = "bias_add " + to_text(shape),
                   .op = "bias_add",
                   .inputs = {normals(shape, 1), normals({shape.back()}, 2)},
                   .outputs = {zeros(shape)},
                   .in_place = 0});
    all.push_back({.name = "bias_add_grad " + to_text(shape),
                   .op = "bias_add_grad",
                   .inputs = {normals(shape, 1)},
                   .outputs = {with_normals({shape.back()})},
                   .summands = rows,
                   .accumulating = {0}});
  }
}

void add_norm_cases(std::vector<Case>& all) {
  for (const Shape& shape : {Shape{1, 1, 40}, Shape{2, 7, 40}, Shape{3, 65, 259}}) {
    const Tensor x = normals(shape, 1, 3);
    const Tensor w = normals({shape.back()}, 2);
    const Tensor b = normals({shape.back()}, 3);
    const Tensor dy = normals(shape, 4);
    const Tensor dw = with_normals({shape.back()});
    // A statistic is a sum over the row, and a weight gradient one over the rows of such.
    const double row = static_cast<double>(shape.back());
    const double both = row + static_cast<double>(shape[0] * shape[1]);
    const NormParameters epsilon{1e-5};
    const std::string suffix = " " + to_text(shape);
    all.push_back({"rms_norm" + suffix, "rms_norm", epsilon, {x, w}, {zeros(shape)}, row});
    all.push_back({"layer_norm" + suffix, "layer_norm", epsilon, {x, w, b}, {zeros(shape)}, row});
    all.push_back({"rms_norm_grad" + suffix,
                   "rms_norm_grad",
                   epsilon,
                   {x, w, dy},
                   {zeros(shape), dw},
                   both,
                   {1},
                   2});
    all.push_back({"layer_norm_grad" + suffix,
                   "layer_norm_grad",
                   epsilon,
                   {x, w, b, dy},
                   {zeros(shape), dw, dw},
                   both,
                   {1, 2},
                   3});
  }
}

void add_rope_cases(std::vector<Case>& all) {
  for (const std::int64_t size : {16, 24, 64}) {
    for (const std::int64_t sequence : {1, 7, 65}) {
      const Shape shape{2, sequence, 3, size};
      std::vector<std::int64_t> positions;
      for (std::int64_t i = 0; i < 2 * sequence; ++i) positions.push_back(i * 1013 % 8192);
      const Tensor at = integers({2, sequence}, positions);
      all.push_back({.name = "rope " + to_text(shape),
                     .op = "rope",
                     .parameters = RopeParameters{.theta = 500000},
                     .inputs = {normals(shape, 1), at},
                     .outputs = {zeros(shape)},
                     .in_place = 0});
      all.push_back({.name = "rope_grad " + to_text(shape),
                     .op = "rope_grad",
                     .parameters = RopeParameters{},
                     .inputs = {at, normals(shape, 2)},
                     .outputs = {zeros(shape)},
                     .in_place = 1});
    }
  }
}

/// Sizes and masks of one attention.
struct AttentionCase {
  std::int64_t sequence;
  std::int64_t size;
  std::int64_t kv_heads;
  std::int64_t heads_per_kv;
  std::int64_t window = 0;
  std::int64_t document_length = 1'000'000;
  std::int64_t more_keys = 0;  ///< keys before the first query, as with a split sequence
};

/// The documents of [2, length] with restarting positions, beginning `before` rows earlier.
std::pair<Tensor, Tensor> positions_and_documents(std::int64_t first, std::int64_t length,
                                                  std::int64_t document_length) {
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> documents;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = first; i < first + length; ++i) {
      const std::int64_t place = i + b * 5;  // samples cut their documents elsewhere
      positions.push_back(place % document_length);
      documents.push_back(place / document_length);
    }
  }
  return {integers({2, length}, positions), integers({2, length}, documents)};
}

void add_attention_case(std::vector<Case>& all, const AttentionCase& c) {
  const std::int64_t keys = c.sequence + c.more_keys;
  const Shape query{2, c.sequence, c.kv_heads * c.heads_per_kv, c.size};
  const Shape key{2, keys, c.kv_heads, c.size};
  const auto [positions_q, documents_q] =
      positions_and_documents(c.more_keys, c.sequence, c.document_length);
  const auto [positions_k, documents_k] = positions_and_documents(0, keys, c.document_length);
  const Parameters parameters =
      AttentionParameters{.scale = 1 / std::sqrt(static_cast<double>(c.size)),
                          .heads_per_kv = c.heads_per_kv,
                          .window = c.window};
  Case forward{.name = "attention " + to_text(query) + " of " + to_text(key) + " window " +
                       std::to_string(c.window) + " documents of " +
                       std::to_string(c.document_length),
               .op = "attention",
               .parameters = parameters,
               .inputs = {normals(query, 1), normals(key, 2), normals(key, 3), positions_q,
                          positions_k, documents_q, documents_k},
               .outputs = {with_normals(query), float32(with_normals({2, c.sequence, query[2]}))},
               .summands = static_cast<double>(keys + c.size),
               .accumulating = {0, 1}};
  const Values result = run("attention", parameters, forward.inputs,
                            {forward.outputs[0].shape, forward.outputs[1].shape});
  Case backward = forward;
  backward.name = "attention_grad" + forward.name.substr(9);
  backward.op = "attention_grad";
  backward.inputs.push_back({query, result[0]});
  backward.inputs.push_back(float32({forward.outputs[1].shape, result[1]}));
  backward.inputs.push_back(normals(query, 4));
  backward.outputs = {with_normals(query), with_normals(key), with_normals(key)};
  backward.accumulating = {0, 1, 2};
  backward.cancelling = 1;  // of one key's d_weight and delta, equal when there is no other
  all.push_back(std::move(forward));
  all.push_back(std::move(backward));
}

void add_attention_cases(std::vector<Case>& all) {
  for (const std::int64_t sequence : {1, 7, 65}) {
    for (const std::int64_t size : {16, 24, 64}) {
      add_attention_case(all, {sequence, size, 2, 1});
    }
  }
  add_attention_case(all, {.sequence = 65, .size = 24, .kv_heads = 2, .heads_per_kv = 3});
  add_attention_case(all,
                     {.sequence = 150, .size = 16, .kv_heads = 1, .heads_per_kv = 2, .window = 20});
  add_attention_case(
      all, {.sequence = 150, .size = 16, .kv_heads = 1, .heads_per_kv = 2, .document_length = 33});
  add_attention_case(all, {.sequence = 300,
                           .size = 40,
                           .kv_heads = 1,
                           .heads_per_kv = 1,
                           .window = 100,
                           .document_length = 130});
  add_attention_case(all, {.sequence = 70,
                           .size = 16,
                           .kv_heads = 2,
                           .heads_per_kv = 1,
                           .document_length = 101,
                           .more_keys = 77});
}

void add_embedding_cases(std::vector<Case>& all) {
  for (const std::int64_t sequence : {1, 65}) {
    const Tensor ids = integers({3, sequence}, labels(3 * sequence, 400));
    const Shape table{259, 40};
    const Shape rows{3, sequence, 40};
    const VocabularyParameters part{100};
    all.push_back(
        {"embedding " + to_text(rows), "embedding", part, {ids, normals(table, 1)}, {zeros(rows)}});
    all.push_back({.name = "embedding_grad " + to_text(rows),
                   .op = "embedding_grad",
                   .parameters = part,
                   .inputs = {ids, normals(table, 1), normals(rows, 2)},
                   .outputs = {with_normals(table)},
                   .summands = static_cast<double>(sequence),
                   .accumulating = {0}});
  }
  // One id again and again, and ids in falling order.
  std::vector<std::int64_t> values(200, 7);
  for (std::int64_t i = 0; i < 60; ++i) values[static_cast<std::size_t>(3 * i)] = 258 - i;
  all.push_back(
      {.name = "embedding_grad of repeated ids",
       .op = "embedding_grad",
       .parameters = VocabularyParameters{0},
       .inputs = {integers({1, 200}, values), normals({259, 40}, 1), normals({1, 200, 40}, 2)},
       .outputs = {with_normals({259, 40})},
       .summands = 140,
       .accumulating = {0}});
}

void add_loss_cases(std::vector<Case>& all) {
  for (const std::int64_t sequence : {1, 65}) {
    const Shape shape{2, sequence, 259};
    const Shape rows{2, sequence};
    const Tensor logits = float32(normals(shape, 1, 4));
    const Tensor label = integers(rows, labels(2 * sequence, 500));
    const VocabularyParameters part{130};
    const Tensor most = float32({rows, run("row_max", {}, {logits}, {rows})[0]});
    const Tensor sum = float32({rows, run("sum_exp", {}, {logits, most}, {rows})[0]});
    const Tensor picked = float32({rows, run("pick", part, {logits, label}, {rows})[0]});
    const Tensor losses =
        float32({rows, run("token_loss", {}, {most, sum, picked, label}, {rows})[0]});
    const Tensor count = float32({{}, {37}});
    const Tensor out = float32(zeros(rows));
    const std::string suffix = " " + to_text(shape);
    all.push_back({"row_max" + suffix, "row_max", {}, {logits}, {out}});
    all.push_back({"sum_exp" + suffix, "sum_exp", {}, {logits, most}, {out}, 259});
    all.push_back({"pick" + suffix, "pick", part, {logits, label}, {out}});
    all.push_back({"token_loss" + suffix, "token_loss", {}, {most, sum, picked, label}, {out}});
    all.push_back({.name = "loss_sum" + suffix,
                   .op = "loss_sum",
                   .inputs = {losses, count},
                   .outputs = {float32(with_normals({}))},
                   .summands = 1,
                   .accumulating = {0}});
    all.push_back({.name = "loss_grad" + suffix,
                   .op = "loss_grad",
                   .parameters = part,
                   .inputs = {logits, most, sum, label, count},
                   .outputs = {zeros(shape)},
                   .in_place = 0});
  }
}

/// Which functions make the rows of which operators.
struct Group {
  std::vector<std::string> ops;
  void (*add)(std::vector<Case>&);
};

std::vector<Group> groups() {
  return {
      {{"einsum"}, add_einsum_cases},
      {{"gelu", "gelu_grad", "swiglu", "swiglu_grad", "sigmoid", "sigmoid_grad", "cast", "add",
        "dropout", "dropout_grad"},
       add_elementwise_cases},
      {{"bias_add", "bias_add_grad"}, add_bias_cases},
      {{"rms_norm", "rms_norm_grad", "layer_norm", "layer_norm_grad"}, add_norm_cases},
      {{"rope", "rope_grad"}, add_rope_cases},
      {{"attention", "attention_grad"}, add_attention_cases},
      {{"embedding", "embedding_grad"}, add_embedding_cases},
      {{"row_max", "sum_exp", "pick", "token_loss", "loss_sum", "loss_grad"}, add_loss_cases},
      {{"route", "route_grad"}, add_route_cases},
      {{"drop_slots", "expert_load", "balance_loss", "balance_grad", "z_loss", "z_grad"},
       add_balance_cases},
      {{"dispatch", "combine", "scale_rows", "scale_rows_grad"}, add_slot_cases},
      {{"expert_product", "expert_product_grad_input", "expert_product_grad_weight"},
       add_expert_product_cases},
  };
}

}  // namespace

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Group& group : groups()) group.add(all);
  return all;
}

std::vector<Case> cases_of(const std::string& op) {
  std::vector<Case> all;
  for (const Group& group : groups()) {
    if (std::ranges::find(group.ops, op) != group.ops.end()) group.add(all);
  }
  std::erase_if(all, [&op](const Case& row) { return row.op != op; });
  return all;
}

void PrintTo(const GradientCase& row, std::ostream* out) { *out << row.name; }

Values run(const std::string& op, const Parameters& parameters, const std::vector<Tensor>& inputs,
           const std::vector<Shape>& outputs) {
  std::vector<Tensor> results;
  for (const Shape& shape : outputs) results.push_back(zeros(shape));
  return run_into(op, parameters, inputs, results);
}

Values run_into(const std::string& op, const Parameters& parameters,
                const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  const OwnedCall call(op, parameters, inputs, outputs, DType::Float64, DType::Float64);
  run_reference(call.call);
  Values values;
  for (std::size_t i = 0; i < outputs.size(); ++i) values.push_back(call.output(i));
  return values;
}

}  // namespace sw::kernels::testing
