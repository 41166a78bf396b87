#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "graph/graph.hpp"
#include "model/config.hpp"

/// Letters: B batch, S sequence, D model, H heads, G KV heads, K head, F feed-forward, V
/// vocabulary, P positions, E experts.
namespace sw {

/// A forward being written: the graph, the parameters by name, and the pieces that families share.
class Forward {
 public:
  /// Adds the inputs and every parameter of the model.
  Forward(const ModelConfig& config, std::int64_t micro_batch, std::int64_t sequence,
          DType activation);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] ValueId tokens() const { return model_.tokens; }
  [[nodiscard]] ValueId positions() const { return model_.positions; }
  [[nodiscard]] ValueId weight(const std::string& parameter) const;

  /// Ops from here on belong to this layer (-1: to the ends), and their names start with its own.
  void set_layer(int layer);

  [[nodiscard]] ValueId make(std::string_view op, std::vector<ValueId> inputs,
                             std::string_view name, kernels::Parameters parameters = {});
  /// The same, returning every output.
  [[nodiscard]] std::vector<ValueId> make_all(std::string_view op, std::vector<ValueId> inputs,
                                              std::string_view name,
                                              kernels::Parameters parameters = {});
  /// x times a parameter, plus the bias `bias` if it is not empty.
  [[nodiscard]] ValueId product(std::string_view spec, ValueId x, const std::string& weight,
                                const std::string& bias, std::string_view name);
  /// q [B,S,H,K], k and v [B,S,G,K] -> [B,S,H,K].
  [[nodiscard]] ValueId attention(ValueId query, ValueId key, ValueId value);
  /// x itself when the rate is 0.
  [[nodiscard]] ValueId dropout(ValueId x, double rate, std::string_view name);
  /// With which the next router watched chooses [E], called `name`.
  [[nodiscard]] ValueId router_bias(const std::string& name);
  /// Counts the slots of a layer's experts, and adds to the loss what keeps them about equally
  /// loaded and their logits small, as far as the model wants it.
  /// `taken`: the choice without what the layer's experts do not take.
  void watch_router(ValueId router_logits, ValueId choice, ValueId taken);
  /// Part of the residual stream from here on.
  ValueId residual(ValueId x);
  /// x times a parameter, in float32.
  [[nodiscard]] ValueId float32_product(std::string_view spec, ValueId x, const std::string& weight,
                                        std::string_view name);

  [[nodiscard]] ModelGraph& model() { return model_; }

 private:
  [[nodiscard]] std::string named(std::string_view name) const;
  ValueId expert_load(ValueId choice, std::string_view name, DType dtype);
  void add_to_loss(std::string_view op, std::vector<ValueId> inputs, double coefficient,
                   WindowSum sum);

  ModelConfig config_;
  DType activation_;
  ModelGraph model_;
  std::map<std::string, ValueId, std::less<>> weights_;
  int layer_ = -1;
  std::int64_t dropouts_ = 0;
  std::int64_t routers_ = 0;
};

}  // namespace sw
