#include "tests/sharding/reassemble.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.hpp"

namespace sw::test {
namespace {

kernels::View view(Tensor& tensor) {
  if (tensor.whole_numbers || !tensor.integer.empty()) {
    return {reinterpret_cast<std::byte*>(tensor.integer.data()), DType::Int32, tensor.shape};
  }
  if (!tensor.key.empty()) {
    return {reinterpret_cast<std::byte*>(tensor.key.data()), DType::Int64, tensor.shape};
  }
  return {reinterpret_cast<std::byte*>(tensor.real.data()), DType::Float64, tensor.shape};
}

Tensor zeros(const Shape& shape) {
  Tensor tensor;
  tensor.shape = shape;
  tensor.real.assign(static_cast<std::size_t>(elements(shape)), 0.0);
  return tensor;
}

/// Of a value: a choice of experts is whole numbers.
Tensor blank(const Value& value, const Shape& shape) {
  Tensor tensor = zeros(shape);
  if (value.dtype == DType::Int32) {
    tensor.integer.assign(tensor.real.size(), -1);
    tensor.real.clear();
    tensor.whole_numbers = true;
  }
  return tensor;
}

double number(const Tensor& tensor, std::size_t at) {
  return tensor.integer.empty() ? tensor.real[at] : tensor.integer[at];
}

std::vector<double> numbers(const Tensor& tensor) {
  return tensor.integer.empty() ? tensor.real
                                : std::vector<double>(tensor.integer.begin(), tensor.integer.end());
}

/// Calls `visit(index in the whole, index in the piece)` for every element of a box.
template <typename Visit>
void for_each(const Shape& whole, const std::vector<Range>& box, Visit visit) {
  const std::int64_t count = elements(shape_of(box));
  std::vector<std::int64_t> at(box.size(), 0);
  for (std::int64_t piece = 0; piece < count; ++piece) {
    std::int64_t index = 0;
    for (std::size_t d = 0; d < box.size(); ++d) {
      index = index * whole[d] + box[d].begin + at[d];
    }
    visit(static_cast<std::size_t>(index), static_cast<std::size_t>(piece));
    for (std::size_t d = box.size(); d-- > 0;) {
      if (++at[d] < box[d].size()) {
        break;
      }
      at[d] = 0;
    }
  }
}

Tensor cut(const Tensor& whole, const std::vector<Range>& box) {
  Tensor piece;
  piece.shape = shape_of(box);
  piece.key = whole.key;
  piece.whole_numbers = whole.whole_numbers;
  const auto count = static_cast<std::size_t>(elements(piece.shape));
  if (whole.whole_numbers || !whole.integer.empty()) {
    piece.integer.resize(count);
    for_each(whole.shape, box,
             [&](std::size_t from, std::size_t to) { piece.integer[to] = whole.integer[from]; });
  } else if (whole.key.empty()) {
    piece.real.resize(count);
    for_each(whole.shape, box,
             [&](std::size_t from, std::size_t to) { piece.real[to] = whole.real[from]; });
  }
  return piece;
}

Shape starts(const std::vector<Range>& box) {
  Shape result;
  for (const Range& range : box) {
    result.push_back(range.begin);
  }
  return result;
}

void call(const ModelGraph& model, const Op& op, const std::vector<Tensor*>& inputs,
          const std::vector<Shape>& input_starts, const std::vector<Tensor*>& outputs,
          bool adds = false) {
  std::vector<Shape> input_shapes;
  std::vector<Shape> output_shapes;
  for (const Tensor* tensor : inputs) {
    input_shapes.push_back(tensor->shape);
  }
  for (const Tensor* tensor : outputs) {
    output_shapes.push_back(tensor->shape);
  }
  kernels::KernelCall kernel =
      local_call(model.graph, op, input_shapes, input_starts,
                 std::vector<DType>(inputs.size(), DType::Float64), output_shapes,
                 std::vector<DType>(outputs.size(), DType::Float64));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape flattened = kernel.inputs[i].shape;
    kernel.inputs[i] = view(*inputs[i]);
    kernel.inputs[i].shape = flattened;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Shape flattened = kernel.outputs[i].shape;
    kernel.outputs[i] = view(*outputs[i]);
    kernel.outputs[i].shape = flattened;
    kernel.accumulate[i] = adds;
  }
  kernels::run_reference(kernel);
}

std::vector<Tensor*> pointers(std::vector<Tensor>& tensors) {
  std::vector<Tensor*> result;
  for (Tensor& tensor : tensors) {
    result.push_back(&tensor);
  }
  return result;
}

class Ranks {
 public:
  Ranks(const ModelGraph& model, const ShardedGraph& sharded, const Whole& data,
        const Whole& expected)
      : model_(model), sharded_(sharded), data_(data), expected_(expected) {
    for (int rank = 0; rank < sharded.mesh.world(); ++rank) {
      coordinates_.push_back(sharded.mesh.coordinates(rank));
    }
    pieces_.resize(sharded.copies.size());
    for (const ParameterGradient& gradient : model.graph.parameter_gradients) {
      for (const double value : expected.at(gradient.contributions.front()).real) {
        largest_gradient_ = std::max(largest_gradient_, std::abs(value));
      }
    }
  }

