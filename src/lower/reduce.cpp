#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "lower/insertions.hpp"
#include "lower/lowering.hpp"

/// Gradients over the model and data axes: one round a window, or one a micro-batch.
namespace sw {

/// How often a window a unit's gradients are reduced: more than once when each micro-batch's are
/// reduced on their own and then added up. Between zero groups they are reduced once.
int Lowering::rounds(const Unit& unit) const {
  return options_.reduce_gradients == ReduceGradients::MicroBatch &&
                 !state_.group(unit).shard.empty()
             ? options_.micro_batches
             : 1;
}

/// Contributions to one gradient lie alike in every layout of this version, so each op writes the
/// accumulator itself.
void Lowering::check_gradients_in_place() const {
  for (const ShardedGradient& gradient : sharded_.gradients) {
    for (const CopyId id : gradient.contributions) {
      const bool moved =
          std::any_of(sharded_.steps.begin(), sharded_.steps.end(), [&](const ShardedStep& step) {
            return step.kind == ShardedStep::Kind::Move && step.to == id;
          });
      SW_CHECK(!moved, "{}: contributions to its gradient lie differently",
               model_.graph.value(gradient.parameter).name);
    }
  }
}

/// Where the micro-batches of a round leave each unit's raw gradients, and when.
struct Lowering::RawGradients {
  std::vector<BufferId> buffer;    ///< per unit
  std::vector<std::size_t> first;  ///< the first instruction that touches them
  std::vector<std::size_t> last;
};

/// Compute has been emitted as if `Unit::gradients` held the whole unit. Where it does not, or
/// holds the sum of earlier rounds, the operands of this round are moved to a buffer of the round.
Lowering::RawGradients Lowering::raw_gradients(int round) {
  const std::size_t count = state_.units.size();
  RawGradients raw{std::vector<BufferId>(count, -1), std::vector<std::size_t>(count, 0),
                   std::vector<std::size_t>(count, 0)};
  for (std::size_t u = 0; u < count; ++u) {
    const Unit& unit = state_.units[u];
    if (unit.gradients < 0 || round >= rounds(unit)) {
      continue;
    }
    const bool in_place =
        (state_.options.zero < 2 && round == 0) || state_.group(unit).shard.empty();
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      Instruction& instruction = program_.instructions[i];
      if (instruction.micro_batch < 0 || (rounds(unit) > 1 && instruction.micro_batch != round)) {
        continue;
      }
      for (Operand& output : instruction.outputs) {
        if (output.buffer != unit.gradients) {
          continue;
        }
        if (raw.buffer[u] < 0) {
          raw.first[u] = i;
          raw.buffer[u] = in_place ? unit.gradients
                                   : transient(fmt::format("{}.gradients raw {}", unit.name, round),
                                               state_.options.gradient_precision, {unit.elements},
                                               Lane::Window, Category::Communication)
                                         .buffer;
        }
        raw.last[u] = i;
        output.buffer = raw.buffer[u];
      }
    }
    SW_CHECK(raw.buffer[u] >= 0, "{}: nothing writes its gradients", unit.name);
  }
  return raw;
}

/// Units of one group, in the order in which their gradients become ready, until a bucket is full;
/// buckets in the order in which they are.
std::vector<std::vector<std::size_t>> Lowering::buckets(const RawGradients& raw) const {
  std::vector<std::size_t> order;
  for (std::size_t u = 0; u < state_.units.size(); ++u) {
    if (raw.buffer[u] >= 0) {
      order.push_back(u);
    }
  }
  // The small unit is reduced over tp first; it stands last and alone, so that no layer waits for
  // it.
  const auto small = [&](std::size_t unit) { return state_.units[unit].name == "small"; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(small(a), raw.last[a]) < std::pair(small(b), raw.last[b]);
  });
  struct Open {
    std::size_t bucket = 0;
    double bytes = std::numeric_limits<double>::infinity();
  };
  const double full = options_.bucket_mib * 1024 * 1024;
  std::vector<std::vector<std::size_t>> result;
  std::vector<Open> open(state_.groups.size());
  for (const std::size_t unit : order) {
    Open& last = open[state_.units[unit].group];
    if (last.bytes >= full || small(unit)) {
      last = {result.size(), 0};
      result.emplace_back();
    }
    result[last.bucket].push_back(unit);
    last.bytes += static_cast<double>(state_.units[unit].elements *
                                      size_of(state_.options.gradient_precision));
  }
  std::stable_sort(result.begin(), result.end(), [&](const auto& a, const auto& b) {
    return std::pair(small(a.back()), raw.last[a.back()]) <
           std::pair(small(b.back()), raw.last[b.back()]);
  });
  return result;
}

