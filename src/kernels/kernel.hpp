#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "device/team.hpp"

/// What a kernel is told. One `KernelCall` says which operator, with which parameters, on which
/// memory; `reference` and `cpu` are two ways to carry it out.
///
/// Letters: B batch, S sequence, D model, H heads, G KV heads, K head, F feed-forward, V
/// vocabulary, E experts, k slots of a token: one per expert that it chose. All views are dense and
/// row-major. Shapes are local (this rank's). Kernels never know ranks: what depends on a position
/// in the whole tensor comes as a start in the parameters.
namespace sw::kernels {

/// Two operands; a letter stands in exactly two of (a, b, result), the letters that a pair shares
/// are adjacent and in the same order in both. So every product is one plain GEMM: "bsd,hkd->bshk".
struct EinsumParameters {
  std::string spec;
  friend bool operator==(const EinsumParameters&, const EinsumParameters&) = default;
};

struct NormParameters {
  double epsilon = 1e-5;
  friend bool operator==(const NormParameters&, const NormParameters&) = default;
};

/// Rotates pairs (i, i + K/2) of a head, as Llama in the `transformers` library. Frequency of pair
/// i: theta^(-2i/K), then scaled.
struct RopeParameters {
  double theta = 10000;
  /// "" (none), "linear" (factor), "llama3" (factor, low, high, original length), as `rope_scaling`
  /// / `rope_parameters` of config.json.
  std::string scaling = {};
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double original_length = 8192;
  friend bool operator==(const RopeParameters&, const RopeParameters&) = default;
};

/// A query at position p of document d sees keys of the same document with position <= p (and > p -
/// window if window > 0). Local head h belongs to whole head query_head_start + h; its KV head is
/// (whole head) / heads_per_kv - kv_head_start.
struct AttentionParameters {
  double scale = 1;
  std::int64_t heads_per_kv = 1;
  std::int64_t window = 0;
  std::int64_t query_head_start = 0;
  std::int64_t kv_head_start = 0;
  friend bool operator==(const AttentionParameters&, const AttentionParameters&) = default;
};

/// Gelu: the tanh form ("gelu_new", GPT-2) or the exact erf form ("gelu").
struct GeluParameters {
  bool tanh = true;
  friend bool operator==(const GeluParameters&, const GeluParameters&) = default;
};

/// First row of the whole vocabulary that this rank holds (embedding, pick, loss_grad).
struct VocabularyParameters {
  std::int64_t start = 0;
  friend bool operator==(const VocabularyParameters&, const VocabularyParameters&) = default;
};

/// y = x * mask / (1 - rate), mask from a counter-based generator keyed by (seed, step, stream,
/// index of the element in the whole tensor). The seed and the step are read at run time from the
/// second input, an int64 [2] tensor.
struct DropoutParameters {
  double rate = 0;
  std::int64_t stream = 0;  ///< which dropout of the model
  Shape whole;              ///< whole shape of x
  Shape start;              ///< index of this rank's first element
  friend bool operator==(const DropoutParameters&, const DropoutParameters&) = default;
};

/// A softmax over the experts, of which every token chooses the largest.
struct RouteParameters {
  std::int64_t chosen = 2;  ///< k: experts of a token
  bool normalize = true;    ///< a token's gates are divided by their sum
  friend bool operator==(const RouteParameters&, const RouteParameters&) = default;
};

/// Copies of a token, or what is added up to one.
struct DispatchParameters {
  std::int64_t chosen = 2;  ///< k
  friend bool operator==(const DispatchParameters&, const DispatchParameters&) = default;
};

struct LoadParameters {
  std::int64_t experts = 0;
  friend bool operator==(const LoadParameters&, const LoadParameters&) = default;
};

/// How many slots an expert takes of those at hand: factor * slots / E, rounded up.
struct CapacityParameters {
  std::int64_t experts = 0;  ///< E
  double factor = 1;
  friend bool operator==(const CapacityParameters&, const CapacityParameters&) = default;
};
/// The capacity of an expert, of `slots` in all.
[[nodiscard]] std::int64_t capacity(const CapacityParameters& parameters, std::int64_t slots);

/// Of a term of the loss that a router adds, a sum over tokens with a label. The balance loss
/// (Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6): coefficient * E * the sum over experts
/// of the share of the micro-batch's slots that went to the expert, times its mean probability,
/// where micro-batches count by their valid tokens. The z-loss (Zoph et al. 2022, arXiv:2202.08906,
/// equation 5): coefficient * the mean over the window of log(sum(exp(logits)))^2.
struct TermParameters {
  double coefficient = 0;
  friend bool operator==(const TermParameters&, const TermParameters&) = default;
};

struct NoParameters {
  friend bool operator==(const NoParameters&, const NoParameters&) = default;
};

using Parameters = std::variant<NoParameters, EinsumParameters, NormParameters, RopeParameters,
                                AttentionParameters, GeluParameters, VocabularyParameters,
                                DropoutParameters, RouteParameters, DispatchParameters,
                                LoadParameters, TermParameters, CapacityParameters>;

struct View {
  std::byte* data = nullptr;
  DType dtype = DType::Float32;
  Shape shape;
};

/// The operators, with inputs -> outputs. `T` is the activation type (float32 or bfloat16; all
/// computing is in float32), `f` float32, `i` int32. An output may also be float32 where the inputs
/// are bfloat16 (a value that is Partial, or a weight gradient). Saved statistics are float32.
/// Gradient kernels take the forward's inputs, then its saved outputs where named, then the output
/// gradients. Weight gradients (marked *) may *accumulate*.
///
// clang-format off
///   einsum          a, b -> c                       any operand f or bf16, mixed included; c may accumulate
///   add             x0 T, x1 T, … -> y              two or more inputs
///   bias_add        x[R,N] T, b[N] T -> y                                     (views flattened by the caller)
///   bias_add_grad   dy[R,N] -> db[N]*            dx is dy
///   rms_norm        x[B,S,D], w[D] -> y             x * rsqrt(mean(x^2) + eps) * w
///   rms_norm_grad   x, w, dy -> dx, dw*
///   layer_norm      x[B,S,D], w[D], b[D] -> y
///   layer_norm_grad x, w, b, dy -> dx, dw*, db*
///   rope            x[B,S,H,K], positions i[B,S] -> y
///   rope_grad       positions, dy -> dx                                       (two inputs: rotation is linear, x is not needed)
///   attention       q[B,S,H,K], k[B,S2,G,K], v[B,S2,G,K], positions_q i[B,S], positions_k i[B,S2],
///                   documents_q i[B,S], documents_k i[B,S2] -> o[B,S,H,K], lse f[B,S,H]
///                   o and lse may accumulate, together: what is there is the attention over other keys, and
///                   the result is that over both
///   attention_grad  the seven inputs, o, lse, do -> dq*, dk*, dv*             (o, lse: of all keys; k, v may be some of them)
///                   scores are never stored; a row that sees nothing gives o = 0, lse = -inf
///   gelu            x -> y
///   gelu_grad       x, dy -> dx
///   swiglu          gate, up -> y                   silu(gate) * up
///   swiglu_grad     gate, up, dy -> dgate, dup
///   embedding       ids i[B,S], w[V,D] -> y[B,S,D]  ids outside [start, start + V) give 0
///   embedding_grad  ids, w (unused, may be null), dy -> dw[V,D]*
///   row_max         logits f[B,S,V] -> f[B,S]
///   sum_exp         logits, max -> f[B,S]           sum over V of exp(logit - max)
///   pick            logits, labels i[B,S] -> f[B,S] logit of the label, 0 if not in [start, start + V)
///   token_loss      max, sum, picked, labels -> f[B,S]   log(sum) + max - picked; 0 where label < 0
///   loss_sum        token_loss f[B,S], count f[] -> f[]  sum / count (float64 inside); may accumulate
///   loss_grad       logits f[B,S,V], max, sum, labels, count f[] -> dlogits
///                   (softmax - onehot) / count; 0 where label < 0; may be in place
///   dropout         x, key int64[2] -> y
///   dropout_grad    dy, key -> dx
///   cast            x -> y                          between float32 and bfloat16
///   sigmoid         x -> y
///   sigmoid_grad    x, dy -> dx
///   scale_rows      x[...,F], scale[...] -> y       scale may be [...,1]
///   scale_rows_grad x, scale, dy -> dx, dscale
///   route           logits[B,S,E] (, bias f[E]) -> gate[B,S,k], choice i[B,S,k]
///                   softmax over E; its k largest in falling order (of equals the lower expert first), divided by their sum if
///                   `normalize`; with a bias, those of the k largest sums of softmax and bias
///   route_grad      logits, choice, dgate -> dlogits                          (the choice is constant)
///   dispatch        x[B,S,D] -> y[B,S,k,D]          each token in all of its slots
///   combine         y[B,S,k,D] -> x[B,S,D]          sum over slots; each of the two is the other's gradient
///   expert_product  x[B,S,k,I], w[E,O,I], choice -> y[B,S,k,O]                each slot times the matrix of its expert
///   expert_product_grad_input   dy, w, choice -> dx
///   expert_product_grad_weight  x, choice, dy -> dw[E,O,I]*                   (zeros for an expert without a slot)
///                   a choice of -1 in these three is an empty slot, whose row is not read and zero in the result
///   drop_slots      choice i[B,S,k] -> kept i[B,S,k]   -1 for the slots of an expert that come after as many as it takes
///   expert_load     choice i[B,S,k], labels i[B,S] -> load[E]*                slots of each expert, of tokens with a label >= 0; f, or
///                   int64: exact however many a window has
///   balance_loss    logits[B,S,E], load f[E], labels, count f[] -> f[]        coefficient * E / count * the sum over those tokens and
///                   experts of load / sum(load) * softmax(logits); may accumulate
///   balance_grad    logits, load, labels, count -> dlogits                    (the load is constant)
///   z_loss          logits[B,S,E], labels, count f[] -> f[]*                  coefficient / count * the sum over those tokens of
///                   log(sum(exp(logits)))^2
///   z_grad          logits, labels, count -> dlogits
// clang-format on
struct KernelCall {
  std::string op;
  Parameters parameters;
  std::vector<View> inputs;
  std::vector<View> outputs;
  /// Per output: add to what is there instead of writing.
  std::vector<bool> accumulate;
};

/// In place: outputs[0] may be the same memory as inputs[0] (same element size) for add, bias_add,
/// rope, gelu, swiglu, sigmoid, scale_rows, cast to the same size, dropout, their gradients where
/// dx replaces dy, and loss_grad.

/// A kernel with its memory bound: prepared once, run every step, without allocation.
using Prepared = std::function<void(Team&)>;

/// Bytes of scratch that `prepare` will need for this call on a team of `threads`; pointers in the
/// views are not looked at.
[[nodiscard]] std::int64_t scratch_bytes(const KernelCall& call, int threads);

/// Binds a call to the CPU kernels. Throws InternalError for an unknown op or shapes that do not
/// fit. `scratch` is shared by kernels that do not run at the same time.
[[nodiscard]] Prepared prepare(const KernelCall& call, std::byte* scratch, int threads);

/// The double-precision reference: every floating view is float64 (ids, labels, positions int32;
/// key int64). Slow, plain, for tests. Handles accumulate.
void run_reference(const KernelCall& call);

/// Names of all operators that `prepare` (that `run_reference`) carries out, sorted: the lists are
/// compared with the registry.
[[nodiscard]] std::vector<std::string> cpu_kernel_names();
[[nodiscard]] std::vector<std::string> reference_kernel_names();

// --- What the optimizer and the window's end need, on flat memory. All run on a team and cut work
// into fixed blocks. ---

/// Gradients as they lie in a flat unit: float32 or bfloat16. Both are computed with in float32.
struct Gradients {
  const std::byte* data = nullptr;
  DType dtype = DType::Float32;

