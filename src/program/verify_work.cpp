#include "program/verify_work.hpp"

#include <algorithm>

#include "program/collective.hpp"
#include "program/operand_counts.hpp"

namespace sw {
namespace {

/// Rules of one kind of work each.
class WorkRules {
 public:
  WorkRules(const Program& program, InstructionId id)
      : program_(program),
        instruction_(program.instructions[static_cast<std::size_t>(id)]),
        check_(program, id) {}

  void operator()(const KernelWork& work) const {
    const OperandCounts* counts = find_operand_counts(work.op);
    check_(counts != nullptr, "there is no kernel '{}'", work.op);
    check_(inputs() >= counts->least_inputs && inputs() <= counts->most_inputs,
           "{} takes {} inputs and has {}", work.op, counts->least_inputs, inputs());
    check_(outputs() == counts->outputs, "{} has {} outputs and is given {}", work.op,
           counts->outputs, outputs());
    check_(static_cast<int>(work.accumulate.size()) == outputs(),
           "{} has {} outputs and {} marks of accumulation", work.op, outputs(),
           work.accumulate.size());
    check_outputs_exist();
    check_in_place(counts->in_place);
    stays_on_device();
  }

  void operator()(const SliceWork& work) const {
    counts("a slice", 1, 1);
    const Operand& input = instruction_.inputs[0];
    const Operand& output = instruction_.outputs[0];
    const auto dim = static_cast<std::size_t>(work.dim);
    check_(input.dtype == output.dtype && input.shape.size() == output.shape.size() &&
               dim < input.shape.size(),
           "a slice of {} {} on dim {} cannot be {} {}", to_text(input.dtype), to_text(input.shape),
           work.dim, to_text(output.dtype), to_text(output.shape));
    for (std::size_t d = 0; d < input.shape.size(); ++d) {
      const bool fits = d == dim ? work.start >= 0 && output.shape[d] <= input.shape[d] &&
                                       work.start <= input.shape[d] - output.shape[d]
                                 : output.shape[d] == input.shape[d];
      check_(fits, "a slice from {} on dim {} of {} cannot be {}", work.start, work.dim,
             to_text(input.shape), to_text(output.shape));
    }
    check_in_place(false);
    stays_on_device();
  }

  void operator()(const JoinWork& work) const {
    check_(inputs() > 0 && outputs() == 1, "a join of {} inputs has {} outputs", inputs(),
           outputs());
    const Operand& output = instruction_.outputs[0];
    const auto dim = static_cast<std::size_t>(work.dim);
    check_(dim < output.shape.size(), "{} cannot be joined on dim {}", to_text(output.shape),
           work.dim);
    std::int64_t joined = 0;
    for (const Operand& input : instruction_.inputs) {
      Shape wanted = output.shape;
      check_(input.shape.size() == wanted.size() && input.dtype == output.dtype,
             "{} {} cannot be a part of {} {}", to_text(input.dtype), to_text(input.shape),
             to_text(output.dtype), to_text(output.shape));
      wanted[dim] = input.shape[dim];
      check_(input.shape == wanted, "{} cannot be a part of {} on dim {}", to_text(input.shape),
             to_text(output.shape), work.dim);
      joined += input.shape[dim];
    }
    check_(joined == output.shape[dim], "the parts of dim {} of {} have {} together", work.dim,
           to_text(output.shape), joined);
    check_in_place(false);
    stays_on_device();
  }

  void operator()(const CopyWork&) const {
    counts("a copy", 1, 1);
    const Operand& input = instruction_.inputs[0];
    const Operand& output = instruction_.outputs[0];
    check_(input.dtype == output.dtype && input.shape == output.shape, "a copy of {} {} as {} {}",
           to_text(input.dtype), to_text(input.shape), to_text(output.dtype),
           to_text(output.shape));
    check_(on_host(input) != on_host(output),
           "a copy from '{}' to '{}' does not cross the link to the host", name_of(input),
           name_of(output));
  }

