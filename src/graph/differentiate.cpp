#include <map>
#include <set>

#include "base/error.hpp"
#include "graph/graph.hpp"
#include "graph/operator.hpp"

namespace sw {
namespace {

/// Walks the forward backwards and appends the gradient operators.
class Differentiation {
 public:
  explicit Differentiation(ModelGraph& model) : model_(model), graph_(model.graph) {}

  void run() {
    const auto forward_ops = static_cast<OpId>(graph_.ops().size());
    mark_what_needs_a_gradient();
    graph_.set_direction(Direction::Backward);
    seed();
    for (OpId id = forward_ops - 1; id >= 0; --id) {
      differentiate(id);
    }
    name_parameters_without_gradient();
  }

 private:
  bool needs(ValueId value) const { return needs_.at(static_cast<std::size_t>(value)); }

  /// A value needs a gradient when a trained parameter is upstream of it.
  void mark_what_needs_a_gradient() {
    needs_.assign(graph_.values().size(), false);
    for (const ValueId id : graph_.parameters()) {
      needs_[static_cast<std::size_t>(id)] = !graph_.value(id).frozen;
    }
    for (const Op& op : graph_.ops()) {
      bool any = false;
      for (const ValueId input : op.inputs) {
        any = any || needs(input);
      }
      for (const ValueId output : op.outputs) {
        needs_[static_cast<std::size_t>(output)] = any;
      }
    }
  }

  /// The loss gradient is written by hand: (softmax - onehot) / count, with no communication.
  void seed() {
    if (!needs(model_.logits)) {
      return;
    }
    graph_.set_layer(-1);
    const DType dtype = head_input_type();
    give(model_.logits,
         graph_.make("loss_grad",
                     {model_.logits, model_.row_max, model_.sum_exp, model_.labels, model_.count},
                     "loss.gradient", dtype, kernels::VocabularyParameters{}));
  }

  /// The gradient of the logits is the operand of two products: it has the type of the head's
  /// input.
  DType head_input_type() const {
    for (const Op& op : graph_.ops()) {
      if (op.outputs.front() == model_.logits) {
        return graph_.value(op.inputs.front()).dtype;
      }
    }
    throw InternalError("no operator makes the logits");
  }

  void give(ValueId value, ValueId gradient) {
    if (!needs(value)) {
      return;
    }
    if (graph_.value(value).kind == ValueKind::Parameter) {
      parameter_contributions_[value].push_back(gradient);
    } else {
      contributions_[value].push_back(gradient);
    }
  }

  ValueId add(const std::vector<ValueId>& parts, ValueId value) {
    return parts.size() == 1 ? parts.front()
                             : graph_.make("add", parts, "d(" + graph_.value(value).name + ")",
                                           graph_.value(value).dtype);
  }

  /// The whole gradient of a value: its contributions, added once. -1 if there is none. Those of
  /// terms come last, to the sum of the others: where tp repeats a computation they are whole on
  /// every rank and the others Partial, whose sum is so reduced once.
  ValueId total(ValueId value) {
    const auto found = contributions_.find(value);
    if (found == contributions_.end()) {
      return -1;
    }
    std::vector<ValueId> parts;
    std::vector<ValueId> terms;
    for (const ValueId part : found->second) {
      (of_terms_.contains(part) ? terms : parts).push_back(part);
    }
    if (!parts.empty()) {
      terms.insert(terms.begin(), add(parts, value));
    }
    const bool of_term = terms.size() > 1 || of_terms_.contains(terms.front());
    const ValueId sum = add(terms, value);
    if (of_term) {
      of_terms_.insert(sum);
    }
    if (graph_.value(sum).gradient_of <
        0) {  // a gradient that passes through belongs to the value nearest the loss
      graph_.value(sum).gradient_of = value;
    }
    return sum;
  }