  Reassembled run() {
    for (const CopyId id : sharded_.parameters) {
      load(id);
    }
    for (const ShardedStep& step : sharded_.steps) {
      switch (step.kind) {
        case ShardedStep::Kind::Load:
          load(step.to);
          break;
        case ShardedStep::Kind::Move:
          move(step);
          check(step.to);
          break;
        case ShardedStep::Kind::Compute:
          compute(step);
          break;
      }
    }
    return result_;
  }

 private:
  const Copy& copy(CopyId id) const { return sharded_.copies[static_cast<std::size_t>(id)]; }
  std::vector<Tensor>& pieces(CopyId id) { return pieces_[static_cast<std::size_t>(id)]; }
  std::size_t world() const { return coordinates_.size(); }
  std::vector<Range> box(CopyId id, std::size_t rank) const {
    return copy_box(model_, sharded_, id, coordinates_[rank]);
  }

  void load(CopyId id) {
    for (std::size_t rank = 0; rank < world(); ++rank) {
      pieces(id).push_back(cut(data_.at(copy(id).value), box(id, rank)));
    }
  }

  void compute(const ShardedStep& step) {
    if (const std::vector<int> axes = ring_axes(sharded_, step); !axes.empty()) {
      compute_ring(step, axes);
    } else {
      compute_apart(step);
    }
    for (const CopyId id : step.outputs) {
      check(id);
    }
  }

  /// Every rank's queries with the keys and values of each of its group, one rank's after the
  /// other's: a plain reading of what the ring comes to.
  void compute_ring(const ShardedStep& step, const std::vector<int>& axes) {
    const Op& op = model_.graph.op(step.op);
    for (const CopyId id : step.outputs) {
      for (std::size_t rank = 0; rank < world(); ++rank) {
        pieces(id).push_back(zeros(shape_of(box(id, rank))));
      }
    }
    const bool forward = op.direction == Direction::Forward;
    for (std::size_t rank = 0; rank < world(); ++rank) {
      const std::vector<int> group = sharded_.mesh.group(static_cast<int>(rank), axes);
      const auto ranks = static_cast<int>(group.size());
      for (int block = 0; block < ranks; ++block) {
        const auto owner = static_cast<std::size_t>(group[static_cast<std::size_t>(block)]);
        std::vector<Tensor*> inputs;
        std::vector<Shape> input_starts;
        for (const CopyId id : step.inputs) {
          inputs.push_back(&pieces(id)[rank]);
          input_starts.push_back(starts(box(id, rank)));
        }
        inputs[1] = &pieces(step.inputs[1])[owner];
        inputs[2] = &pieces(step.inputs[2])[owner];
        Tensor columns[2];
        for (const std::size_t i : {4, 6}) {
          const Shape& whole = inputs[i]->shape;
          columns[i / 6] = cut(*inputs[i], {{0, whole[0]}, split(whole[1], ranks, block)});
          inputs[i] = &columns[i / 6];
        }
        std::vector<Tensor*> outputs;
        for (std::size_t i = 0; i < step.outputs.size(); ++i) {
          outputs.push_back(&pieces(step.outputs[i])[forward || i == 0 ? rank : owner]);
        }
        call(model_, op, inputs, input_starts, outputs, !forward || block > 0);
      }
    }
  }

