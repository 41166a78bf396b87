#include "base/error.hpp"
#include "model/experts.hpp"
#include "model/families.hpp"
#include "model/specs.hpp"

/// Llama and its kin: rms_norm, rope, grouped-query attention, swiglu, of experts or not.
/// Source: Touvron et al. 2023, arXiv:2302.13971; names and order as in the `transformers` library.
namespace sw::llama {
namespace {

const char* const kTable = "model.embed_tokens.weight";
const char* const kFinalNorm = "model.norm.weight";
const char* const kHead = "lm_head.weight";
// Of a layer: the expert that every token sees, and what it is weighted by.
const char* const kSharedExpert = "mlp.shared_expert.";
const char* const kSharedGate = "mlp.shared_expert_gate.weight";

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

void add_mlp(Specs& specs, const ModelConfig& c, const std::string& prefix, std::int64_t width) {
  const Shape d = {c.hidden};
  const Shape f = {width};
  add_projection(specs, prefix + "gate_proj", f, d, "f", "d", c.mlp_bias);
  add_projection(specs, prefix + "up_proj", f, d, "f", "d", c.mlp_bias);
  add_projection(specs, prefix + "down_proj", d, f, "d", "f", c.mlp_bias);
}

void add_feed_forward(Specs& specs, const ModelConfig& c, const std::string& prefix, int layer) {
  if (!experts::in_layer(c, layer)) {
    add_mlp(specs, c, prefix + "mlp.", c.feed_forward);
    return;
  }
  experts::add(specs, c, prefix);
  if (c.shared_feed_forward > 0) {
    const Shape gate = {1, c.hidden};
    specs.matrix(prefix + kSharedGate, gate, "rd", gate);
    add_mlp(specs, c, prefix + kSharedExpert, c.shared_feed_forward);
  }
}

void add_layer(Specs& specs, const ModelConfig& c, int layer) {
  const std::string prefix = layer_prefix(layer);
  const Shape d = {c.hidden};
  const Shape hk = {c.heads, c.head_dim};
  const Shape gk = {c.kv_heads, c.head_dim};
  specs.set_layer(layer);
  specs.norm(prefix + "input_layernorm.weight");
  add_projection(specs, prefix + "self_attn.q_proj", hk, d, "hk", "d", c.qkv_bias);
  add_projection(specs, prefix + "self_attn.k_proj", gk, d, "gk", "d", c.qkv_bias);
  add_projection(specs, prefix + "self_attn.v_proj", gk, d, "gk", "d", c.qkv_bias);
  if (c.head_norm) {
    specs.head_norm(prefix + "self_attn.q_norm.weight");
    specs.head_norm(prefix + "self_attn.k_norm.weight");
  }
  add_projection(specs, prefix + "self_attn.o_proj", d, hk, "d", "hk", c.output_bias);
  specs.norm(prefix + "post_attention_layernorm.weight");
  add_feed_forward(specs, c, prefix, layer);
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
  ValueId query = project(f, "bsd,hkd->bshk", x, p + "q_proj", c.qkv_bias, "query");
  ValueId key = project(f, "bsd,gkd->bsgk", x, p + "k_proj", c.qkv_bias, "key");
  const ValueId value = project(f, "bsd,gkd->bsgk", x, p + "v_proj", c.qkv_bias, "value");
  if (c.head_norm) {
    query = norm(f, query, p + "q_norm.weight", "query_norm");
    key = norm(f, key, p + "k_norm.weight", "key_norm");
  }
  const ValueId turned_query = f.make("rope", {query, f.positions()}, "query_rope", c.rope);
  const ValueId turned_key = f.make("rope", {key, f.positions()}, "key_rope", c.rope);
  const ValueId seen = f.attention(turned_query, turned_key, value);
  return project_back(f, "bshk,dhk->bsd", seen, p + "o_proj", c.output_bias, "attention_output");
}

/// `weight`, [B,S,1], scales the result; ahead of the last product, as with experts. -1: none.
ValueId mlp_block(Forward& f, ValueId x, const std::string& p, const std::string& as,
                  ValueId weight) {
  const bool bias = f.config().mlp_bias;
  const ValueId gate = project(f, "bsd,fd->bsf", x, p + "gate_proj", bias, as + "gate");
  const ValueId up = project(f, "bsd,fd->bsf", x, p + "up_proj", bias, as + "up");
  ValueId inner = f.make("swiglu", {gate, up}, as + "swiglu");
  if (weight >= 0) {
    inner = f.make("scale_rows", {inner, weight}, as + "weighted");
  }
  return project_back(f, "bsf,df->bsd", inner, p + "down_proj", bias, as + "mlp_output");
}

ValueId feed_forward(Forward& f, ValueId x, const std::string& prefix, int layer) {
  const ModelConfig& config = f.config();
  if (!experts::in_layer(config, layer)) {
    return mlp_block(f, x, prefix + "mlp.", "", -1);
  }
  const ValueId chosen = experts::forward(f, x, prefix);
  if (config.shared_feed_forward == 0) {
    return chosen;
  }
  const ValueId score = f.product("bsd,ed->bse", x, prefix + kSharedGate, "", "shared_score");
  const ValueId weight = f.make("sigmoid", {score}, "shared_weight");
  const ValueId shared = mlp_block(f, x, prefix + kSharedExpert, "shared_", weight);
  return f.make("add", {chosen, shared}, "all_experts");
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
    y = feed_forward(f, y, prefix, layer);
    x = f.residual(f.make("add", {x, y}, "mlp_residual"));
  }
  f.set_layer(-1);
  x = norm(f, x, kFinalNorm, "norm");
  return f.float32_product("bsd,vd->bsv", x, config.tied ? kTable : kHead, "logits");
}

}  // namespace sw::llama
