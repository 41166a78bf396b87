#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "kernels/kernel.hpp"

/// The logical graph: whole shapes, as if on one device. A model writes the forward;
/// `differentiate` appends the backward.
namespace sw {

using ValueId = int;
using OpId = int;

struct Operator;

enum class ValueKind : std::uint8_t { Parameter, Input, Activation };

/// What is added up over the micro-batches of a window, then over ranks and stages, and read by the
/// host.
enum class WindowSum : std::uint8_t { Loss, BalanceLoss, ZLoss, ExpertLoad };
inline constexpr const char* kWindowSums[] = {"loss", "balance loss", "router z-loss",
                                              "expert load"};

struct Value {
  std::string name;
  Shape shape;
  DType dtype = DType::Float32;
  ValueKind kind = ValueKind::Activation;
  /// Parameter: a letter per dim (see the legend in kernels/kernel.hpp; 'p' positions), which says
  /// how a layout may cut it: H and G heads, F feed-forward, V vocabulary, E
  /// experts ('r': rows of a router, which are whole everywhere).
  std::string letters;
  /// Parameter: 0.. for a decoder layer, -1 for those of the model's ends.
  int layer = -1;
  bool frozen = false;
  bool decay = true;  ///< Parameter: weight decay applies unless the run file says otherwise
  bool residual =
      false;  ///< Part of the residual stream: a layout pins its placement, and its gradient's
  ValueId gradient_of = -1;
  /// Added to this row of a window's sum: the loss is one number, the others have a row for each
  /// router.
  std::optional<WindowSum> sum;
  std::int64_t sum_row = 0;
  /// Input: this row of the biases with which routers choose; named as checkpoints do. -1: it is
  /// none.
  std::int64_t bias_row = -1;
};

/// What an input of a gradient operator is, seen from its forward operator.
struct GradientInput {
  enum class Kind : std::uint8_t { Input, Output, OutputGradient };
  Kind kind = Kind::Input;
  int index = 0;  ///< of the forward's input or output
};

enum class Direction : std::uint8_t { Forward, Backward };

struct Op {
  const Operator* definition = nullptr;
  kernels::Parameters parameters;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Direction direction = Direction::Forward;
  int layer = -1;
  std::string name;
  /// Backward: the op it differentiates (-1: an addition of contributions, or the loss gradient),
  /// and what its inputs and outputs are to it.
  OpId forward = -1;
  std::vector<GradientInput> gradient_inputs;
  std::vector<int>
      gradient_outputs;  ///< outputs[i] is the gradient of the forward's input gradient_outputs[i]
};

/// A parameter and what its gradient is the sum of, in the order in which the backward makes them.
struct ParameterGradient {
  ValueId parameter = -1;
  std::vector<ValueId> contributions;
};

class Graph {
 public:
  ValueId parameter(std::string name, Shape shape, DType dtype, std::string letters, int layer);
  ValueId input(std::string name, Shape shape, DType dtype);
  ValueId activation(std::string name, Shape shape, DType dtype);

  /// Appends an op; makes its outputs by the operator's shape rule, named `name` (first) and
  /// `name.<output>`. Throws InternalError when shapes do not fit. `dtype` is that of the first
  /// output.
  OpId apply(std::string_view op, std::vector<ValueId> inputs, std::string name, DType dtype,
             kernels::Parameters parameters = {});
  /// The same, returning the first output.
  ValueId make(std::string_view op, std::vector<ValueId> inputs, std::string name, DType dtype,
               kernels::Parameters parameters = {});
  ValueId einsum(std::string spec, ValueId a, ValueId b, std::string name, DType dtype);

  /// Appends an op whose outputs exist already: for `differentiate`.
  OpId append_gradient(Op op);

  void set_layer(int layer) { layer_ = layer; }
  void set_direction(Direction direction) { direction_ = direction; }

  [[nodiscard]] const std::vector<Value>& values() const { return values_; }
  [[nodiscard]] const std::vector<Op>& ops() const { return ops_; }
  [[nodiscard]] const Value& value(ValueId id) const {
    return values_.at(static_cast<std::size_t>(id));
  }
  [[nodiscard]] Value& value(ValueId id) { return values_.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] const Op& op(OpId id) const { return ops_.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] Op& op(OpId id) { return ops_.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] std::vector<ValueId> parameters() const;

  std::vector<ParameterGradient> parameter_gradients;  ///< filled by differentiate

 private:
  std::vector<Value> values_;
  std::vector<Op> ops_;
  int layer_ = -1;
  Direction direction_ = Direction::Forward;
};

/// A forward as a model gives it: one micro-batch of B sequences, from the five inputs to the
/// window's share of the loss.
struct ModelGraph {
  Graph graph;
  ValueId tokens = -1, labels = -1, positions = -1, documents = -1;  ///< int32 [B,S]
  ValueId count = -1;        ///< float32 []: valid labels of the window
  ValueId dropout_key = -1;  ///< int64 [2]; -1 without dropout
  ValueId logits = -1;       ///< float32 [B,S,V]
  ValueId row_max = -1, sum_exp = -1;
  ValueId loss = -1;  ///< float32 []: sum of this micro-batch's token losses / count
};

/// The inputs that are biases of routers, by rows.
[[nodiscard]] std::vector<const Value*> router_biases(const Graph& graph);

/// Appends the five loss operators: row maximum, sum of exponentials, pick, token loss, sum.
void append_loss(ModelGraph& model);

/// Appends the backward of `model.loss`, and of the terms beside it (Operator::seed), on the
/// logical graph: contributions to one value are added
/// (in the order in which they arise) before they go on. `activation_gradient` dtype is that of
/// each value; parameter gradients are float32. Throws ConfigError naming parameters that get no
/// gradient although they are not frozen.
void differentiate(ModelGraph& model);

}  // namespace sw
