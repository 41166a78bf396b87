#include "comm/communicator.hpp"

#include <array>
#include <utility>

#include "base/error.hpp"

namespace sw {
namespace {

constexpr std::array<std::pair<CollectiveKind, std::string_view>, 8> kKinds = {{
    {CollectiveKind::AllReduce, "all_reduce"},
    {CollectiveKind::ReduceScatter, "reduce_scatter"},
    {CollectiveKind::AllGather, "all_gather"},
    {CollectiveKind::AllToAll, "all_to_all"},
    {CollectiveKind::Broadcast, "broadcast"},
    {CollectiveKind::Send, "send"},
    {CollectiveKind::Receive, "receive"},
    {CollectiveKind::Barrier, "barrier"},
}};

}  // namespace

std::string_view to_text(CollectiveKind kind) {
  for (const auto& [value, text] : kKinds) {
    if (value == kind) {
      return text;
    }
  }
  return "unknown";
}

CollectiveKind collective_from_text(std::string_view text) {
  for (const auto& [value, name] : kKinds) {
    if (name == text) {
      return value;
    }
  }
  throw ConfigError(fmt::format("there is no collective '{}'", text));
}

void PreparedCollective::set_ranges(std::span<const Range>, std::span<const Range>) {
  throw InternalError("only an all_to_all whose counts come with each run has ranges");
}

Task PreparedCollective::task() {
  return {[](void* self) { static_cast<PreparedCollective*>(self)->run(); }, this};
}

CollectiveResult Communicator::run(Collective collective) {
  const auto prepared = prepare(std::move(collective));
  prepared->run();
  return prepared->result();
}

}  // namespace sw
