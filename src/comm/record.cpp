#include "comm/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/hash.hpp"

namespace sw {
namespace {

bool is_pair(CollectiveKind kind) {
  return kind == CollectiveKind::Send || kind == CollectiveKind::Receive;
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
}

std::string describe(const Record& record) {
  std::string text = fmt::format("{} ({}", title(record), to_text(record.dtype));
  if (reduces(record.kind)) {
    text += record.op == ReduceOp::Sum ? ", sum" : ", max";
  }
  text += record.algorithm == Algorithm::Ring ? ", ring" : ", direct";
  if (record.kind == CollectiveKind::Broadcast) {
    text += fmt::format(", root {}", record.peer);
  }
  return text + fmt::format(", {} segments)", record.segment_count);
}

std::string describe(const Record& record, std::size_t segment) {
  const auto segments = record.segments();
  if (segment >= segments.size()) {
    return describe(record);
  }
  const PublishedSegment& it = segments[segment];
  return fmt::format("{} with segment {} of [{}][{}][{}]", describe(record), segment, it.outer,
                     it.length, it.trailing);
}

std::size_t first_difference(const Record& left, const Record& right) {
  const auto a = left.segments();
  const auto b = right.segments();
  std::size_t index = 0;
  while (index < std::min(a.size(), b.size()) && a[index].outer == b[index].outer &&
         a[index].length == b[index].length && a[index].trailing == b[index].trailing) {
    ++index;
  }
  return index;
}

/// Whether what `from` sends is what `to` expects.
std::string wrong_count(const Caller& from, const Caller& to) {
  const std::int64_t sent = from.record->segments()[static_cast<std::size_t>(to.index)].length;
  const std::int64_t expected =
      to.record->segments()[static_cast<std::size_t>(from.index)].expected;
  return sent == expected
             ? ""
             : fmt::format("in {} rank {} sends {} elements to rank {}, which expects {}",
                           title(*from.record), from.rank, sent, to.rank, expected);
}

}  // namespace

std::int64_t Record::bytes(std::size_t segments) {
  return static_cast<std::int64_t>(sizeof(Record) + segments * sizeof(PublishedSegment));
}

std::span<PublishedSegment> Record::segments() {
  return {reinterpret_cast<PublishedSegment*>(this + 1), static_cast<std::size_t>(segment_count)};
}

std::span<const PublishedSegment> Record::segments() const {
  return {reinterpret_cast<const PublishedSegment*>(this + 1),
          static_cast<std::size_t>(segment_count)};
}

std::uint64_t hash_of(const Record& record) {
  const bool pair = is_pair(record.kind);
  const auto kind = pair ? CollectiveKind::Send : record.kind;
  std::vector<std::int64_t> words = {static_cast<std::int64_t>(kind),
                                     static_cast<std::int64_t>(record.op),
                                     static_cast<std::int64_t>(record.dtype),
                                     static_cast<std::int64_t>(record.algorithm),
                                     pair ? -1 : record.peer,
                                     record.segment_count};
  if (record.kind != CollectiveKind::AllToAll) {
    for (const PublishedSegment& segment : record.segments()) {
      words.insert(words.end(), {segment.outer, segment.length, segment.trailing});
    }
  }
  if (!pair) {
    words.push_back(static_cast<std::int64_t>(hash64(std::as_bytes(std::span(record.name)))));
  }
  return hash64(std::as_bytes(std::span(words)));
}

Ticket ticket_of(const Record& record) {
  const std::uint64_t receive = ~record.hash;
  if (record.kind == CollectiveKind::Send) return {record.hash, receive};
  if (record.kind == CollectiveKind::Receive) return {receive, record.hash};
  return {record.hash, record.hash};
}

std::string title(const Record& record) {
  const std::string kind(to_text(record.kind));
  return record.name[0] == 0 ? kind : fmt::format("{} '{}'", kind, record.name.data());
}

std::string disagreement(const Caller& left, const Caller& right) {
  const Record& a = *left.record;
  const Record& b = *right.record;
  const bool both_ends = is_pair(a.kind) ? a.kind != b.kind : true;
  if (a.hash != b.hash || !both_ends) {
    const std::size_t segment = first_difference(a, b);
    return fmt::format("rank {} calls {}, but rank {} calls {}", left.rank, describe(a, segment),
                       right.rank, describe(b, segment));
  }
  if (a.kind == CollectiveKind::AllToAll) {
    const std::string there = wrong_count(left, right);
    return there.empty() ? wrong_count(right, left) : there;
  }
  return "";
}

}  // namespace sw