/// A buffer of a round holds nothing at first: what no tensor covers is zeroed, for it is sent too.
/// The round's first writer waits for the reduction of the bucket before the last, so that the
/// memory of at most two buckets is in use.
void Lowering::prepare_raw(std::size_t u, const RawGradients& raw,
                           const std::vector<Insertions::Place>& reduced, Insertions& insertions) {
  const Unit& unit = state_.units[u];
  if (raw.buffer[u] == unit.gradients) {
    return;
  }
  const DType dtype = state_.options.gradient_precision;
  std::vector<Insertions::Place> first{static_cast<Insertions::Place>(raw.first[u])};
  std::int64_t covered = 0;
  const auto zero = [&](std::int64_t end) {
    if (covered == end) {
      return;
    }
    Instruction clear;
    clear.name = "padding of " + unit.name;
    clear.phase = Phase::Backward;
    clear.work = ZeroWork{};
    clear.outputs = {unit_range(raw.buffer[u], covered, end - covered, dtype)};
    first.push_back(insertions.insert_before(raw.first[u], std::move(clear)));
  };
  for (const UnitMember& member : unit.members) {
    zero(member.offset);
    covered = member.offset + member.elements;
  }
  zero(unit.elements);
  for (std::size_t i = reduced.size(); i-- > 0;) {
    if (i + 2 <= reduced.size() && insertions.position(reduced[i]) <= raw.first[u]) {
      for (const Insertions::Place place : first) {
        insertions.edge(reduced[i], place);
      }
      break;
    }
  }
}

/// Each bucket is reduced right after the last instruction that adds to it, and goes to the host
/// when it has been reduced for the last time.
void Lowering::insert_gradient_reductions() {
  check_gradients_in_place();
  Insertions insertions;
  std::vector<Insertions::Place> reduced;  // the last instruction of each bucket
  int most_rounds = 0;
  for (const Unit& unit : state_.units) {
    most_rounds = std::max(most_rounds, rounds(unit));
  }
  const bool offloads = state_.options.offload != Offload::None;
  for (int round = 0; round < most_rounds; ++round) {
    const RawGradients raw = raw_gradients(round);
    const std::vector<std::vector<std::size_t>> ready = buckets(raw);
    if (round == 0) {
      update_order_ = ready;
    }
    std::size_t last_reduced = 0;
    for (const std::vector<std::size_t>& bucket : ready) {
      std::size_t after = 0;
      for (const std::size_t unit : bucket) {
        after = std::max(after, raw.last[unit]);
        prepare_raw(unit, raw, reduced, insertions);
      }
      // What one rank of a zero group alone has is ready after all rounds, and nobody waits for it.
      if (!state_.group(state_.units[bucket.front()]).shard.empty()) {
        after = last_reduced = std::max(after, last_reduced);
      }
      std::vector<Instruction> reductions = bucket_reductions(bucket, raw, round);
      for (std::size_t i = 0; i < reductions.size(); ++i) {
        const Insertions::Place place =
            insertions.insert_before(after + 1, std::move(reductions[i]));
        if (i + 1 == reductions.size()) {
          reduced.push_back(place);
        }
      }
      for (const std::size_t unit : bucket) {
        const Unit& whole = state_.units[unit];
        if (offloads && round + 1 == rounds(whole) && whole.replicas.empty()) {
          insertions.insert_before(after + 1, gradients_to_host(whole));
        }
      }
    }
  }
  insertions.apply(program_.instructions);
}

/// Of an update in an asynchronous pipeline, whose stage has written its gradients in place.
std::vector<Instruction> Lowering::reductions_of_update() {
  RawGradients raw;
  for (const Unit& unit : state_.units) {
    raw.buffer.push_back(unit.gradients);
  }
  raw.first = raw.last = std::vector<std::size_t>(state_.units.size(), 0);
  update_order_ = buckets(raw);
  std::vector<Instruction> result;
  for (const std::vector<std::size_t>& bucket : update_order_) {
    std::vector<Instruction> reductions = bucket_reductions(bucket, raw, 0);
    std::move(reductions.begin(), reductions.end(), std::back_inserter(result));
  }
  return result;
}

/// A weight that two stages use: what each has of its gradient, reduced over the data axes, is
/// added up. Last of all, for the last stage has it long before the first, which still waits for
/// other gradients from there.
void Lowering::emit_tied_reductions() {
  for (const Unit& unit : state_.units) {
    if (unit.replicas.empty() || unit.gradients < 0) {
      continue;
    }
    Instruction sum;
    sum.name = "tied gradients " + unit.name;
    sum.phase = Phase::Window;
    sum.work = CollectiveWork{
        CollectiveKind::AllReduce, ReduceOp::Sum, tied_group(unit), {-1}, -1, {}, {}};
    sum.inputs = {state_.gradients(unit, state_.optimizer_range(unit))};
    sum.outputs = sum.inputs;
    emit(std::move(sum));
    if (state_.options.offload != Offload::None) {
      emit(gradients_to_host(unit));
    }
  }
}