  Gradients() = default;
  Gradients(const std::byte* begin, DType type) : data(begin), dtype(type) {}
  Gradients(const float* begin)
      : Gradients(reinterpret_cast<const std::byte*>(begin), DType::Float32) {}
  Gradients(const BFloat16* begin)
      : Gradients(reinterpret_cast<const std::byte*>(begin), DType::BFloat16) {}
};

struct AdamwStep {
  std::int64_t count = 0;  ///< elements
  Gradients gradient;
  float* master = nullptr;  ///< float32 weights, updated
  float* momentum = nullptr;
  float* variance = nullptr;
  BFloat16* rounded = nullptr;  ///< the bfloat16 copy to write, or null
  float weight_decay = 0;  ///< decoupled, Loshchilov and Hutter 2019: w -= lr * weight_decay * w
};
/// Values that change every step.
struct AdamwScalars {
  float learning_rate = 0;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float gradient_scale = 1;  ///< clip factor
  std::int64_t update = 1;   ///< 1 for the first update: bias correction
};
/// The same bits for the same element wherever a slice begins: elementwise, no reassociation.
void adamw(Team& team, const AdamwStep& step, const AdamwScalars& scalars);

struct SgdStep {
  std::int64_t count = 0;
  Gradients gradient;
  float* master = nullptr;
  float* momentum = nullptr;  ///< null without momentum
  BFloat16* rounded = nullptr;
  float weight_decay = 0;  ///< added to the gradient, as torch.optim.SGD
};
void sgd(Team& team, const SgdStep& step, float learning_rate, float momentum, float gradient_scale,
         std::int64_t update);

/// Exact sum of float64 block sums, as 64-bit words that add as integers in any order: what the
/// gradient norm is made of. Word layout and carry are private; words of several accumulators add
/// elementwise (mod 2^64) into the accumulator of the union.
struct ExactSum {
  static constexpr int kWords = 40;
  std::uint64_t words[kWords] =
      {};  ///< a two's complement fixed-point number, in 32-bit digits kept in 64-bit words so that
           ///< thousands of ranks can be added without carry; the last word counts non-finite
           ///< values
  void add(double value);
  void add(const ExactSum& other);
  /// The sum rounded to double; NaN if any value was not finite.
  [[nodiscard]] double value() const;
};
/// Adds, for each fixed block of 1024 elements from the first on (the last may be shorter), its
/// float64 sum of squares.
void add_squares(Team& team, const Gradients& gradients, std::int64_t count, ExactSum& sum);

}  // namespace sw::kernels