  void operator()(const SlotWork& work) const {
    const bool order = work.kind == SlotKind::Order;
    const bool arrivals = work.kind == SlotKind::Arrivals;
    const bool counts_rounds = arrivals && instruction_.round == 0;
    counts("a work on slots", order || arrivals ? 1 : 2, order || counts_rounds ? 2 : 1);
    const Operand& input = instruction_.inputs[0];
    const Operand& output = instruction_.outputs[0];
    if (order) {
      check_(input.dtype == DType::Int32 && !input.shape.empty(), "a choice is {} {}",
             to_text(input.dtype), to_text(input.shape));
      is(output, DType::Int32, {elements(input.shape)});
      const Operand& counted = instruction_.outputs[1];
      check_(counted.shape.size() == 2, "counts of experts are {}", to_text(counted.shape));
      is(counted, DType::Int32, {1, counted.shape[1]});
    } else if (arrivals) {
      check_(input.dtype == DType::Int32 && input.shape.size() == 2 && work.rank >= 0 &&
                 work.rank < input.shape[0] && input.shape[1] % input.shape[0] == 0,
             "{} {} is no table of routes for rank {}", to_text(input.dtype), to_text(input.shape),
             work.rank);
      check_(output.dtype == DType::Int32, "a choice is {}", to_text(output.dtype));
      if (counts_rounds) is(instruction_.outputs[1], DType::Int32, {1});
    } else {
      const std::int64_t slots = elements(instruction_.inputs[1].shape);
      is(instruction_.inputs[1], DType::Int32, {slots});
      check_(input.dtype == output.dtype && slots > 0 && work.chosen > 0 &&
                 (work.chosen == 1 || work.kind == SlotKind::Pack) &&
                 elements(input.shape) * work.chosen == elements(output.shape) &&
                 elements(output.shape) % slots == 0,
             "rows of {} slots cannot be {} {} and {} {}", slots, to_text(input.dtype),
             to_text(input.shape), to_text(output.dtype), to_text(output.shape));
    }
    check_in_place(false);
    stays_on_device();
  }

  void operator()(const CollectiveWork& work) const;

  void operator()(const WindowWork& work) const {
    stays_on_device();
    switch (work.kind) {
      case WindowKind::FinishCount:
        counts("finish_count", 1, 1);
        is(instruction_.inputs[0], DType::Int64, {1});
        is(instruction_.outputs[0], DType::Float32, {});
        return;
      case WindowKind::Squares:
        counts("squares", inputs(), 1);
        for (const Operand& range : instruction_.inputs) is_gradient(range);
        is(instruction_.outputs[0], DType::UInt64, {kernels::ExactSum::kWords});
        return;
      case WindowKind::MoveBias: {
        counts("move_bias", 3, 1);
        const Shape& shape = instruction_.outputs[0].shape;
        check_(shape.size() == 2 && work.rate > 0, "move_bias of {} by {}", to_text(shape),
               work.rate);
        is(instruction_.inputs[0], DType::Float64, {kVerdict});
        is(instruction_.inputs[1], DType::Int64, shape);
        is(instruction_.inputs[2], DType::Float32, shape);
        is(instruction_.outputs[0], DType::Float32, shape);
        return;
      }
      case WindowKind::FinishNorm:
        break;
    }
    counts("finish_norm", inputs() == 2 ? 2 : 3, 1);
    is(instruction_.inputs[0], DType::UInt64, {kernels::ExactSum::kWords});
    is(instruction_.inputs[1], DType::Float64, {kSettings});
    if (inputs() == 3) is(instruction_.inputs[2], DType::Float32, {});
    is(instruction_.outputs[0], DType::Float64, {kVerdict});
  }

