#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/pieces.hpp"
#include "checkpoint/reader.hpp"
#include "data/corpus.hpp"
#include "data/sampler.hpp"
#include "lower/compile.hpp"
#include "program/versions.hpp"
#include "runtime/executor.hpp"

/// One rank of a run: its Programs, its memory, and what is in it.
namespace sw {

/// Of an update that is not the only one of its window.
struct UpdateSettings {
  double learning_rate = 0;
  std::int64_t update = 0;  ///< its number; 0: its rows have no valid token, so it is not made
};

/// What the host writes before a step.
struct StepSettings {
  double learning_rate = 0;
  double gradient_clip = 0;
  std::int64_t update = 1;  ///< number of this update: completed ones + 1
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  /// In an asynchronous pipeline, of each update, instead of the first three.
  std::vector<UpdateSettings> updates = {};
};

/// The settings of a window that follows `completed` updates, of `total_updates`.
[[nodiscard]] StepSettings step_settings(const Compilation& compilation, const Corpus& corpus,
                                         const Window& window, std::int64_t total_updates,
                                         std::int64_t completed, std::uint64_t seed,
                                         std::int64_t step);

/// What the host reads after it; equal on all ranks but for the times.
struct StepResult {
  double loss = 0;
  std::optional<double> balance_loss, z_loss;  ///< of a model that has them; not in `loss`
  std::vector<std::int64_t> expert_load;       ///< [layers with experts, E]: slots of valid tokens
  std::int64_t valid_tokens = 0;
  double gradient_norm = 0;  ///< the largest, of several updates
  /// False: gradients or loss were not finite. The update was skipped on all ranks; in an
  /// asynchronous pipeline only where a stage found so.
  bool applied = true;
  std::int64_t updates = 1;  ///< that the window asked for
  double seconds = 0;
  double communication_seconds = 0;  ///< of collectives and of copies between device and host
  double exposed_communication_seconds = 0;
  double wait_seconds = 0;
};

class Session {
 public:
  /// Compiles and prepares this rank's Programs. Collective over `world`, whose size must be the
  /// compilation's. Weights and moments are zero until they are set.
  Session(const Compilation& compilation, World& world, std::int64_t control_bytes = 0);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // --- state ---
  /// The initial weights of `seed`; moments zero.
  void initialize(std::uint64_t seed);
  /// Weights of a Hugging Face folder; moments zero. Throws DataError.
  void load_model_folder(const std::filesystem::path& folder);
  /// Every tensor of a checkpoint, which must hold exactly what this run trains. Throws DataError.
  void load_checkpoint(const CheckpointReader& reader);
  /// What this rank owns of weights and moments: each element of each tensor once over all ranks.
  /// Points into the session's memory.
  [[nodiscard]] std::vector<Piece> owned_state() const;
  /// The same of the gradients of the last step, reduced and before clipping (state "gradient").
  [[nodiscard]] std::vector<Piece> owned_gradients() const;
  /// Place (in Graph::parameters()) of the first weight whose gradient on this rank is not finite;
  /// -1: none.
  [[nodiscard]] int first_non_finite() const;
  /// What this rank holds of the weights, as they are multiplied (not the masters), owned or not:
  /// for checks of replicas.
  [[nodiscard]] std::vector<Piece> held_weights() const;

  // --- steps ---
  /// Writes one row: tokens, labels (-1: masked), positions, documents.
  using ReadRow = std::function<void(
      std::int64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> labels,
      std::span<std::int32_t> positions, std::span<std::int32_t> documents)>;
  /// One training step on a window; reads this rank's rows only. The window must have a valid
  /// token.
  StepResult step(const ReadRow& read, const Window& window, const StepSettings& settings);
  StepResult step(const Corpus& corpus, const Window& window, const StepSettings& settings);
  /// The mean loss over `samples` (-1: padding), as many as `Compilation::rows_per_micro_batch`;
  /// and the valid tokens in them. Not run when there is none.
  StepResult evaluate(const Corpus& corpus, const std::vector<std::int64_t>& samples);

  // --- accounts ---
  [[nodiscard]] const Program& training_program() const { return training_; }
  [[nodiscard]] const Program& evaluation_program() const { return evaluation_; }
  /// Of all steps and evaluations since the session began, and what was planned for them.
  [[nodiscard]] Ledger measured() const;
  [[nodiscard]] Ledger planned() const;
  [[nodiscard]] std::int64_t planned_peak() const;
  [[nodiscard]] std::int64_t measured_peak() const { return memory_->measured_peak(); }
  /// The same of the host's memory.
  [[nodiscard]] std::int64_t planned_host() const;
  [[nodiscard]] std::int64_t measured_host() const { return memory_->measured_host(); }
  [[nodiscard]] const Timeline& timeline() const;
  /// Of the last step; empty before the first, and in synchronous training. What the Program
  /// prescribes, by the order of its list; what happened, by the times of its instructions.
  [[nodiscard]] std::vector<VersionUse> planned_versions() const;
  [[nodiscard]] std::vector<VersionUse> version_uses() const;
  [[nodiscard]] std::span<std::byte> control() const { return memory_->control(); }

 private:
  [[nodiscard]] std::byte* address(const Operand& operand) const {
    return memory_->address(training_, operand);
  }
  [[nodiscard]] float* floats(BufferId buffer, std::int64_t element) const;
  void set_weights(const Unit& unit, std::int64_t begin, std::span<const float> values);
  void read_weights(const Unit& unit, const UnitMember& member,
                    const std::function<void(const Range&, std::span<float>)>& read);
  [[nodiscard]] Range kept_of(const Unit& unit, const UnitMember& member) const;
  void for_each_member(const std::function<void(const Unit&, const UnitMember&)>& visit) const;
  [[nodiscard]] const Value& parameter(const UnitMember& member) const;
  void write_batch(const Program& program, std::size_t micro_batch, const ReadRow& read,
                   std::span<const std::int64_t> samples, std::int64_t& valid) const;
  void reorder(std::span<std::int32_t> row) const;
  [[nodiscard]] std::vector<Piece> router_biases() const;
  void read_loss(const Program& program, StepResult& result) const;
  void write_settings(const StepSettings& settings) const;
  void read_verdicts(const StepSettings& settings, StepResult& result) const;
  [[nodiscard]] StepResult run(Executor& executor, const Program& program);

  const Compilation& compilation_;
  World& world_;
  StatePlan state_;
  Program training_;
  Program evaluation_;
  std::vector<std::int64_t> column_order_;
  std::unique_ptr<RankMemory> memory_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Executor> train_executor_;
  std::unique_ptr<Executor> evaluate_executor_;
  std::int64_t steps_ = 0;
  std::int64_t evaluations_ = 0;
  double seen_seconds_ = 0;  ///< of all collectives, up to the last step
  double seen_wait_ = 0;
};

/// The name that checkpoints give an optimizer state tensor; and a unit's, by these names.
[[nodiscard]] const char* moment_name(int index);
[[nodiscard]] std::vector<std::pair<const char*, BufferId>> moments(const Unit& unit);

/// What a checkpoint of this run holds, on whatever ranks; CheckpointReader::require takes it.
[[nodiscard]] std::vector<StateTensor> checkpoint_tensors(const Compilation& compilation);

/// Bytes of what `rank` owns of it: what Session::owned_state points at.
[[nodiscard]] std::int64_t checkpoint_bytes(const Compilation& compilation, int rank);

/// Threads that a rank's team has: what the run file says, or the cores shared by the local ranks,
/// at least 1.
[[nodiscard]] int threads_per_rank(const ParallelOptions& parallel);

}  // namespace sw
