#include "lower/stages.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.hpp"

namespace sw {
namespace {

/// Forward operations of each decoder layer, of what stands before the first and after the last.
struct Costs {
  std::vector<double> layer;
  double before = 0;
  double after = 0;
};

Costs costs_of(const ModelGraph& forward) {
  Costs costs;
  for (const Op& op : forward.graph.ops()) {
    std::vector<Shape> inputs;
    std::vector<Shape> outputs;
    for (const ValueId id : op.inputs) {
      inputs.push_back(forward.graph.value(id).shape);
    }
    for (const ValueId id : op.outputs) {
      outputs.push_back(forward.graph.value(id).shape);
    }
    const double flops = op.definition->flops(op.parameters, inputs, outputs);
    if (op.layer < 0) {
      (costs.layer.empty() ? costs.before : costs.after) += flops;
      continue;
    }
    costs.layer.resize(std::max<std::size_t>(costs.layer.size(), op.layer + 1U), 0.0);
    costs.layer[static_cast<std::size_t>(op.layer)] += flops;
  }
  return costs;
}

/// Cuts a row of costs into `parts` runs of at least one so that the dearest is cheapest; of equals
/// the cut with longer runs first.
std::vector<int> balance(const Costs& costs, int parts) {
  const auto n = static_cast<int>(costs.layer.size());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> sum(static_cast<std::size_t>(n) + 1, 0.0);
  std::partial_sum(costs.layer.begin(), costs.layer.end(), sum.begin() + 1);
  const auto cost = [&](int part, int begin, int end) {
    return sum[static_cast<std::size_t>(end)] - sum[static_cast<std::size_t>(begin)] +
           (part == 0 ? costs.before : 0) + (part == parts - 1 ? costs.after : 0);
  };
  // best[part][end]: the dearest of parts 0..part over layers 0..end.
  const auto size = static_cast<std::size_t>(n) + 1;
  std::vector<std::vector<double>> best(static_cast<std::size_t>(parts),
                                        std::vector<double>(size, kInfinity));
  std::vector<std::vector<int>> begin_of(static_cast<std::size_t>(parts),
                                         std::vector<int>(size, 0));
  for (int part = 0; part < parts; ++part) {
    const auto p = static_cast<std::size_t>(part);
    for (int end = part + 1; end <= n; ++end) {
      const auto e = static_cast<std::size_t>(end);
      for (int begin = part == 0 ? 0 : part; begin < (part == 0 ? 1 : end); ++begin) {
        const double before = part == 0 ? 0 : best[p - 1][static_cast<std::size_t>(begin)];
        const double dearest = std::max(before, cost(part, begin, end));
        if (dearest <= best[p][e]) {
          best[p][e] = dearest;
          begin_of[p][e] = begin;
        }
      }
    }
  }
  std::vector<int> layers(static_cast<std::size_t>(parts));
  for (int part = parts - 1, end = n; part >= 0; --part) {
    const int begin = begin_of[static_cast<std::size_t>(part)][static_cast<std::size_t>(end)];
    layers[static_cast<std::size_t>(part)] = end - begin;
    end = begin;
  }
  return layers;
}

}  // namespace

int Stages::stage_of(int segment) const {
  const int chunk = segment / stages;
  const int place = segment % stages;
  return folded && chunk % 2 == 1 ? stages - 1 - place : place;
}

int Stages::segment_of(int stage, int chunk) const {
  return chunk * stages + (folded && chunk % 2 == 1 ? stages - 1 - stage : stage);
}

int Stages::segment_of_layer(int layer) const {
  int segment = 0;
  for (int end = layers.front(); layer >= end; end += layers[static_cast<std::size_t>(segment)]) {
    ++segment;
  }
  return segment;
}

Stages cut_into_stages(const ModelGraph& forward, const ParallelOptions& options) {
  Stages stages;
  stages.stages = options.layout.pp;
  const bool cut = stages.stages > 1;
  stages.folded = cut && options.pipeline == PipelineSchedule::ZeroBubbleV;
  stages.chunks = stages.folded ? 2 : cut ? options.virtual_stages : 1;
  const Costs costs = costs_of(forward);
  const auto layers = static_cast<int>(costs.layer.size());
  if (!options.stage_layers.empty()) {
    const int given = std::accumulate(options.stage_layers.begin(), options.stage_layers.end(), 0);
    if (static_cast<int>(options.stage_layers.size()) != stages.segments() || given != layers ||
        *std::min_element(options.stage_layers.begin(), options.stage_layers.end()) < 1) {
      throw ConfigError(fmt::format(
          "parallel.stage_layers = [{}] must give at least one layer to each of {} stages x {} "
          "chunks, {} in all, and gives {} to {}",
          fmt::join(options.stage_layers, ", "), stages.stages, stages.chunks, layers, given,
          options.stage_layers.size()));
    }
    stages.layers = options.stage_layers;
    return stages;
  }
  if (stages.segments() > layers) {
    throw ConfigError(fmt::format(
        "parallel.pp = {} with {} chunks a stage needs {} decoder layers, and the model has {}",
        stages.stages, stages.chunks, stages.segments(), layers));
  }
  stages.layers = balance(costs, stages.segments());
  return stages;
}

std::vector<int> segments_of_steps(const ModelGraph& model, const ShardedGraph& sharded,
                                   const Stages& stages) {
  const Graph& graph = model.graph;
  std::vector<int> of_op(graph.ops().size(), 0);
  std::vector<int> of_value(graph.values().size(), -1);
  bool in_layers = false;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(static_cast<OpId>(i));
    if (op.direction == Direction::Backward && op.forward < 0) {
      // An addition of contributions, or the gradient of the loss: where the last of its inputs,
      // the nearest to the front, was made.
      of_op[i] = stages.segments() - 1;
      for (const ValueId input : op.inputs) {
        if (const int segment = of_value[static_cast<std::size_t>(input)]; segment >= 0) {
          of_op[i] = std::min(of_op[i], segment);
        }
      }
    } else if (op.direction == Direction::Backward) {
      of_op[i] = of_op[static_cast<std::size_t>(op.forward)];
    } else if (op.layer >= 0) {
      of_op[i] = stages.segment_of_layer(op.layer);
      in_layers = true;
    } else {
      of_op[i] = in_layers ? stages.segments() - 1 : 0;
    }
    for (const ValueId output : op.outputs) {
      of_value[static_cast<std::size_t>(output)] = of_op[i];
    }
  }
  std::vector<int> result;
  for (const ShardedStep& step : sharded.steps) {
    switch (step.kind) {
      case ShardedStep::Kind::Load:
        result.push_back(-1);
        break;
      case ShardedStep::Kind::Move:
        result.push_back(of_value[static_cast<std::size_t>(
            sharded.copies[static_cast<std::size_t>(step.to)].value)]);
        break;
      case ShardedStep::Kind::Compute:
        result.push_back(of_op[static_cast<std::size_t>(step.op)]);
        break;
    }
  }
  return result;
}

}  // namespace sw