  void differentiate(OpId id) {
    const Op forward = graph_.op(id);  // a copy: the graph grows below
    if (!needs(forward.outputs.front())) {
      return;
    }
    graph_.set_layer(forward.layer);
    if (!forward.definition->seed.empty()) {
      const ValueId input = forward.inputs.front();
      const ValueId gradient =
          graph_.make(forward.definition->seed, forward.inputs, "d(" + forward.name + ")",
                      graph_.value(input).dtype, forward.parameters);
      of_terms_.insert(gradient);
      give(input, gradient);
      return;
    }
    const ValueId gradient = total(forward.outputs.front());
    if (gradient < 0) {
      return;
    }
    for (const int input : forward.definition->passes_gradient_to) {
      give(forward.inputs.at(static_cast<std::size_t>(input)), gradient);
    }
    if (forward.definition->passes_gradient_to_all) {
      for (const ValueId input : forward.inputs) {
        give(input, gradient);
      }
    }
    if (forward.definition->gradient) {
      for (const GradientRule& rule : forward.definition->gradient(forward.parameters)) {
        apply(id, forward, rule, gradient);
      }
    }
  }

  void apply(OpId id, const Op& forward, const GradientRule& rule, ValueId gradient) {
    bool wanted = false;
    for (const int output : rule.outputs) {
      wanted = wanted || needs(forward.inputs.at(static_cast<std::size_t>(output)));
    }
    if (!wanted) {
      return;
    }
    Op op;
    op.definition = &find_operator(rule.op);
    op.parameters = rule.parameters;
    op.direction = Direction::Backward;
    op.layer = forward.layer;
    op.forward = id;
    op.gradient_inputs = rule.inputs;
    op.gradient_outputs = rule.outputs;
    for (const GradientInput& input : rule.inputs) {
      const auto at = static_cast<std::size_t>(input.index);
      op.inputs.push_back(input.kind == GradientInput::Kind::Input    ? forward.inputs.at(at)
                          : input.kind == GradientInput::Kind::Output ? forward.outputs.at(at)
                                                                      : gradient);
    }
    std::vector<std::pair<ValueId, ValueId>> made;
    for (const int output : rule.outputs) {
      const ValueId of = forward.inputs.at(static_cast<std::size_t>(output));
      const Value& value = graph_.value(of);
      const DType dtype = value.kind == ValueKind::Parameter ? DType::Float32 : value.dtype;
      made.emplace_back(of, graph_.activation("d(" + value.name + ")", value.shape, dtype));
      op.outputs.push_back(made.back().second);
    }
    op.name = "d(" + forward.name + ")";
    graph_.append_gradient(std::move(op));
    const bool of_term = of_terms_.contains(gradient) && !find_operator(rule.op).stops_partial;
    for (const auto& [value, contribution] : made) {
      if (of_term) {
        of_terms_.insert(contribution);
      }
      give(value, contribution);
    }
  }

  void name_parameters_without_gradient() {
    std::vector<std::string> missing;
    for (const ValueId id : graph_.parameters()) {
      const auto found = parameter_contributions_.find(id);
      if (found != parameter_contributions_.end()) {
        graph_.parameter_gradients.push_back({id, found->second});
      } else if (!graph_.value(id).frozen) {
        missing.push_back(graph_.value(id).name);
      }
    }
    if (!missing.empty()) {
      throw ConfigError(
          fmt::format("no gradient reaches {} (freeze what is not trained: train.freeze)",
                      fmt::join(missing, ", ")));
    }
  }

  ModelGraph& model_;
  Graph& graph_;
  std::vector<bool> needs_;
  std::map<ValueId, std::vector<ValueId>> contributions_;
  /// Gradients to which a term of the loss (Operator::seed) has added, up to where Partial ones are
  /// reduced anyway.
  std::set<ValueId> of_terms_;
  std::map<ValueId, std::vector<ValueId>> parameter_contributions_;
};

}  // namespace

void differentiate(ModelGraph& model) { Differentiation(model).run(); }

}  // namespace sw