/// HSDP: the slices of all zero groups are added up.
Instruction Lowering::replica_sum(const std::vector<std::size_t>& bucket) {
  const StreamId stream = communication_stream();
  Instruction sum;
  sum.name = "gradients of all groups " + state_.units[bucket.front()].name;
  sum.phase = Phase::Window;
  sum.stream = stream;
  CollectiveWork work{CollectiveKind::AllReduce,
                      ReduceOp::Sum,
                      group(state_.group(state_.units[bucket.front()]).replicas, stream),
                      {},
                      -1,
                      {},
                      {}};
  for (const std::size_t u : bucket) {
    sum.inputs.push_back(state_.gradients(state_.units[u], state_.units[u].slice));
    work.dims.push_back(-1);
  }
  sum.outputs = sum.inputs;
  sum.work = work;
  return sum;
}

/// Model axes first (what is Partial on tp), then the data axes: all-reduce, or reduce-scatter when
/// the optimizer state is cut; then later rounds are added to what this rank keeps.
std::vector<Instruction> Lowering::bucket_reductions(const std::vector<std::size_t>& bucket,
                                                     const RawGradients& raw, int round) {
  std::vector<Instruction> result;
  const DType dtype = state_.options.gradient_precision;
  const Unit& first = state_.units[bucket.front()];
  const int micro_batch = rounds(first) > 1 ? round : -1;
  Instruction over_tp;
  over_tp.name = "gradients of weights whole on tp";
  over_tp.phase = Phase::Window;
  over_tp.micro_batch = micro_batch;
  CollectiveWork sum{CollectiveKind::AllReduce, ReduceOp::Sum, 0, {}, -1, {}, {}};
  for (const std::size_t u : bucket) {
    for (const UnitMember& member : state_.units[u].members) {
      if (member.sum_over_tp) {
        over_tp.inputs.push_back(unit_range(raw.buffer[u], member.offset, member.elements, dtype));
        sum.dims.push_back(-1);
      }
    }
  }
  if (!over_tp.inputs.empty()) {
    over_tp.outputs = over_tp.inputs;
    sum.group = group({sharded_.mesh.find("tp")}, 0);
    over_tp.work = sum;
    result.push_back(std::move(over_tp));
  }
  const DataGroup& data = state_.group(first);
  if (data.shard.empty()) {
    if (!data.replicas.empty()) {
      result.push_back(replica_sum(bucket));
    }
    return result;
  }
  const bool scatter = state_.options.zero >= 1;
  const StreamId stream = communication_stream();
  Instruction reduce;
  reduce.name = "gradients " + first.name;
  reduce.phase = Phase::Window;
  reduce.micro_batch = micro_batch;
  reduce.stream = stream;
  CollectiveWork work{scatter ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce,
                      ReduceOp::Sum,
                      group(data.shard, stream),
                      {},
                      -1,
                      {},
                      {}};
  std::vector<Instruction> additions;
  for (const std::size_t u : bucket) {
    const Unit& unit = state_.units[u];
    const Range mine = state_.optimizer_range(unit);
    const Operand kept = state_.gradients(unit, mine);
    const Operand reduced =
        round == 0 ? kept : unit_range(raw.buffer[u], mine.begin, mine.size(), dtype);
    reduce.inputs.push_back(unit_range(raw.buffer[u], 0, unit.elements, dtype));
    reduce.outputs.push_back(reduced);
    work.dims.push_back(scatter ? 0 : -1);
    if (round > 0) {
      const kernels::View view{nullptr, dtype, kept.shape};
      const kernels::KernelCall add{"add", {}, {view, view}, {view}, {false}};
      Instruction addition = kernel_instruction("add gradients " + unit.name, add, {kept, reduced},
                                                {kept}, static_cast<double>(mine.size()));
      addition.phase = Phase::Window;
      addition.micro_batch = micro_batch;
      addition.stream = stream;
      additions.push_back(std::move(addition));
    }
  }
  reduce.work = work;
  result.push_back(std::move(reduce));
  std::move(additions.begin(), additions.end(), std::back_inserter(result));
  if (!data.replicas.empty() && round + 1 == rounds(first)) {
    result.push_back(replica_sum(bucket));
  }
  return result;
}

}  // namespace sw
