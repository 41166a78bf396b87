#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/rank_context.hpp"

namespace sw {

/// What the worlds of all backends over a control block have in common: all but the window.
class RankWorld : public World {
 public:
  explicit RankWorld(std::shared_ptr<RankContext> context) : context_(std::move(context)) {}

  [[nodiscard]] int rank() const override { return context_->rank; }
  [[nodiscard]] int size() const override { return context_->control->ranks(); }
  [[nodiscard]] std::unique_ptr<Communicator> make_communicator(std::string name,
                                                                std::vector<int> members) override;
  void publish_progress(std::int64_t instruction, const char* phase) override;
  void abort(std::string_view message) override;
  [[nodiscard]] std::string aborted() const override;

 protected:
  [[nodiscard]] RankContext& context() { return *context_; }

 private:
  std::shared_ptr<RankContext> context_;
};

}  // namespace sw