  void operator()(const OptimizerWork& work) const {
    check_(work.rule == "adamw" || work.rule == "sgd", "there is no optimizer '{}'", work.rule);
    const int states = work.rule == "adamw" ? 2 : work.momentum != 0 ? 1 : 0;
    check_(work.states == states, "{} keeps {} states a range and is given {}", work.rule, states,
           work.states);
    const int ranges = inputs() - 2;
    const int per_range = 1 + work.states + (work.rounded ? 1 : 0);
    check_(ranges >= 0 && outputs() == ranges * per_range &&
               static_cast<int>(work.weight_decay.size()) == ranges,
           "{} inputs, {} outputs and {} weight decays are no {} ranges", inputs(), outputs(),
           work.weight_decay.size(), ranges);
    is(instruction_.inputs[0], DType::Float64, {kSettings});
    is(instruction_.inputs[1], DType::Float64, {kVerdict});
    for (int range = 0; range < ranges; ++range) {
      const Operand& gradient = instruction_.inputs[static_cast<std::size_t>(range + 2)];
      is_gradient(gradient);
      for (int i = 0; i < per_range; ++i) {
        const bool rounded = work.rounded && i == per_range - 1;
        is(instruction_.outputs[static_cast<std::size_t>(range * per_range + i)],
           rounded ? DType::BFloat16 : DType::Float32, gradient.shape);
      }
    }
  }

  void operator()(const ZeroWork&) const {
    counts("zero", 0, 1);
    check_outputs_exist();
    stays_on_device();
  }

 private:
  [[nodiscard]] int inputs() const { return static_cast<int>(instruction_.inputs.size()); }
  [[nodiscard]] int outputs() const { return static_cast<int>(instruction_.outputs.size()); }

  void counts(std::string_view what, int inputs_wanted, int outputs_wanted) const {
    check_(inputs() == inputs_wanted && outputs() == outputs_wanted,
           "{} takes {} inputs and {} outputs and has {} and {}", what, inputs_wanted,
           outputs_wanted, inputs(), outputs());
  }
  void is(const Operand& operand, DType dtype, const Shape& shape) const {
    check_(operand.buffer >= 0 && operand.dtype == dtype && operand.shape == shape,
           "an operand must be {} {} and is {} {}", to_text(dtype), to_text(shape),
           to_text(operand.dtype), to_text(operand.shape));
  }
  void is_gradient(const Operand& operand) const {
    const bool number = operand.dtype == DType::Float32 || operand.dtype == DType::BFloat16;
    check_(operand.buffer >= 0 && number && operand.shape.size() == 1,
           "a range of gradients must be flat float32 or bfloat16 and is {} {}",
           to_text(operand.dtype), to_text(operand.shape));
  }
  void check_outputs_exist() const {
    for (const Operand& output : instruction_.outputs) {
      check_(output.buffer >= 0, "an output has no buffer");
    }
  }
  [[nodiscard]] bool on_host(const Operand& operand) const {
    return operand.buffer >= 0 &&
           program_.buffers[static_cast<std::size_t>(operand.buffer)].lane == Lane::Host;
  }
  [[nodiscard]] std::string name_of(const Operand& operand) const {
    return operand.buffer < 0 ? "nothing"
                              : program_.buffers[static_cast<std::size_t>(operand.buffer)].name;
  }
  void stays_on_device() const {
    for (const auto* operands : {&instruction_.inputs, &instruction_.outputs}) {
      for (const Operand& operand : *operands) {
        check_(!on_host(operand), "it touches '{}', which is in the host's memory",
               name_of(operand));
      }
    }
  }
  void check_in_place(bool allowed) const;
  void check_segment(const CollectiveWork& work, const CollectiveSizes& sizes,
                     std::size_t index) const;
  void check_exchange(const CollectiveWork& work, std::int64_t ranks) const;
  void check_routes(const CollectiveWork& work, std::int64_t ranks) const;
  void check_window(const Operand& operand) const {
    check_(operand.buffer >= 0, "a collective's operand has no buffer");
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(operand.buffer)];
    check_(buffer.lane == Lane::Window, "a collective touches '{}', which is not in the window",
           buffer.name);
  }