  void compute_apart(const ShardedStep& step) {
    const Op& op = model_.graph.op(step.op);
    for (std::size_t rank = 0; rank < world(); ++rank) {
      std::vector<Tensor*> inputs;
      std::vector<Shape> input_starts;
      for (const CopyId id : step.inputs) {
        inputs.push_back(&pieces(id)[rank]);
        input_starts.push_back(starts(box(id, rank)));
      }
      std::vector<Tensor> outputs;
      for (const CopyId id : step.outputs) {
        Shape shape = shape_of(box(id, rank));
        if (is_routed(id)) {
          slots_[id].push_back(slots_of_inputs(step, rank));
          shape = routed_shape(shape, slots_[id].back().size());
        }
        outputs.push_back(blank(model_.graph.value(copy(id).value), shape));
      }
      call(model_, op, inputs, input_starts, pointers(outputs));
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        pieces(step.outputs[i]).push_back(std::move(outputs[i]));
      }
    }
  }

  bool is_routed(CopyId id) const {
    const Sharding& sharding = copy(id).sharding;
    return std::any_of(sharding.begin(), sharding.end(),
                       [](Placement placement) { return placement.is_routed(); });
  }

  static Shape routed_shape(Shape shape, std::size_t rows) {
    shape[0] = static_cast<std::int64_t>(rows);
    shape[1] = 1;
    shape[2] = 1;
    return shape;
  }

  const std::vector<std::int64_t>& slots_of_inputs(const ShardedStep& step,
                                                   std::size_t rank) const {
    for (const CopyId id : step.inputs) {
      if (const auto found = slots_.find(id); found != slots_.end()) {
        return found->second.at(rank);
      }
    }
    throw InternalError("a routed output without a routed input");
  }

  /// Experts of a rank, by what makes the choice.
  std::int64_t experts_of_rank(ValueId choice, std::size_t ranks) const {
    for (const Op& op : model_.graph.ops()) {
      if (std::find(op.outputs.begin(), op.outputs.end(), choice) != op.outputs.end()) {
        return model_.graph.value(op.inputs.front()).shape.back() /
               static_cast<std::int64_t>(ranks);
      }
    }
    throw InternalError("nothing makes a choice");
  }

  /// Slots to the ranks of their experts: each rank of the group looks through the group's slots.
  void route(const ShardedStep& step) {
    const ValueId value = copy(step.from).value;
    const ValueId choice = step.choice < 0 ? value : copy(step.choice).value;
    const std::vector<std::int32_t>& chosen = expected_.at(choice).integer;
    for (std::size_t rank = 0; rank < world(); ++rank) {
      const std::vector<int> group = sharded_.mesh.group(static_cast<int>(rank), step.move.axes);
      const auto [gathered, seen] = gather(step, group);
      const auto place =
          std::find(group.begin(), group.end(), static_cast<int>(rank)) - group.begin();
      const std::int64_t own = experts_of_rank(choice, group.size());
      const bool numbers = gathered.shape.size() == 3;  // one a slot
      const Range columns = numbers ? Range{0, 1} : box(step.to, rank)[3];
      const std::int64_t width = numbers ? 1 : gathered.shape[3];
      Tensor piece;
      std::vector<std::int64_t> slots;
      for (std::size_t slot = 0; slot < chosen.size(); ++slot) {
        const auto first = static_cast<std::int64_t>(slot) * width + columns.begin;
        if (!seen[static_cast<std::size_t>(first)] || chosen[slot] / own != place) {
          continue;
        }
        slots.push_back(static_cast<std::int64_t>(slot));
        for (std::int64_t at = first; at < first + columns.size(); ++at) {
          piece.real.push_back(gathered.real[static_cast<std::size_t>(at)]);
        }
      }
      piece.shape = routed_shape(shape_of(box(step.to, rank)), slots.size());
      if (step.choice < 0) {
        piece.whole_numbers = true;
        for (const double number : piece.real) {
          piece.integer.push_back(static_cast<std::int32_t>(number) %
                                  static_cast<std::int32_t>(own));
        }
        piece.real.clear();
      }
      pieces(step.to).push_back(std::move(piece));
      slots_[step.to].push_back(std::move(slots));
    }
  }

