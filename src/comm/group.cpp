#include "comm/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <thread>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "comm/futex.hpp"

namespace sw {
namespace {

/// About two microseconds.
constexpr int kSpins = 200;
/// Sleepers look around this often even if nobody wakes them: whoever should may have died.
constexpr std::int64_t kLongestSleep_ns = 250'000'000;
/// A member that is itself waiting for others is not the one to blame: those who wait for it give
/// whoever waits for the culprit this much time to say so first.
constexpr std::int64_t kGrace_ns = 2'000'000'000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

GroupMember::GroupMember(std::shared_ptr<RankContext> context, std::string name,
                         const std::string& key, std::vector<int> members)
    : context_(std::move(context)),
      control_(*context_->control),
      name_(std::move(name)),
      members_(std::move(members)) {
  const auto own = std::find(members_.begin(), members_.end(), context_->rank);
  SW_CHECK(own != members_.end(), "rank {} is no member of group {}", context_->rank, name_);
  index_ = static_cast<int>(own - members_.begin());
  const std::string unique = fmt::format("{} of {}", key, fmt::join(members_, ","));
  const std::uint64_t hash = hash64(std::as_bytes(std::span(unique)));
  open_state(hash == 0 ? 1 : hash);
}

void GroupMember::open_state(std::uint64_t key) {
  bool created = false;
  GroupEntry& entry = control_.find_group(key, created);
  if (created) {
    const auto count = static_cast<std::int64_t>(members_.size());
    const std::int64_t offset =
        context_->allocate(static_cast<std::int64_t>(sizeof(GroupHeader)) +
                           count * static_cast<std::int64_t>(sizeof(MemberSlot)));
    auto* header = new (control_.at(offset)) GroupHeader;
    for (std::int64_t member = 0; member < count; ++member) {
      new (reinterpret_cast<MemberSlot*>(header + 1) + member) MemberSlot;
    }
    entry.state.store(offset);
  }
  const std::int64_t start = monotonic_ns();
  while (entry.state.load() == 0) {
    if (control_.is_aborted()) {
      throw CommError(control_.aborted());
    }
    if (monotonic_ns() - start > control_.deadline_ns()) {
      control_.abort(fmt::format(
          "rank {}: group {} was not made after {:g} s; the rank that began to make it was lost",
          context_->rank, name_, static_cast<double>(control_.deadline_ns()) * 1e-9));
    }
    std::this_thread::yield();
  }
  header_ = std::launder(reinterpret_cast<GroupHeader*>(control_.at(entry.state.load())));
  slots_ = std::launder(reinterpret_cast<MemberSlot*>(header_ + 1));
}

void GroupMember::arrive(std::int64_t record) {
  ++sequence_;
  slots_[index_].record.store(record, std::memory_order_relaxed);
  control_.status(context_->rank).arrived_ns.store(monotonic_ns(), std::memory_order_relaxed);
  step(true);
}

void GroupMember::synchronize() { step(false); }

void GroupMember::step(bool check) {
  if (control_.is_aborted()) {
    leave();
  }
  const std::uint32_t epoch = header_->epoch.load();
  ++steps_;
  const bool last = header_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
                    static_cast<std::uint32_t>(size());
  if (last) {
    if (check) {
      check_records();
    }
    finish_step();
  }
  // The last to arrive counts as missing until it has let the others go: it may die before.
  slots_[index_].steps.store(steps_, std::memory_order_release);
  if (!last) {
    wait_for_step(epoch);
  }
  if (control_.is_aborted()) {
    leave();
  }
}

void GroupMember::check_records() {
  const auto caller = [this](int member) {
    const auto index = static_cast<std::size_t>(member);
    return Caller{&record_of(member), member, members_[index]};
  };
  const bool counts = record_of(0).kind == CollectiveKind::AllToAll;
  for (int left = 0; left < (counts ? size() : 1); ++left) {
    for (int right = left + 1; right < size(); ++right) {
      const std::string wrong = disagreement(caller(left), caller(right));
      if (!wrong.empty()) {
        control_.abort(
            fmt::format("call #{} on group {} does not match: {}", sequence_, name_, wrong));
        leave();
      }
    }
  }
}

void GroupMember::finish_step() {
  header_->arrived.store(0, std::memory_order_relaxed);
  std::uint32_t epoch = header_->epoch.load(std::memory_order_relaxed);
  while (!header_->epoch.compare_exchange_weak(
      epoch, (epoch & kAbortedEpoch) | ((epoch + 1) & ~kAbortedEpoch))) {
  }
  // Ordered with the sleeper's entry, both sequentially consistent: either it is seen here, or it
  // sees the new epoch.
  if (header_->sleepers.load() > 0) {
    futex_wake_all(header_->epoch);
  }
}

void GroupMember::wait_for_step(std::uint32_t epoch) {
  for (int i = 0; control_.may_spin() && i < kSpins; ++i) {
    if (header_->epoch.load(std::memory_order_acquire) != epoch) {
      return;
    }
    pause();
  }
  if (header_->epoch.load(std::memory_order_acquire) != epoch) {
    return;
  }
  RankStatus& status = control_.status(context_->rank);
  status.collective.store(here());
  status.sleeping.fetch_add(1);
  header_->sleepers.fetch_add(1);
  sleep_until_step(epoch);
  header_->sleepers.fetch_sub(1);
  status.sleeping.fetch_sub(1);
}

void GroupMember::sleep_until_step(std::uint32_t epoch) {
  const std::int64_t waiting_since = monotonic_ns();
  while (header_->epoch.load() == epoch && !control_.is_aborted()) {
    const std::int64_t left = time_left(waiting_since);
    futex_wait(header_->epoch, epoch, std::min(left, kLongestSleep_ns));
  }
}

bool GroupMember::has_arrived(int member) const {
  return static_cast<std::int32_t>(slots_[member].steps.load(std::memory_order_acquire) - steps_) >=
         0;
}

std::int64_t GroupMember::time_left(std::int64_t waiting_since) {
  const std::int64_t now = monotonic_ns();
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  std::vector<int> lost;
  for (int member = 0; member < size(); ++member) {
    if (has_arrived(member)) {
      continue;
    }
    const int rank = members_[static_cast<std::size_t>(member)];
    const RankStatus& status = control_.status(rank);
    const std::int64_t last_sign =
        std::max({waiting_since, status.progress_ns.load(), status.arrived_ns.load()});
    const std::int64_t grace =
        status.sleeping.load() > 0 ? std::min(kGrace_ns, control_.deadline_ns() / 2) : 0;
    const std::int64_t left = last_sign + control_.deadline_ns() + grace - now;
    shortest = std::min(shortest, left);
    if (left <= 0) {
      lost.push_back(rank);
    }
  }
  if (!lost.empty()) {
    control_.abort(lost_message(lost));
  }
  return shortest;
}

std::string GroupMember::lost_message(const std::vector<int>& lost) const {
  std::vector<int> present;
  for (int member = 0; member < size(); ++member) {
    if (has_arrived(member)) {
      present.push_back(members_[static_cast<std::size_t>(member)]);
    }
  }
  std::string text = fmt::format(
      "rank {}: {}: no arrival from {} after {:g} s ({} there)", context_->rank, here(),
      ranks_text(lost), static_cast<double>(control_.deadline_ns()) * 1e-9, ranks_text(present));
  for (const int rank : lost) {
    text += fmt::format("; rank {} {}", rank, control_.doing(rank));
  }
  return text;
}

std::string GroupMember::here() const {
  const Record& own = record_of(index_);
  const std::string quoted = own.name[0] == 0 ? "" : fmt::format(" '{}'", own.name.data());
  return fmt::format("{} #{}{} on group {}", to_text(own.kind), sequence_, quoted, name_);
}

void GroupMember::begin_pulling() {
  slots_[index_].pulling.store(1);
  if (control_.is_aborted()) {
    leave();
  }
}

void GroupMember::end_pulling() { slots_[index_].pulling.store(0, std::memory_order_release); }

void GroupMember::leave() {
  end_pulling();
  if (context_->one_address_space) {
    // Whoever throws may free its buffers: first let the others stop reading them. They either have
    // set `pulling`, or will see the abort before they read.
    for (int member = 0; member < size(); ++member) {
      while (slots_[member].pulling.load() != 0) {
        std::this_thread::yield();
      }
    }
  }
  throw CommError(control_.aborted());
}

const Record& GroupMember::record_of(int member) const {
  const std::int64_t offset = slots_[member].record.load(std::memory_order_relaxed);
  return *std::launder(reinterpret_cast<const Record*>(control_.at(offset)));
}

const std::byte* GroupMember::find(int member, std::uint64_t published) const {
  return context_->find(members_[static_cast<std::size_t>(member)], published);
}

void GroupMember::add_sent_bytes(int member, std::int64_t bytes) {
  slots_[member].sent_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

std::int64_t GroupMember::take_sent_bytes() {
  return slots_[index_].sent_bytes.exchange(0, std::memory_order_relaxed);
}

}  // namespace sw
