#include "checkpoint/pieces.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace sw {
namespace {

std::vector<Range> sorted_runs(const Shape& whole, std::span<const PieceRange> ranges) {
  std::vector<Range> sorted;
  for (const PieceRange& range : ranges) {
    Runs runs(whole, range);
    while (const std::optional<Run> run = runs.next()) {
      sorted.push_back({run->whole, run->whole + run->count});
    }
  }
  std::ranges::sort(sorted, {}, &Range::begin);
  return sorted;
}

}  // namespace

PieceRange whole_range(const Shape& whole) {
  PieceRange range;
  for (const std::int64_t dim : whole) {
    range.box.push_back({0, dim});
  }
  range.elements = {0, elements(whole)};
  return range;
}

std::int64_t box_elements(const PieceRange& range) {
  std::int64_t product = 1;
  for (const Range& side : range.box) {
    product *= side.size();
  }
  return product;
}

std::optional<std::string> misfit(const PieceRange& range, const Shape& whole) {
  if (range.box.size() != whole.size()) {
    return fmt::format("its box has {} sides, but the tensor {} dims", range.box.size(),
                       whole.size());
  }
  for (std::size_t dim = 0; dim < whole.size(); ++dim) {
    const Range& side = range.box[dim];
    if (side.begin < 0 || side.begin > side.end || side.end > whole[dim]) {
      return fmt::format("side {} of its box is [{}, {}), outside a size of {}", dim, side.begin,
                         side.end, whole[dim]);
    }
  }
  const Range& part = range.elements;
  if (part.begin < 0 || part.begin > part.end || part.end > box_elements(range)) {
    return fmt::format("its elements are [{}, {}), outside a box of {}", part.begin, part.end,
                       box_elements(range));
  }
  return std::nullopt;
}

Runs::Runs(const Shape& whole, const PieceRange& range) : elements_(range.elements) {
  // A row is the innermost dims up to and with the first, from the inside, that the box does not
  // span fully: those elements lie side by side.
  std::size_t dim = whole.size();
  std::int64_t stride = 1;
  bool inside_row = true;
  while (dim > 0) {
    --dim;
    const Range& side = range.box[dim];
    if (inside_row) {
      row_begin_ = side.begin * stride;
      row_ = side.size() * stride;
      inside_row = side.size() == whole[dim];
    } else {
      outer_sizes_.push_back(side.size());
      outer_begins_.push_back(side.begin);
      outer_strides_.push_back(stride);
    }
    stride *= whole[dim];
  }
  at_ = elements_.begin;
}

std::int64_t Runs::whole_offset(std::int64_t row) const {
  std::int64_t offset = row_begin_;
  for (std::size_t i = 0; i < outer_sizes_.size(); ++i) {  // innermost first
    offset += (outer_begins_[i] + row % outer_sizes_[i]) * outer_strides_[i];
    row /= outer_sizes_[i];
  }
  return offset;
}

std::optional<Run> Runs::next() {
  if (at_ >= elements_.end) {
    return std::nullopt;
  }
  const std::int64_t row = at_ / row_;
  const std::int64_t inside = at_ % row_;
  const std::int64_t count = std::min(row_ - inside, elements_.end - at_);
  const Run run{whole_offset(row) + inside, at_ - elements_.begin, count};
  at_ += count;
  return run;
}

void Runs::skip_to(std::int64_t whole) {
  if (at_ >= elements_.end) {
    return;
  }
  std::int64_t low = at_ / row_;
  std::int64_t high = (elements_.end - 1) / row_ + 1;  // behind the last
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (whole_offset(middle) + row_ <= whole) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  at_ = std::max(at_, low * row_);
}

std::int64_t copy_common(const Shape& whole, std::int64_t element_bytes, const PieceRange& from,
                         const std::byte* from_data, const PieceRange& to, std::byte* to_data) {
  std::int64_t copied = 0;
  Runs sources(whole, from);
  Runs targets(whole, to);
  std::optional<Run> source = sources.next();
  std::optional<Run> target = targets.next();
  while (source && target) {
    const std::int64_t source_end = source->whole + source->count;
    const std::int64_t target_end = target->whole + target->count;
    const std::int64_t begin = std::max(source->whole, target->whole);
    const std::int64_t end = std::min(source_end, target_end);
    if (begin < end) {
      std::memcpy(to_data + (target->local + begin - target->whole) * element_bytes,
                  from_data + (source->local + begin - source->whole) * element_bytes,
                  static_cast<std::size_t>((end - begin) * element_bytes));
      copied += end - begin;
    }
    if (source_end <= target_end) {  // the one that ends first has nothing more in common
      sources.skip_to(target->whole);
      source = sources.next();
    } else {
      targets.skip_to(source->whole);
      target = targets.next();
    }
  }
  return copied;
}

std::optional<std::string> cover_fault(const Shape& whole, std::span<const PieceRange> ranges) {
  std::int64_t end = 0;
  for (const Range& run : sorted_runs(whole, ranges)) {
    if (run.begin < end) {
      return fmt::format("element {} is there twice", run.begin);
    }
    if (run.begin > end) {
      return fmt::format("elements {} to {} are missing", end, run.begin - 1);
    }
    end = run.end;
  }
  if (end < elements(whole)) {
    return fmt::format("elements {} to {} are missing", end, elements(whole) - 1);
  }
  return std::nullopt;
}

}  // namespace sw
