#include "lower/recompute.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace sw {
namespace {

class Recomputation {
 public:
  Recomputation(const ModelGraph& model, const ShardedGraph& sharded, Recompute what)
      : model_(model),
        graph_(model.graph),
        source_(sharded),
        what_(what),
        result_(sharded),
        layer_of_value_(layers_of_values(model.graph)) {
    made_by_.assign(sharded.copies.size(), kNobody);
    for (std::size_t at = 0; at < sharded.steps.size(); ++at) {
      for (const CopyId id : copies_made(sharded.steps[at])) {
        made_by_[index(id)] = at;
      }
    }
    find_kept();
  }

  ShardedGraph run() {
    std::map<std::size_t, int> first_reader;  // backward step -> layer that it needs first
    std::map<int, std::set<CopyId>> read;     // layer -> dropped copies that its backward reads
    for (std::size_t at = 0; at < source_.steps.size(); ++at) {
      const ShardedStep& step = source_.steps[at];
      if (!is_backward(step)) {
        continue;
      }
      for (const CopyId id : copies_read(step)) {
        if (!is_dropped(id)) {
          continue;
        }
        std::set<CopyId>& of_layer = read[layer(id)];
        if (of_layer.empty()) {
          first_reader[at] = layer(id);
        }
        of_layer.insert(id);
      }
    }
    result_.steps.clear();
    for (std::size_t at = 0; at < source_.steps.size(); ++at) {
      if (const auto found = first_reader.find(at); found != first_reader.end()) {
        make_again(read.at(found->second));
      }
      ShardedStep step = source_.steps[at];
      if (is_backward(step)) {
        replace_inputs(step);
      }
      result_.steps.push_back(std::move(step));
    }
    return std::move(result_);
  }

 private:
  static constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
  static constexpr int kEnds = -1;  ///< the layer of embedding, head and loss: never dropped

  static std::size_t index(int id) { return static_cast<std::size_t>(id); }

  const Copy& copy(CopyId id) const { return source_.copies[index(id)]; }
  int layer(CopyId id) const { return layer_of_value_[index(copy(id).value)]; }

  bool is_backward(const ShardedStep& step) const {
    return direction_of(model_, source_, step) == Direction::Backward;
  }

  /// Layer of the op that a step runs, or that made the value it moves.
  int layer(const ShardedStep& step) const {
    return step.kind == ShardedStep::Kind::Compute ? graph_.op(step.op).layer : layer(step.to);
  }

  /// What another layer reads is its input, and stays.
  void find_kept() {
    kept_.assign(source_.copies.size(), false);
    for (const ShardedStep& step : source_.steps) {
      for (const CopyId id : copies_read(step)) {
        kept_[index(id)] = kept_[index(id)] || layer(step) != layer(id);
      }
    }
    if (what_ == Recompute::Full) {
      return;
    }
    for (const ShardedStep& step : source_.steps) {
      const bool expensive = step.kind == ShardedStep::Kind::Compute
                                 ? graph_.op(step.op).definition->expensive
                                 : step.move.collective == CollectiveKind::AllReduce ||
                                       step.move.collective == CollectiveKind::ReduceScatter;
      for (const CopyId id : copies_made(step)) {
        kept_[index(id)] = kept_[index(id)] || expensive;
      }
    }
  }

  /// Made by a layer's forward, and not kept for its backward.
  bool is_dropped(CopyId id) const {
    const std::size_t maker = made_by_[index(id)];
    return maker != kNobody && source_.steps[maker].kind != ShardedStep::Kind::Load &&
           !is_backward(source_.steps[maker]) && layer(id) != kEnds && !kept_[index(id)];
  }

  /// The steps that `wanted` needs, in their order, writing copies of their own.
  void make_again(const std::set<CopyId>& wanted) {
    std::set<std::size_t> steps;
    std::vector<CopyId> open(wanted.begin(), wanted.end());
    while (!open.empty()) {
      const std::size_t maker = made_by_[index(open.back())];
      open.pop_back();
      if (!steps.insert(maker).second) {
        continue;
      }
      for (const CopyId id : copies_read(source_.steps[maker])) {
        if (is_dropped(id)) {
          open.push_back(id);
        }
      }
    }
    for (const std::size_t at : steps) {
      ShardedStep step = source_.steps[at];
      step.recomputed = true;
      replace_inputs(step);
      const auto fresh = [&](CopyId id) {
        Copy copy = source_.copies[index(id)];
        copy.made_in = Direction::Backward;
        result_.copies.push_back(copy);
        const auto again = static_cast<CopyId>(result_.copies.size()) - 1;
        if (is_dropped(id)) {
          again_[id] = again;
        }
        return again;
      };
      if (step.kind == ShardedStep::Kind::Compute) {
        std::transform(step.outputs.begin(), step.outputs.end(), step.outputs.begin(), fresh);
      } else {
        step.to = fresh(step.to);
      }
      result_.steps.push_back(std::move(step));
    }
  }

  void replace_inputs(ShardedStep& step) const {
    const auto replace = [&](CopyId& id) {
      if (const auto found = again_.find(id); found != again_.end()) {
        id = found->second;
      }
    };
    std::for_each(step.inputs.begin(), step.inputs.end(), replace);
    for (CopyId* id : {&step.from, &step.choice}) {
      if (*id >= 0) {
        replace(*id);
      }
    }
  }

  const ModelGraph& model_;
  const Graph& graph_;
  const ShardedGraph& source_;
  Recompute what_;
  ShardedGraph result_;
  std::vector<int> layer_of_value_;
  std::vector<std::size_t> made_by_;  ///< per copy: the step
  std::vector<bool> kept_;            ///< per copy
  std::map<CopyId, CopyId> again_;    ///< dropped copy -> the one made again
};

}  // namespace

ShardedGraph recompute(const ModelGraph& model, const ShardedGraph& sharded, Recompute what) {
  return what == Recompute::None ? sharded : Recomputation(model, sharded, what).run();
}

}  // namespace sw