  const Program& program_;
  const Instruction& instruction_;
  InstructionCheck check_;
};

bool share_bytes(const Operand& a, const Operand& b) {
  return a.buffer >= 0 && a.buffer == b.buffer && a.offset < b.offset + bytes_of(b) &&
         b.offset < a.offset + bytes_of(a);
}

void WorkRules::check_in_place(bool allowed) const {
  for (std::size_t o = 0; o < instruction_.outputs.size(); ++o) {
    const Operand& output = instruction_.outputs[o];
    for (const Operand& input : instruction_.inputs) {
      const bool same =
          allowed && o == 0 && input.offset == output.offset && bytes_of(input) == bytes_of(output);
      check_(same || !share_bytes(input, output), "output {} overwrites an input", o);
    }
    for (std::size_t other = 0; other < o; ++other) {
      check_(!share_bytes(output, instruction_.outputs[other]), "outputs {} and {} overlap", other,
             o);
    }
    check_(!share_bytes(output, instruction_.scratch), "output {} overlaps the scratch", o);
  }
  for (const Operand& input : instruction_.inputs) {
    check_(!share_bytes(input, instruction_.scratch), "an input overlaps the scratch");
  }
}

void WorkRules::operator()(const CollectiveWork& work) const {
  check_(work.group >= 0 && static_cast<std::size_t>(work.group) < program_.groups.size(),
         "group {} of {}", work.group, program_.groups.size());
  const Group& group = group_of(program_, work);
  check_(group.stream == instruction_.stream,
         "a collective on stream {} uses a group that belongs to stream {}", instruction_.stream,
         group.stream);
  const auto segments = work.dims.size();
  const bool sends = work.kind == CollectiveKind::Send;
  const bool receives = work.kind == CollectiveKind::Receive;
  const std::size_t tables = work.routing == Routing::None ? 0 : 1;
  check_(work.kind == CollectiveKind::AllToAll || tables == 0, "{} has no routes",
         to_text(work.kind));
  check_(instruction_.inputs.size() == (receives ? 0 : segments + tables) &&
             instruction_.outputs.size() == (sends ? 0 : segments),
         "{} of {} segments has {} inputs and {} outputs", to_text(work.kind), segments, inputs(),
         outputs());
  const auto ranks = static_cast<int>(group.members.size());
  if (sends || receives || work.kind == CollectiveKind::Broadcast) {
    check_(work.peer >= 0 && work.peer < ranks, "peer {} in a group of {}", work.peer, ranks);
    check_(work.kind == CollectiveKind::Broadcast || work.peer != rank_in(program_, group),
           "a rank cannot send to itself");
  }
  for (const Operand& operand : instruction_.inputs) check_window(operand);
  for (const Operand& operand : instruction_.outputs) check_window(operand);
  for (std::size_t i = 0; i < segments; ++i) {
    const Operand& whole = whole_operand(instruction_, i);
    check_(work.dims[i] >= -1 && work.dims[i] < static_cast<int>(whole.shape.size()),
           "segment {} is cut on dim {} of {}", i, work.dims[i], to_text(whole.shape));
  }
  const CollectiveSizes sizes = sizes_of(instruction_, Algorithm::Direct);
  for (std::size_t i = 0; i < segments; ++i) check_segment(work, sizes, i);
  if (tables > 0) {
    check_routes(work, ranks);
  } else if (work.kind == CollectiveKind::AllToAll) {
    check_exchange(work, ranks);
  }
}

void WorkRules::check_routes(const CollectiveWork& work, std::int64_t ranks) const {
  const Operand& from = instruction_.inputs[0];
  const Operand& to = instruction_.outputs[0];
  const Operand& table = instruction_.inputs[1];
  check_(table.dtype == DType::Int32 && table.shape.size() == 2 && table.shape[0] == ranks &&
             table.shape[1] % ranks == 0,
         "{} {} is no table of routes over {} ranks", to_text(table.dtype), to_text(table.shape),
         ranks);
  check_(work.dims.size() == 1 && work.dims[0] == -1 && work.input_counts.empty() &&
             work.output_counts.empty() && !from.shape.empty() && !to.shape.empty(),
         "an all_to_all with routes has one flat segment and no counts");
  const auto [row, slots] = routed_rows(instruction_);
  const Operand& room = work.routing == Routing::ToExperts ? to : from;
  check_(slots > 0 && row * slots > 0 && elements(room.shape) == room.shape[0] * row &&
             from.dtype == to.dtype,
         "rows of {} cannot travel as rows of {}", to_text(from.shape), to_text(to.shape));
  check_(!share_bytes(from, to), "an all_to_all cannot work in place");
}

void WorkRules::check_segment(const CollectiveWork& work, const CollectiveSizes& sizes,
                              std::size_t index) const {
  const Operand& whole = whole_operand(instruction_, index);
  const Operand* other = other_operand(instruction_, index);
  check_(whole.dtype == sizes.dtype && (other == nullptr || other->dtype == sizes.dtype),
         "segments of different types in one collective");
  if (other == nullptr || work.kind == CollectiveKind::AllToAll) return;
  const Group& group = group_of(program_, work);
  const Extent& extent = sizes.segments[index];
  const bool parts =
      work.kind == CollectiveKind::ReduceScatter || work.kind == CollectiveKind::AllGather;
  const Range mine = parts ? split(extent.length, static_cast<std::int64_t>(group.members.size()),
                                   rank_in(program_, group))
                           : Range{0, extent.length};
  const std::int64_t wanted = extent.outer * mine.size() * extent.trailing;
  check_(elements(other->shape) == wanted, "segment {} of {} must have a part of {} elements: {}",
         index, to_text(whole.shape), wanted, to_text(other->shape));
  const std::int64_t in_place = whole.offset + mine.begin * extent.trailing * size_of(whole.dtype);
  check_(!share_bytes(whole, *other) || (extent.outer == 1 && other->offset == in_place),
         "segment {} overlaps itself other than in place", index);
}

void WorkRules::check_exchange(const CollectiveWork& work, std::int64_t ranks) const {
  const auto total = [](const std::vector<std::int64_t>& counts) {
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) sum += count;
    return sum;
  };
  check_(work.dims.size() == 1 && work.dims[0] == -1, "an all_to_all has one flat segment");
  check_(static_cast<std::int64_t>(work.input_counts.size()) == ranks &&
             static_cast<std::int64_t>(work.output_counts.size()) == ranks &&
             total(work.input_counts) == elements(instruction_.inputs[0].shape) &&
             total(work.output_counts) == elements(instruction_.outputs[0].shape),
         "the counts of an all_to_all over {} ranks do not add up to {} and {}", ranks,
         to_text(instruction_.inputs[0].shape), to_text(instruction_.outputs[0].shape));
  check_(!share_bytes(instruction_.inputs[0], instruction_.outputs[0]),
         "an all_to_all cannot work in place");
}

}  // namespace

void InstructionCheck::fail(const std::string& what) const {
  throw InternalError(fmt::format("{}: {}", place_of(program_, id_), what));
}

std::string place_of(const Program& program, InstructionId id) {
  return fmt::format("instruction {} '{}' of rank {}", id,
                     program.instructions[static_cast<std::size_t>(id)].name, program.rank);
}

void verify_work(const Program& program, InstructionId id) {
  const Instruction& instruction = program.instructions[static_cast<std::size_t>(id)];
  const bool fits = instruction.rounds.buffer < 0
                        ? instruction.round == 0
                        : instruction.round > 0 && instruction.rounds.dtype == DType::Int32 &&
                              instruction.rounds.shape == Shape{1};
  InstructionCheck(program, id)(fits, "round {} of {} {} rounds", instruction.round,
                                to_text(instruction.rounds.dtype),
                                to_text(instruction.rounds.shape));
  std::visit(WorkRules(program, id), program.instructions[static_cast<std::size_t>(id)].work);
}

}  // namespace sw
