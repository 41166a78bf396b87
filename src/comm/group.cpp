#include "comm/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <thread>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "comm/futex.hpp"

namespace sw {
namespace {

/// Tens of microseconds: what ranks with a core of their own are apart within a collective. What it
/// may take from a compute thread on the same core is little: a step has tens of collectives.
constexpr int kSpins = 2000;
/// Then the core goes to whoever else wants it, for a moment: tens of microseconds when nobody
/// does. A wake-up from sleep takes as long.
constexpr int kYields = 100;
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
      status_(control_.status(context_->rank)),
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
    const std::int64_t offset =
        context_->allocate(static_cast<std::int64_t>(sizeof(GroupHeader)) + size() * slot_bytes());
    new (control_.at(offset)) GroupHeader;
    slots_ = control_.at(offset) + sizeof(GroupHeader);
    for (int member = 0; member < size(); ++member) {
      new (slots_ + member * slot_bytes()) MemberSlot;
      for (int from = 0; from < size(); ++from) {
        new (&pulled_bytes(member, from)) std::atomic<std::int64_t>(0);
      }
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
  slots_ = control_.at(entry.state.load()) + sizeof(GroupHeader);
}

std::int64_t GroupMember::slot_bytes() const {
  constexpr std::int64_t kCacheLine = 64;
  return round_up(static_cast<std::int64_t>(sizeof(MemberSlot)) +
                      size() * static_cast<std::int64_t>(sizeof(std::atomic<std::int64_t>)),
                  kCacheLine);
}

MemberSlot& GroupMember::slot(int member) const {
  return *std::launder(reinterpret_cast<MemberSlot*>(slots_ + member * slot_bytes()));
}

std::atomic<std::int64_t>& GroupMember::pulled_bytes(int by, int from) const {
  return *std::launder(reinterpret_cast<std::atomic<std::int64_t>*>(&slot(by) + 1) + from);
}

void GroupMember::arrive(std::int64_t record, const Ticket& ticket, std::int64_t now_ns) {
  ++sequence_;
  MemberSlot& own = slot(index_);
  own.record.store(record, std::memory_order_relaxed);
  own.tickets[sequence_ % 2].store(ticket.shown, std::memory_order_relaxed);
  status_.arrived_ns.store(now_ns, std::memory_order_relaxed);
  step();
  if (context_->one_address_space) {
    // Either whoever leaves sees this and waits, or this rank sees the abort.
    own.pulling.store(1);
    if (control_.is_aborted()) {
      leave();
    }
  }
  check_tickets(ticket);
}

void GroupMember::finish() { slot(index_).pulling.store(0, std::memory_order_release); }

/// Sequentially consistent throughout: of the last members to arrive one sees that all are there;
/// and either it sees a sleeper, or the sleeper sees that all are there.
void GroupMember::step() {
  if (control_.is_aborted()) {
    leave();
  }
  ++steps_;
  slot(index_).steps.store(steps_);
  int next = 0;
  if (!all_are_here(next)) {
    wait_for_others(next);
  } else if (header_->sleepers.load() > 0) {
    header_->wakes.fetch_add(1);
    futex_wake_all(header_->wakes);
  }
  if (control_.is_aborted()) {
    leave();
  }
}

void GroupMember::check_tickets(const Ticket& ticket) {
  bool fits = true;
  for (int member = 0; member < size(); ++member) {
    fits = fits && (member == index_ || slot(member).tickets[sequence_ % 2].load(
                                            std::memory_order_relaxed) == ticket.expected);
  }
  const bool counts = record_of(index_).kind == CollectiveKind::AllToAll;
  if (fits && !counts) {
    return;
  }
  // All members come to the same finding; counts of an exchange concern pairs.
  const auto caller = [this](int member) {
    const auto index = static_cast<std::size_t>(member);
    return Caller{&record_of(member), member, members_[index]};
  };
  for (int left = 0; left < (fits ? size() : 1); ++left) {
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

void GroupMember::wait_for_others(int& next) {
  for (int i = 0; control_.may_spin() && i < kSpins; ++i) {
    if (all_are_here(next)) {
      return;
    }
    pause();
  }
  for (int i = 0; i < kYields; ++i) {
    std::this_thread::yield();
    if (all_are_here(next)) {
      return;
    }
  }
  const Place place = here();
  status_.collective.store({place.text.data(), place.length});
  status_.sleeping.fetch_add(1);
  header_->sleepers.fetch_add(1);
  sleep_until_all_are_here(next);
  header_->sleepers.fetch_sub(1);
  status_.sleeping.fetch_sub(1);
}

void GroupMember::sleep_until_all_are_here(int& next) {
  const std::int64_t waiting_since = monotonic_ns();
  for (;;) {
    const std::uint32_t wakes = header_->wakes.load();
    if (all_are_here(next) || control_.is_aborted()) {
      return;
    }
    futex_wait(header_->wakes, wakes, std::min(time_left(waiting_since), kLongestSleep_ns));
  }
}

bool GroupMember::all_are_here(int& next) const {
  while (next < size() && has_arrived(next)) {
    ++next;
  }
  return next == size();
}

bool GroupMember::has_arrived(int member) const {
  return static_cast<std::int32_t>(slot(member).steps.load() - steps_) >= 0;
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
  const Place place = here();
  std::string text =
      fmt::format("rank {}: {}: no arrival from {} after {:g} s ({} there)", context_->rank,
                  std::string_view(place.text.data(), place.length), ranks_text(lost),
                  static_cast<double>(control_.deadline_ns()) * 1e-9, ranks_text(present));
  for (const int rank : lost) {
    text += fmt::format("; rank {} {}", rank, control_.doing(rank));
  }
  return text;
}

GroupMember::Place GroupMember::here() const {
  const Record& own = record_of(index_);
  Place place;
  const char* quote = own.name[0] == 0 ? "" : "'";
  const auto end = fmt::format_to_n(
      place.text.data(), place.text.size(), "{} #{}{}{}{}{} on group {}", to_text(own.kind),
      sequence_, own.name[0] == 0 ? "" : " ", quote, own.name.data(), quote, name_);
  place.length = std::min(end.size, place.text.size());
  return place;
}

void GroupMember::leave() {
  finish();
  if (context_->one_address_space) {
    // Whoever throws may free its buffers: first let the others stop reading them. They either have
    // set `pulling`, or will see the abort before they read.
    for (int member = 0; member < size(); ++member) {
      while (slot(member).pulling.load() != 0) {
        std::this_thread::yield();
      }
    }
  }
  throw CommError(control_.aborted());
}

const Record& GroupMember::record_of(int member) const {
  const std::int64_t offset = slot(member).record.load(std::memory_order_relaxed);
  return *std::launder(reinterpret_cast<const Record*>(control_.at(offset)));
}

const std::byte* GroupMember::find(int member, std::uint64_t published) const {
  return context_->find(members_[static_cast<std::size_t>(member)], published);
}

void GroupMember::show_pulled_bytes(int member, std::int64_t bytes) {
  pulled_bytes(index_, member).store(bytes, std::memory_order_relaxed);
}

std::int64_t GroupMember::sent_bytes() const {
  std::int64_t sum = 0;
  for (int member = 0; member < size(); ++member) {
    sum += member == index_ ? 0 : pulled_bytes(member, index_).load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace sw
