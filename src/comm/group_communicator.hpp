#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/group.hpp"
#include "comm/rank_context.hpp"

namespace sw {

/// The communicator of every backend whose ranks can read each other's windows.
class GroupCommunicator final : public Communicator {
 public:
  GroupCommunicator(std::shared_ptr<RankContext> context, std::string name,
                    std::vector<int> members);

  [[nodiscard]] int rank() const override { return group_->index(); }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] const std::string& name() const override { return group_->name(); }
  [[nodiscard]] std::unique_ptr<PreparedCollective> prepare(Collective collective) override;

 private:
  /// The group of this rank and one other, which sends and receives run in: the rest of the members
  /// have no part in them.
  [[nodiscard]] std::shared_ptr<GroupMember> pair_with(int peer);

  std::shared_ptr<RankContext> context_;
  std::vector<int> members_;
  std::string key_;
  std::shared_ptr<GroupMember> group_;
  std::map<int, std::shared_ptr<GroupMember>> pairs_;
};

}  // namespace sw