  /// The value of a routed copy's element, and where it stands in the whole.
  template <typename Visit>
  void for_each_routed(CopyId id, std::size_t rank, Visit visit) const {
    const Shape& whole = model_.graph.value(copy(id).value).shape;
    const Range columns = whole.size() == 3 ? Range{0, 1} : box(id, rank)[3];
    const std::int64_t width = whole.size() == 3 ? 1 : whole[3];
    std::size_t at = 0;
    for (const std::int64_t slot : slots_.at(id).at(rank)) {
      for (std::int64_t column = columns.begin; column < columns.end; ++column) {
        visit(static_cast<std::size_t>(slot * width + column), at++);
      }
    }
  }

  /// The value without the moving axes, and which of its elements the group has.
  std::pair<Tensor, std::vector<bool>> gather(const ShardedStep& step,
                                              const std::vector<int>& group) {
    const Shape& whole = model_.graph.value(copy(step.from).value).shape;
    Tensor gathered = zeros(whole);
    std::vector<bool> seen(gathered.real.size(), false);
    for (const int member : group) {
      const auto from = static_cast<std::size_t>(member);
      const Tensor& piece = pieces(step.from)[from];
      const auto take = [&](std::size_t at, std::size_t in_piece) {
        double& slot = gathered.real[at];
        const double value = number(piece, in_piece);
        if (!seen[at] || !step.move.from.is_partial()) {
          slot = value;
        } else {
          slot = step.move.op == ReduceOp::Max ? std::max(slot, value) : slot + value;
        }
        seen[at] = true;
      };
      if (is_routed(step.from)) {
        for_each_routed(step.from, from, take);
      } else {
        for_each(whole, box(step.from, from), take);
      }
    }
    return {std::move(gathered), std::move(seen)};
  }

  /// Any move, the slow way: per group, build the value without the moving axes, then cut.
  void move(const ShardedStep& step) {
    if (is_routed(step.to)) {
      route(step);
      count(step);
      return;
    }
    for (std::size_t rank = 0; rank < world(); ++rank) {
      const std::vector<int> group = sharded_.mesh.group(static_cast<int>(rank), step.move.axes);
      Tensor gathered = gather(step, group).first;
      if (pieces(step.from).front().whole_numbers) {
        gathered.whole_numbers = true;
        gathered.integer.assign(gathered.real.begin(), gathered.real.end());
      }
      pieces(step.to).push_back(cut(gathered, box(step.to, rank)));
    }
    if (step.move.collective.has_value()) {
      count(step);
    }
  }

  void count(const ShardedStep& step) {
    const Shape& whole = model_.graph.value(copy(step.from).value).shape;
    const std::string key = fmt::format("{} {}", to_text(*step.move.collective),
                                        sharded_.mesh.group_name(step.move.axes));
    result_.sent[key] += path_bytes({step.move}, whole, 4, sharded_.mesh);
  }

  /// Puts a copy together from all ranks' pieces and compares it with the whole value.
  void check(CopyId id) {
    const Tensor& whole = expected_.at(copy(id).value);
    const Sharding& sharding = copy(id).sharding;
    std::vector<int> partial_axes;
    for (int axis = 0; axis < static_cast<int>(sharding.size()); ++axis) {
      if (sharding[static_cast<std::size_t>(axis)].is_partial()) {
        partial_axes.push_back(axis);
      }
    }
    ++result_.copies;
    // Some gradients are zero in exact arithmetic (key biases): their noise is no error.
    double largest = 1e-3 * largest_gradient_;
    for (const double value : numbers(whole)) {
      largest = std::max(largest, std::abs(value));
    }
    std::map<std::vector<std::int64_t>, std::vector<double>> first;
    for (std::size_t rank = 0; rank < world(); ++rank) {
      const std::vector<int> group = sharded_.mesh.group(static_cast<int>(rank), partial_axes);
      if (group.front() != static_cast<int>(rank)) {
        continue;
      }
      std::vector<double> value = numbers(pieces(id)[rank]);
      for (std::size_t k = 1; k < group.size(); ++k) {
        const std::vector<double>& other = pieces(id)[static_cast<std::size_t>(group[k])].real;
        for (std::size_t i = 0; i < value.size(); ++i) {
          const bool max =
              sharding[static_cast<std::size_t>(partial_axes.front())].op == ReduceOp::Max;
          value[i] = max ? std::max(value[i], other[i]) : value[i] + other[i];
        }
      }
      const std::vector<Range> here = box(id, rank);
      const auto [slot, added] = first.try_emplace(starts(here), value);
      result_.replicas_equal = result_.replicas_equal && (added || slot->second == value);
      const auto compare = [&](std::size_t at, std::size_t in_piece) {
        const double error = std::abs(value[in_piece] - number(whole, at)) / (largest + 1e-300);
        if (!(error <= result_.worst_error)) {
          result_.worst_error = error;
          result_.worst_value =
              fmt::format("{} {}", model_.graph.value(copy(id).value).name, to_text(sharding));
        }
      };
      if (!is_routed(id)) {
        for_each(whole.shape, here, compare);
      } else if (!pieces(id)[rank].whole_numbers) {  // a choice is checked by what it leads to
        for_each_routed(id, rank, compare);
      }
    }
  }

