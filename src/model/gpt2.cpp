#include <array>
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"
#include "model/specs.hpp"

/// GPT-2: layer_norm, learned positions, gelu, biases everywhere, dropout.
/// Source: Radford et al. 2019; names and order as in the `transformers` library, whose projections
/// are [in, out] and whose q, k and v are one tensor c_attn.
namespace sw::gpt2 {
namespace {

const char* const kTable = "transformer.wte.weight";
const char* const kPositions = "transformer.wpe.weight";
const char* const kHead = "lm_head.weight";
constexpr std::array<const char*, 3> kFused = {".q", ".k", ".v"};

std::string layer_prefix(int layer) { return fmt::format("transformer.h.{}.", layer); }

void add_norm(Specs& specs, const ModelConfig& c, const std::string& name) {
  specs.norm(name + ".weight");
  specs.bias(name + ".bias", {c.hidden}, "d");
}

void add_layer(Specs& specs, const ModelConfig& c, int layer) {
  const std::string prefix = layer_prefix(layer);
  // What is added to the residual stream starts smaller, by the number of such additions.
  const double residual = 1 / std::sqrt(2.0 * static_cast<double>(c.layers));
  const std::int64_t d = c.hidden;
  const std::int64_t f = c.feed_forward;
  const std::string fused = prefix + "attn.c_attn";
  specs.set_layer(layer);
  add_norm(specs, c, prefix + "ln_1");
  for (std::size_t i = 0; i < kFused.size(); ++i) {
    const auto part = static_cast<std::int64_t>(i);
    specs.matrix(fused + ".weight" + kFused.at(i), {d, c.heads, c.head_dim}, i == 0 ? "dhk" : "dgk",
                 {d, d});
    specs.fuse(fused + ".weight", part, 3);
    specs.bias(fused + ".bias" + kFused.at(i), {c.heads, c.head_dim}, i == 0 ? "hk" : "gk");
    specs.fuse(fused + ".bias", part, 3);
  }
  specs.matrix(prefix + "attn.c_proj.weight", {c.heads, c.head_dim, d}, "hkd", {d, d}, residual);
  specs.bias(prefix + "attn.c_proj.bias", {d}, "d");
  add_norm(specs, c, prefix + "ln_2");
  specs.matrix(prefix + "mlp.c_fc.weight", {d, f}, "df", {d, f});
  specs.bias(prefix + "mlp.c_fc.bias", {f}, "f");
  specs.matrix(prefix + "mlp.c_proj.weight", {f, d}, "fd", {f, d}, residual);
  specs.bias(prefix + "mlp.c_proj.bias", {d}, "d");
}

ValueId norm(Forward& f, ValueId x, const std::string& name, std::string_view as) {
  return f.make("layer_norm", {x, f.weight(name + ".weight"), f.weight(name + ".bias")}, as,
                kernels::NormParameters{f.config().norm_epsilon});
}

/// q, k or v: a part of c_attn.
ValueId attention_input(Forward& f, ValueId x, const std::string& prefix, std::size_t part,
                        std::string_view as) {
  const std::string fused = prefix + "attn.c_attn";
  return f.product(part == 0 ? "bsd,dhk->bshk" : "bsd,dgk->bsgk", x,
                   fused + ".weight" + kFused.at(part), fused + ".bias" + kFused.at(part), as);
}

ValueId attention_block(Forward& f, ValueId x, const std::string& prefix) {
  const ValueId query = attention_input(f, x, prefix, 0, "query");
  const ValueId key = attention_input(f, x, prefix, 1, "key");
  const ValueId value = attention_input(f, x, prefix, 2, "value");
  const ValueId y = f.residual(f.product("bshk,hkd->bsd", f.attention(query, key, value),
                                         prefix + "attn.c_proj.weight", prefix + "attn.c_proj.bias",
                                         "attention_output"));
  return f.residual(f.dropout(y, f.config().residual_dropout, "attention_dropout"));
}

ValueId mlp_block(Forward& f, ValueId x, const std::string& prefix) {
  const ValueId wide = f.product("bsd,df->bsf", x, prefix + "mlp.c_fc.weight",
                                 prefix + "mlp.c_fc.bias", "mlp_input");
  const ValueId inner =
      f.make("gelu", {wide}, "gelu", kernels::GeluParameters{f.config().gelu_tanh});
  const ValueId y = f.residual(f.product("bsf,fd->bsd", inner, prefix + "mlp.c_proj.weight",
                                         prefix + "mlp.c_proj.bias", "mlp_output"));
  return f.residual(f.dropout(y, f.config().residual_dropout, "mlp_dropout"));
}

ValueId embed(Forward& f) {
  const ValueId token = f.residual(f.make("embedding", {f.tokens(), f.weight(kTable)}, "embedding",
                                          kernels::VocabularyParameters{}));
  const ValueId position =
      f.residual(f.make("embedding", {f.positions(), f.weight(kPositions)}, "position_embedding",
                        kernels::VocabularyParameters{}));
  const ValueId x = f.residual(f.make("add", {token, position}, "embedding_sum"));
  return f.residual(f.dropout(x, f.config().embedding_dropout, "embedding_dropout"));
}

}  // namespace

std::vector<ParameterSpec> parameters(const ModelConfig& config) {
  Specs specs(config);
  const Shape table = {config.vocabulary, config.hidden};
  specs.matrix(kTable, table, "vd", table);
  const Shape positions = {config.max_positions, config.hidden};
  specs.matrix(kPositions, positions, "pd", positions);
  for (int layer = 0; layer < config.layers; ++layer) {
    add_layer(specs, config, layer);
  }
  specs.set_layer(-1);
  add_norm(specs, config, "transformer.ln_f");
  if (!config.tied) {
    specs.matrix(kHead, table, "vd", table);
  }
  return specs.take();
}

ValueId forward(Forward& f) {
  const ModelConfig& config = f.config();
  ValueId x = embed(f);
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = layer_prefix(layer);
    f.set_layer(layer);
    ValueId y = norm(f, x, prefix + "ln_1", "attention_norm");
    y = attention_block(f, y, prefix);
    x = f.residual(f.make("add", {x, y}, "attention_residual"));
    y = norm(f, x, prefix + "ln_2", "mlp_norm");
    y = mlp_block(f, y, prefix);
    x = f.residual(f.make("add", {x, y}, "mlp_residual"));
  }
  f.set_layer(-1);
  x = norm(f, x, "transformer.ln_f", "norm");
  return f.float32_product("bsd,vd->bsv", x, config.tied ? kTable : kHead, "logits");
}

}  // namespace sw::gpt2
