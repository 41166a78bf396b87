#pragma once

#include <type_traits>

#include "program/program.hpp"

/// What the lines of a Program's text hold: each struct's fields, once, for both directions. A form
/// is a writer or a parser; `form(name, value, standard)` writes or reads one field, which is left
/// out of the text when it has its standard value.
namespace sw::text {

template <typename Form>
void fields(Form&, kernels::NoParameters&) {}

template <typename Form>
void fields(Form& form, kernels::EinsumParameters& p) {
  form("spec", p.spec, {});
}

template <typename Form>
void fields(Form& form, kernels::NormParameters& p) {
  const kernels::NormParameters standard;
  form("epsilon", p.epsilon, standard.epsilon);
}

template <typename Form>
void fields(Form& form, kernels::RopeParameters& p) {
  const kernels::RopeParameters standard;
  form("theta", p.theta, standard.theta);
  form("scaling", p.scaling, standard.scaling);
  form("factor", p.factor, standard.factor);
  form("low_frequency_factor", p.low_frequency_factor, standard.low_frequency_factor);
  form("high_frequency_factor", p.high_frequency_factor, standard.high_frequency_factor);
  form("original_length", p.original_length, standard.original_length);
}

template <typename Form>
void fields(Form& form, kernels::AttentionParameters& p) {
  const kernels::AttentionParameters standard;
  form("scale", p.scale, standard.scale);
  form("heads_per_kv", p.heads_per_kv, standard.heads_per_kv);
  form("window", p.window, standard.window);
  form("query_head_start", p.query_head_start, standard.query_head_start);
  form("kv_head_start", p.kv_head_start, standard.kv_head_start);
}

template <typename Form>
void fields(Form& form, kernels::GeluParameters& p) {
  form("tanh", p.tanh, true);
}

template <typename Form>
void fields(Form& form, kernels::VocabularyParameters& p) {
  form("start", p.start, 0);
}

template <typename Form>
void fields(Form& form, kernels::DropoutParameters& p) {
  form("rate", p.rate, 0);
  form("stream", p.stream, 0);
  form("whole", p.whole, {});
  form("start", p.start, {});
}

template <typename Form>
void fields(Form& form, kernels::RouteParameters& p) {
  const kernels::RouteParameters standard;
  form("chosen", p.chosen, standard.chosen);
  form("normalize", p.normalize, standard.normalize);
}

template <typename Form>
void fields(Form& form, kernels::DispatchParameters& p) {
  const kernels::DispatchParameters standard;
  form("chosen", p.chosen, standard.chosen);
}

template <typename Form>
void fields(Form& form, kernels::LoadParameters& p) {
  form("experts", p.experts, 0);
}

template <typename Form>
void fields(Form& form, kernels::TermParameters& p) {
  form("coefficient", p.coefficient, 0);
}

template <typename Form>
void fields(Form& form, kernels::CapacityParameters& p) {
  form("experts", p.experts, 0);
  form("factor", p.factor, 1);
}

template <typename Form>
void fields(Form& form, SliceWork& work) {
  form("dim", work.dim, 0);
  form("start", work.start, 0);
}

template <typename Form>
void fields(Form& form, JoinWork& work) {
  form("dim", work.dim, 0);
}

template <typename Form>
void fields(Form& form, CollectiveWork& work) {
  form("kind", work.kind, CollectiveKind::AllReduce);
  form("op", work.op, ReduceOp::Sum);
  form("group", work.group, 0);
  form("dims", work.dims, {});
  form("peer", work.peer, -1);
  form("input_counts", work.input_counts, {});
  form("output_counts", work.output_counts, {});
  form("routing", work.routing, Routing::None);
}

template <typename Form>
void fields(Form& form, SlotWork& work) {
  form("kind", work.kind, SlotKind::Order);
  form("rank", work.rank, 0);
  form("chosen", work.chosen, 1);
}

template <typename Form>
void fields(Form& form, WindowWork& work) {
  form("kind", work.kind, WindowKind::FinishCount);
  form("rate", work.rate, 0);
}

template <typename Form>
void fields(Form& form, OptimizerWork& work) {
  const OptimizerWork standard;
  form("rule", work.rule, {});
  form("beta1", work.beta1, standard.beta1);
  form("beta2", work.beta2, standard.beta2);
  form("epsilon", work.epsilon, standard.epsilon);
  form("momentum", work.momentum, standard.momentum);
  form("states", work.states, 0);
  form("rounded", work.rounded, false);
  form("weight_decay", work.weight_decay, {});
}

template <typename Form>
void fields(Form&, ZeroWork&) {}

template <typename Form>
void fields(Form&, CopyWork&) {}

template <typename Form>
void fields(Form& form, Operand& operand) {
  form("buffer", operand.buffer, -1);
  form("offset", operand.offset, 0);
  form("dtype", operand.dtype, DType::Float32);
  form("shape", operand.shape, {});
}

template <typename Form>
void fields(Form& form, Buffer& buffer) {
  form("name", buffer.name, {});
  form("lane", buffer.lane, Lane::Private);
  form("category", buffer.category, Category::Activations);
  form("persistent", buffer.persistent, false);
  form("bytes", buffer.bytes, 0);
  form("offset", buffer.offset, -1);
}

template <typename Form>
void fields(Form& form, Group& group) {
  form("axis", group.axis, {});
  form("stream", group.stream, 0);
  form("members", group.members, {});
}

/// What stands on the instruction's own line; its work and operands have lines of their own.
template <typename Form>
void fields(Form& form, Instruction& instruction) {
  form("name", instruction.name, {});
  form("phase", instruction.phase, Phase::Forward);
  form("micro_batch", instruction.micro_batch, -1);
  form("stream", instruction.stream, 0);
  form("after", instruction.after, {});
  form("flops", instruction.flops, 0);
  form("round", instruction.round, 0);
}

template <typename Form>
void fields(Form& form, Program& program) {
  form("name", program.name, {});
  form("rank", program.rank, 0);
  form("world", program.world, 1);
  form("private_bytes", program.private_bytes, 0);
  form("window_bytes", program.window_bytes, 0);
  form("host_bytes", program.host_bytes, 0);
}

/// The operand lines of a batch slot and of the host; `visit(word, operand)`.
template <typename Visit>
void operands(BatchSlot& batch, Visit&& visit) {
  visit("tokens", batch.tokens);
  visit("labels", batch.labels);
  visit("positions", batch.positions);
  visit("documents", batch.documents);
}

template <typename Visit>
void operands(HostOperands& host, Visit&& visit) {
  visit("valid_count", host.valid_count);
  visit("settings", host.settings);
  visit("dropout_key", host.dropout_key);
  visit("loss", host.loss);
  visit("balance_loss", host.balance_loss);
  visit("z_loss", host.z_loss);
  visit("expert_load", host.expert_load);
  visit("count", host.count);
  visit("verdict", host.verdict);
}

/// First words of the lines that hold an alternative of a variant, in the variant's order.
inline constexpr std::string_view kWorkWords[] = {
    "kernel", "slice", "collective", "window", "optimizer", "zero", "copy", "join", "slots"};
inline constexpr std::string_view kParameterWords[] = {
    "none",    "einsum", "norm",     "rope", "attention", "gelu",    "vocabulary",
    "dropout", "route",  "dispatch", "load", "term",      "capacity"};
static_assert(std::size(kWorkWords) == std::variant_size_v<Work>);
static_assert(std::size(kParameterWords) == std::variant_size_v<kernels::Parameters>);

/// The words of an enumeration, in its order.
template <typename Enum>
struct Words;
template <>
struct Words<Lane> {
  static constexpr std::string_view kWords[] = {"private", "window", "host"};
};
template <>
struct Words<Category> {
  static constexpr std::string_view kWords[] = {"parameters",  "gradients",     "optimizer",
                                                "activations", "communication", "workspace"};
};
template <>
struct Words<Phase> {
  static constexpr std::string_view kWords[] = {"forward", "backward", "window"};
};
template <>
struct Words<ReduceOp> {
  static constexpr std::string_view kWords[] = {"sum", "max"};
};
template <>
struct Words<WindowKind> {
  static constexpr std::string_view kWords[] = {"finish_count", "squares", "finish_norm",
                                                "move_bias"};
};
template <>
struct Words<SlotKind> {
  static constexpr std::string_view kWords[] = {"order", "arrivals", "pack", "unpack"};
};
template <>
struct Words<Routing> {
  static constexpr std::string_view kWords[] = {"none", "to_experts", "from_experts"};
};
template <>
struct Words<CollectiveKind> {
  static constexpr std::string_view kWords[] = {"all_reduce", "reduce_scatter", "all_gather",
                                                "all_to_all", "broadcast",      "send",
                                                "receive",    "barrier"};
};
template <>
struct Words<DType> {
  static constexpr std::string_view kWords[] = {"float64", "float32", "float16", "bfloat16",
                                                "int64",   "int32",   "uint64",  "uint8"};
};

}  // namespace sw::text
