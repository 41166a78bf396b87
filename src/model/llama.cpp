#include "base/error.hpp"
#include "model/families.hpp"
#include "model/specs.hpp"

/// Llama and its kin: rms_norm, rope, grouped-query attention, swiglu.
/// Source: Touvron et al. 2023, arXiv:2302.13971; names and order as in the `transformers` library.
namespace sw::llama {
namespace {

const char* const kTable = "model.embed_tokens.weight";
const char* const kFinalNorm = "model.norm.weight";
const char* const kHead = "lm_head.weight";

std::string layer_prefix(int layer) { return fmt::format("model.layers.{}.", layer); }

/// y = x W^T: the tensor is [out, in].
void add_projection(Specs& specs, const std::string& name, const Shape& out, const Shape& in,
                    const std::string& out_letters, const std::string& in_letters, bool bias) {
  Shape shape = out;
  shape.insert(shape.end(), in.begin(), in.end());
  specs.matrix(name + ".weight", shape, out_letters + in_letters, {elements(out), elements(in)});
  if (bias) {
    specs.bias(name + ".bias", out, out_letters);
  }
}

void add_layer(Specs& specs, const ModelConfig& c, int layer) {
  const std::string prefix = layer_prefix(layer);
  const Shape d = {c.hidden};
  const Shape hk = {c.heads, c.head_dim};
  const Shape gk = {c.kv_heads, c.head_dim};
  const Shape f = {c.feed_forward};
  specs.set_layer(layer);
  specs.norm(prefix + "input_layernorm.weight");
  add_projection(specs, prefix + "self_attn.q_proj", hk, d, "hk", "d", c.qkv_bias);
  add_projection(specs, prefix + "self_attn.k_proj", gk, d, "gk", "d", c.qkv_bias);
  add_projection(specs, prefix + "self_attn.v_proj", gk, d, "gk", "d", c.qkv_bias);
  add_projection(specs, prefix + "self_attn.o_proj", d, hk, "d", "hk", c.output_bias);
  specs.norm(prefix + "post_attention_layernorm.weight");
  add_projection(specs, prefix + "mlp.gate_proj", f, d, "f", "d", c.mlp_bias);
  add_projection(specs, prefix + "mlp.up_proj", f, d, "f", "d", c.mlp_bias);
  add_projection(specs, prefix + "mlp.down_proj", d, f, "d", "f", c.mlp_bias);
}

ValueId project(Forward& f, std::string_view spec, ValueId x, const std::string& name, bool bias,
                std::string_view as) {
  return f.product(spec, x, name + ".weight", bias ? name + ".bias" : "", as);
}

/// A projection into the residual stream: a bias is added to what already lies as the stream does.
ValueId project_back(Forward& f, std::string_view spec, ValueId x, const std::string& name,
                     bool bias, std::string_view as) {
  const ValueId y = project(f, spec, x, name, bias, as);
  return bias ? f.residual(y) : y;
}

ValueId norm(Forward& f, ValueId x, const std::string& weight, std::string_view name) {
  return f.make("rms_norm", {x, f.weight(weight)}, name,
                kernels::NormParameters{f.config().norm_epsilon});
}

ValueId attention_block(Forward& f, ValueId x, const std::string& prefix) {
  const ModelConfig& c = f.config();
  const std::string p = prefix + "self_attn.";
  const ValueId query = project(f, "bsd,hkd->bshk", x, p + "q_proj", c.qkv_bias, "query");
  const ValueId key = project(f, "bsd,gkd->bsgk", x, p + "k_proj", c.qkv_bias, "key");
  const ValueId value = project(f, "bsd,gkd->bsgk", x, p + "v_proj", c.qkv_bias, "value");
  const ValueId turned_query = f.make("rope", {query, f.positions()}, "query_rope", c.rope);
  const ValueId turned_key = f.make("rope", {key, f.positions()}, "key_rope", c.rope);
  const ValueId seen = f.attention(turned_query, turned_key, value);
  return project_back(f, "bshk,dhk->bsd", seen, p + "o_proj", c.output_bias, "attention_output");
}

ValueId mlp_block(Forward& f, ValueId x, const std::string& prefix) {
  const bool bias = f.config().mlp_bias;
  const std::string p = prefix + "mlp.";
  const ValueId gate = project(f, "bsd,fd->bsf", x, p + "gate_proj", bias, "gate");
  const ValueId up = project(f, "bsd,fd->bsf", x, p + "up_proj", bias, "up");
  const ValueId inner = f.make("swiglu", {gate, up}, "swiglu");
  return project_back(f, "bsf,df->bsd", inner, p + "down_proj", bias, "mlp_output");
}

}  // namespace

std::vector<ParameterSpec> parameters(const ModelConfig& config) {
  Specs specs(config);
  const Shape table = {config.vocabulary, config.hidden};
  specs.matrix(kTable, table, "vd", table);
  for (int layer = 0; layer < config.layers; ++layer) {
    add_layer(specs, config, layer);
  }
  specs.set_layer(-1);
  specs.norm(kFinalNorm);
  if (!config.tied) {
    specs.matrix(kHead, table, "vd", table);
  }
  return specs.take();
}

ValueId forward(Forward& f) {
  const ModelConfig& config = f.config();
  ValueId x = f.residual(f.make("embedding", {f.tokens(), f.weight(kTable)}, "embedding",
                                kernels::VocabularyParameters{}));
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = layer_prefix(layer);
    f.set_layer(layer);
    ValueId y = norm(f, x, prefix + "input_layernorm.weight", "attention_norm");
    y = attention_block(f, y, prefix);
    x = f.residual(f.make("add", {x, y}, "attention_residual"));
    y = norm(f, x, prefix + "post_attention_layernorm.weight", "mlp_norm");
    y = mlp_block(f, y, prefix);
    x = f.residual(f.make("add", {x, y}, "mlp_residual"));
  }
  f.set_layer(-1);
  x = norm(f, x, kFinalNorm, "norm");
  return f.head(x, config.tied ? kTable : kHead);
}

}  // namespace sw::llama