  const ModelGraph& model_;
  const ShardedGraph& sharded_;
  const Whole& data_;
  const Whole& expected_;
  std::vector<std::vector<int>> coordinates_;
  std::vector<std::vector<Tensor>> pieces_;
  /// Of a routed copy, by rank: which slots of the whole its rows are.
  std::map<CopyId, std::vector<std::vector<std::int64_t>>> slots_;
  Reassembled result_;
  double largest_gradient_ = 0;
};

}  // namespace

Whole make_data(const ModelGraph& model, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const Graph& graph = model.graph;
  Whole data;
  for (const ValueId id : graph.parameters()) {
    Tensor tensor = zeros(graph.value(id).shape);
    const bool norm = graph.value(id).letters == "d";
    for (double& value : tensor.real) {
      value = (norm ? 1.0 : 0.0) + 0.3 * normal(random);
    }
    data[id] = std::move(tensor);
  }
  const Shape& shape = graph.value(model.tokens).shape;
  const auto rows = static_cast<std::size_t>(shape[0]);
  const auto columns = static_cast<std::size_t>(shape[1]);
  const auto vocabulary = static_cast<std::uint64_t>(graph.value(model.logits).shape[2]);
  for (const ValueId id : {model.tokens, model.labels, model.positions, model.documents}) {
    data[id].shape = shape;
    data[id].integer.resize(rows * columns);
  }
  double valid = 0;
  for (std::size_t i = 0; i < rows * columns; ++i) {
    const std::size_t column = i % columns;
    const std::size_t cut_at = columns / 3 + 1;  // two documents a row
    data[model.tokens].integer[i] = static_cast<std::int32_t>(random() % vocabulary);
    const bool masked = random() % 5 == 0;
    data[model.labels].integer[i] = masked ? -1 : static_cast<std::int32_t>(random() % vocabulary);
    valid += masked ? 0 : 1;
    data[model.documents].integer[i] = column < cut_at ? 0 : 1;
    data[model.positions].integer[i] =
        static_cast<std::int32_t>(column < cut_at ? column : column - cut_at);
  }
  data[model.count].real = {valid};
  if (model.dropout_key >= 0) {
    data[model.dropout_key].shape = {2};
    data[model.dropout_key].key = {7, 3};
  }
  return data;
}

Whole run_whole(const ModelGraph& model, const Whole& data) {
  Whole values = data;
  for (const Op& op : model.graph.ops()) {
    std::vector<Tensor*> inputs;
    std::vector<Shape> input_starts;
    for (const ValueId id : op.inputs) {
      inputs.push_back(&values.at(id));
      input_starts.emplace_back(inputs.back()->shape.size(), 0);
    }
    std::vector<Tensor> outputs;
    for (const ValueId id : op.outputs) {
      outputs.push_back(blank(model.graph.value(id), model.graph.value(id).shape));
    }
    call(model, op, inputs, input_starts, pointers(outputs));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      values[op.outputs[i]] = std::move(outputs[i]);
    }
  }
  return values;
}

Reassembled run_sharded(const ModelGraph& model, const ShardedGraph& sharded, const Whole& data,
                        const Whole& expected) {
  return Ranks(model, sharded, data, expected).run();
}

}  // namespace sw::test
