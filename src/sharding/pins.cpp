#include <algorithm>

#include "base/error.hpp"
#include "sharding/sharding.hpp"

namespace sw {
namespace {

/// "1, 2, 4, 8": the divisors of a size, for messages.
std::string divisors(std::int64_t size) {
  std::vector<std::int64_t> result;
  for (std::int64_t d = 1; d <= size; ++d) {
    if (size % d == 0) {
      result.push_back(d);
    }
  }
  return fmt::format("{}", fmt::join(result, ", "));
}

int size_of_axis(const Mesh& mesh, const std::string& name) { return mesh.size(mesh.parts(name)); }

void check_divides(std::int64_t size, const char* what, const char* key, int parts) {
  if (size % parts != 0) {
    throw ConfigError(fmt::format("parallel.{} = {} does not divide {} = {}; values that do: {}",
                                  key, parts, what, size, divisors(size)));
  }
}

void check_enough(std::int64_t size, const std::string& what, const char* key, int parts) {
  if (size < parts) {
    throw ConfigError(fmt::format("parallel.{} = {} is more than {} = {}; use at most {}", key,
                                  parts, what, size, size));
  }
}

void check_heads_spread(std::int64_t kv_heads, int cp, int tp) {
  if (kv_heads % (std::int64_t{cp} * tp) != 0) {
    throw ConfigError(fmt::format(
        "parallel.context = \"all_to_all\" spreads the model's {} key and value heads over cp x tp "
        "= "
        "{} x {} ranks, which do not divide them; use cp x tp of {}, or context = \"ring\"",
        kv_heads, cp, tp, divisors(kv_heads)));
  }
}

}  // namespace

Sharding parameter_sharding(const Value& parameter, const Mesh& mesh) {
  Sharding sharding(mesh.axes().size());
  if (const std::size_t e = parameter.letters.find('e'); e != std::string::npos) {
    for (const int axis : mesh.parts("ep")) {
      sharding[static_cast<std::size_t>(axis)] = shard(static_cast<int>(e));
    }
  }
  const int tp = mesh.find("tp");
  if (tp < 0) {
    return sharding;
  }
  const int parts = mesh.axes()[static_cast<std::size_t>(tp)].size;
  for (std::size_t d = 0; d < parameter.letters.size(); ++d) {
    const char letter = parameter.letters[d];
    const bool cut = letter == 'h' || letter == 'f' || letter == 'v' ||
                     (letter == 'g' && parameter.shape[d] % parts == 0);
    if (cut) {
      sharding[static_cast<std::size_t>(tp)] = shard(static_cast<int>(d));
    }
  }
  return sharding;
}

void check_sizes(const ModelGraph& model, const Mesh& mesh, const ShardingOptions& options) {
  const int tp = size_of_axis(mesh, "tp");
  const int dp = size_of_axis(mesh, "dp");
  const int cp = size_of_axis(mesh, "cp");
  const int ep = size_of_axis(mesh, "ep");
  bool has_experts = false;
  const Graph& graph = model.graph;
  for (const ValueId id : graph.parameters()) {
    const Value& parameter = graph.value(id);
    has_experts = has_experts || parameter.letters.find('e') != std::string::npos;
    for (std::size_t d = 0; d < parameter.letters.size(); ++d) {
      if (parameter.letters[d] == 'h') {
        check_divides(parameter.shape[d], "the number of attention heads", "tp", tp);
      } else if (parameter.letters[d] == 'e') {
        check_divides(parameter.shape[d], "the number of experts", "ep", ep);
      } else if (parameter.letters[d] == 'f' || parameter.letters[d] == 'v') {
        check_enough(parameter.shape[d], fmt::format("dim {} of {}", d, parameter.name), "tp", tp);
      }
    }
  }
  if (ep > 1 && !has_experts) {
    throw ConfigError(fmt::format(
        "parallel.ep = {} shares out experts, and this model has none; use ep = 1", ep));
  }
  if (cp > 1 && options.context == ContextAlgorithm::AllToAll) {
    if (tp > 1 && options.sequence_parallel) {
      throw ConfigError(
          "parallel.context = \"all_to_all\" and sequence_parallel cut the sequence over cp and tp "
          "in "
          "opposite orders; use sequence_parallel = false, or context = \"ring\"");
    }
    for (const Op& op : graph.ops()) {
      if (op.definition->name == "attention") {
        check_heads_spread(graph.value(op.inputs[1]).shape.at(2), cp, tp);
      }
    }
  }
  const Shape& tokens = graph.value(model.tokens).shape;
  check_enough(tokens.at(0), "the sequences of a micro-batch over all data-parallel ranks", "dp",
               dp);
  if (cp > 1) {
    const int parts = 2 * cp * (options.sequence_parallel ? tp : 1);
    if (tokens.at(1) % parts != 0) {
      throw ConfigError(fmt::format(
          "parallel.cp = {} cuts data.sequence_length = {} into {} pieces, which do not divide it; "
          "use a multiple of {}",
          cp, tokens.at(1), parts, parts));
    }
  } else if (options.sequence_parallel) {
    check_divides(tokens.at(1), "data.sequence_length", "tp", tp);
  }
}

Direction direction_of(const ModelGraph& model, const ShardedGraph& sharded,
                       const ShardedStep& step) {
  if (step.recomputed) {
    return Direction::Backward;
  }
  return step.kind == ShardedStep::Kind::Compute
             ? model.graph.op(step.op).direction
             : sharded.copies.at(static_cast<std::size_t>(step.to)).made_in;
}

std::vector<int> layers_of_values(const Graph& graph) {
  std::vector<int> layers(graph.values().size(), -1);
  for (const Op& op : graph.ops()) {
    for (const ValueId output : op.outputs) {
      layers[static_cast<std::size_t>(output)] = op.layer;
    }
  }
  return layers;
}

std::vector<CopyId> copies_read(const ShardedStep& step) {
  if (step.kind != ShardedStep::Kind::Move) {
    return step.inputs;
  }
  return step.choice < 0 ? std::vector<CopyId>{step.from}
                         : std::vector<CopyId>{step.from, step.choice};
}

std::vector<CopyId> copies_made(const ShardedStep& step) {
  return step.kind == ShardedStep::Kind::Compute ? step.outputs : std::vector<CopyId>{step.to};
}

std::vector<int> ring_axes(const ShardedGraph& sharded, const ShardedStep& step) {
  std::vector<int> axes;
  if (step.kind == ShardedStep::Kind::Compute) {
    const std::vector<Signature>& chosen = sharded.chosen.at(static_cast<std::size_t>(step.op));
    for (std::size_t axis = 0; axis < chosen.size(); ++axis) {
      if (chosen[axis].ring) {
        axes.push_back(static_cast<int>(axis));
      }
    }
  }
  return axes;
}

bool is_routed(const Sharding& sharding) {
  return std::any_of(sharding.begin(), sharding.end(),
                     [](Placement placement) { return placement.is_routed(); });
}

std::vector<Range> copy_box(const ModelGraph& model, const ShardedGraph& sharded, CopyId id,
                            const std::vector<int>& coordinates) {
  const Copy& copy = sharded.copies.at(static_cast<std::size_t>(id));
  return local_box(model.graph.value(copy.value).shape, copy.sharding, sharded.mesh, coordinates);
}

DType copy_dtype(const ModelGraph& model, const ShardedGraph& sharded, CopyId id) {
  const Copy& copy = sharded.copies.at(static_cast<std::size_t>(id));
  const DType dtype = model.graph.value(copy.value).dtype;
  const bool partial = std::any_of(copy.sharding.begin(), copy.sharding.end(),
                                   [](Placement placement) { return placement.is_partial(); });
  return partial && dtype == DType::BFloat16 ? DType::Float32 : dtype;
}

}  // namespace sw
