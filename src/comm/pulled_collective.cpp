#include "comm/pulled_collective.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "comm/futex.hpp"

namespace sw {
namespace {

/// An all_to_all as plan_rounds wants it: one segment per peer; of one element each where the
/// counts come later.
std::vector<Segment> pieces_per_peer(const Collective& collective, int ranks) {
  if (collective.output_room >= 0) {
    return std::vector<Segment>(static_cast<std::size_t>(ranks), {.length = 1});
  }
  std::vector<Segment> pieces;
  const std::int64_t size = size_of(collective.dtype);
  std::byte* input = collective.segments[0].input;
  std::byte* output = collective.segments[0].output;
  for (std::size_t peer = 0; peer < collective.input_counts.size(); ++peer) {
    pieces.push_back({.input = input, .output = output, .length = collective.output_counts[peer]});
    input += collective.input_counts[peer] * size;
    output += collective.output_counts[peer] * size;
  }
  return pieces;
}

/// Where the ranks' buffers together outgrow the caches: half of the 32 MiB that two Zen 3 cores
/// share. Up to there ordinary stores were faster, beyond streamed ones.
constexpr std::int64_t kCachedBytes = 16 << 20;
/// A piece of a large sum, over all ranks: it stays in the caches from the first round to the
/// second, and takes long against the wait between pieces.
constexpr std::int64_t kPieceBytes = 8 << 20;

double seconds(std::int64_t from_ns, std::int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

}  // namespace

PulledCollective::PulledCollective(std::shared_ptr<RankContext> context,
                                   std::shared_ptr<GroupMember> group, const Collective& collective)
    : context_(std::move(context)),
      group_(std::move(group)),
      dtype_(collective.dtype),
      op_(collective.op),
      segments_(collective.kind == CollectiveKind::AllToAll
                    ? pieces_per_peer(collective, group_->size())
                    : collective.segments),
      whole_(collective.segments.empty() ? Segment{} : collective.segments.front()),
      output_room_(collective.output_room),
      operands_(static_cast<std::size_t>(group_->size())),
      pulled_bytes_(static_cast<std::size_t>(group_->size())) {
  CollectiveSizes sizes = sizes_of(collective);
  sizes.segments.clear();
  for (const Segment& segment : segments_) {
    sizes.segments.push_back({segment.outer, segment.length, segment.trailing});
  }
  rounds_ = plan_rounds(sizes, group_->size(), group_->index());
  publish(collective, sizes);
  const std::int64_t bytes = whole_bytes() * group_->size();
  if (bytes > kCachedBytes) {
    stores_ = Stores::Streamed;
    if (collective.algorithm == Algorithm::Direct) {
      spare_memory(collective.kind, bytes);
    }
  }
}

void PulledCollective::spare_memory(CollectiveKind kind, std::int64_t bytes) {
  if (kind == CollectiveKind::AllReduce) {
    rounds_ = in_pieces(rounds_, bytes / kPieceBytes);
  }
  if (kind == CollectiveKind::AllGather) {
    // All ranks in the same order: who comes second finds a part in the cache they share.
    for (Round& round : rounds_) {
      std::ranges::stable_sort(round, {}, [](const Pull& move) { return move.operands[0].member; });
    }
  }
}

PulledCollective::~PulledCollective() { context_->give_back_record(record_, record_bytes_); }

void PulledCollective::publish(const Collective& collective, const CollectiveSizes& sizes) {
  record_bytes_ = Record::bytes(segments_.size());
  record_ = context_->take_record(record_bytes_);
  auto* record = new (context_->control->at(record_)) Record;
  record->kind = collective.kind;
  record->op = collective.op;
  record->algorithm = collective.algorithm;
  record->dtype = collective.dtype;
  record->peer = collective.peer;
  record->segment_count = static_cast<std::int32_t>(segments_.size());
  std::copy_n(collective.name.data(), std::min(collective.name.size(), record->name.size() - 1),
              record->name.data());
  const auto published = record->segments();
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const Extent& extent = sizes.segments[i];
    const bool counted = collective.kind == CollectiveKind::AllToAll && collective.output_room < 0;
    new (&published[i])
        PublishedSegment{.outer = extent.outer,
                         .length = counted ? collective.input_counts[i] : extent.length,
                         .trailing = extent.trailing,
                         .expected = counted ? collective.output_counts[i] : 0,
                         .input = context_->publish(segments_[i].input),
                         .output = context_->publish(segments_[i].output)};
  }
  record->hash = hash_of(*record);
  ticket_ = ticket_of(*record);
}

void PulledCollective::run() {
  const std::int64_t start = monotonic_ns();
  group_->arrive(record_, ticket_, start);
  const std::int64_t arrived = monotonic_ns();
  for (std::size_t i = 0; i < rounds_.size(); ++i) {
    if (i > 0) {
      group_->synchronize();
    }
    run_round(rounds_[i]);
  }
  if (!rounds_.empty()) {
    for (std::size_t member = 0; member < pulled_bytes_.size(); ++member) {
      group_->show_pulled_bytes(static_cast<int>(member), std::exchange(pulled_bytes_[member], 0));
    }
  }
  group_->finish();
  if (!rounds_.empty()) {
    group_->synchronize();
    result_.sent_bytes += group_->sent_bytes();
  }
  result_.wait_seconds += seconds(start, arrived);
  result_.seconds += seconds(start, monotonic_ns());
  result_.calls += 1;
}

/// Others look at what is published only between this rank's arrival and its departure.
void PulledCollective::set_ranges(std::span<const Range> inputs, std::span<const Range> outputs) {
  SW_CHECK(
      output_room_ >= 0 && inputs.size() == segments_.size() && outputs.size() == inputs.size(),
      "{} and {} ranges of an all_to_all over {} ranks", inputs.size(), outputs.size(),
      segments_.size());
  const auto inside = [](const Range& range, std::int64_t room) {
    return range.begin >= 0 && range.begin <= range.end && range.end <= room;
  };
  const std::int64_t size = size_of(dtype_);
  auto* record = std::launder(reinterpret_cast<Record*>(context_->control->at(record_)));
  const auto published = record->segments();
  for (std::size_t peer = 0; peer < segments_.size(); ++peer) {
    SW_CHECK(inside(inputs[peer], whole_.length) && inside(outputs[peer], output_room_),
             "[{}, {}) of an input of {} and [{}, {}) of an output of {}", inputs[peer].begin,
             inputs[peer].end, whole_.length, outputs[peer].begin, outputs[peer].end, output_room_);
    Segment& segment = segments_[peer];
    segment.input = whole_.input + inputs[peer].begin * size;
    segment.output = whole_.output + outputs[peer].begin * size;
    segment.length = outputs[peer].size();
    published[peer].length = inputs[peer].size();
    published[peer].expected = outputs[peer].size();
    published[peer].input = context_->publish(segment.input);
    published[peer].output = context_->publish(segment.output);
  }
  for (Pull& move : rounds_.at(0)) {
    move.columns = segments_[static_cast<std::size_t>(move.target.segment)].length;
    move.rows = move.columns > 0 ? 1 : 0;
  }
}

void PulledCollective::run_round(const Round& round) {
  for (const Pull& move : round) {
    run_move(move);
  }
}

std::int64_t PulledCollective::whole_bytes() const {
  std::int64_t elements = 0;
  for (const Segment& segment : segments_) {
    elements += segment.outer * segment.length * segment.trailing;
  }
  return elements * size_of(dtype_);
}

void PulledCollective::run_move(const Pull& move) {
  const std::int64_t size = size_of(dtype_);
  std::byte* target = own_address(move.target);
  const std::span<const std::byte*> operands(operands_.data(), move.operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Source& operand = move.operands[i];
    operands[i] = operand_address(operand);
    if (operand.member != group_->index()) {
      pulled_bytes_[static_cast<std::size_t>(operand.member)] += move.rows * move.columns * size;
    }
  }
  // A target that is an operand is in the caches anyway.
  const bool in_place = std::find(operands.begin(), operands.end(), target) != operands.end();
  for (std::int64_t row = 0; row < move.rows; ++row) {
    reduce_elements(dtype_, op_, target, operands, move.columns,
                    in_place ? Stores::Cached : stores_);
    target += move.target.stride * size;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      operands[i] += move.operands[i].piece.stride * size;
    }
  }
}

std::byte* PulledCollective::own_address(const Strip& piece) const {
  const Segment& segment = segments_[static_cast<std::size_t>(piece.segment)];
  return (piece.buffer == Side::Input ? segment.input : segment.output) +
         piece.offset * size_of(dtype_);
}

const std::byte* PulledCollective::operand_address(const Source& operand) const {
  if (operand.member == group_->index()) {
    return own_address(operand.piece);
  }
  const auto segment = static_cast<std::size_t>(operand.piece.segment);
  const PublishedSegment& theirs = group_->record_of(operand.member).segments()[segment];
  return group_->find(operand.member,
                      operand.piece.buffer == Side::Input ? theirs.input : theirs.output) +
         operand.piece.offset * size_of(dtype_);
}

}  // namespace sw
