#include "comm/group_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/check.hpp"
#include "comm/pulled_collective.hpp"

namespace sw {

GroupCommunicator::GroupCommunicator(std::shared_ptr<RankContext> context, std::string name,
                                     std::vector<int> members)
    : context_(std::move(context)), members_(std::move(members)) {
  const std::string asked = fmt::format("{} of {}", name, fmt::join(members_, ","));
  key_ = fmt::format("{} #{}", name, context_->times_made(asked));
  group_ = std::make_shared<GroupMember>(context_, std::move(name), key_, members_);
}

std::shared_ptr<GroupMember> GroupCommunicator::pair_with(int peer) {
  std::shared_ptr<GroupMember>& pair = pairs_[peer];
  if (pair == nullptr) {
    const int low = std::min(peer, rank());
    const int high = std::max(peer, rank());
    std::vector<int> members = {members_[static_cast<std::size_t>(low)],
                                members_[static_cast<std::size_t>(high)]};
    const std::string key = fmt::format("pair in {} of {}", key_, fmt::join(members_, ","));
    pair = std::make_shared<GroupMember>(context_, name(), key, std::move(members));
  }
  return pair;
}

std::unique_ptr<PreparedCollective> GroupCommunicator::prepare(Collective collective) {
  check_collective(collective, *context_, name(), size(), rank());
  if (collective.kind != CollectiveKind::Send && collective.kind != CollectiveKind::Receive) {
    return std::make_unique<PulledCollective>(context_, group_, collective);
  }
  std::shared_ptr<GroupMember> pair = pair_with(collective.peer);
  collective.peer = 1 - pair->index();
  return std::make_unique<PulledCollective>(context_, std::move(pair), collective);
}

}  // namespace sw
