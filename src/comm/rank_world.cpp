#include "comm/rank_world.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "comm/group_communicator.hpp"

namespace sw {

std::unique_ptr<Communicator> RankWorld::make_communicator(std::string name,
                                                           std::vector<int> members) {
  const bool ascending =
      std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) == members.end();
  SW_CHECK(ascending && !members.empty() && members.front() >= 0 && members.back() < size(),
           "group {} of ranks {} is not an ascending choice of {} ranks", name,
           fmt::join(members, ", "), size());
  return std::make_unique<GroupCommunicator>(context_, std::move(name), std::move(members));
}

void RankWorld::publish_progress(std::int64_t instruction, const char* phase) {
  context_->publish_progress(instruction, phase);
}

void RankWorld::abort(std::string_view message) { context_->control->abort(message); }

std::string RankWorld::aborted() const { return context_->control->aborted(); }

}  // namespace sw
