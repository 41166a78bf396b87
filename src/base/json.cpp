#include "base/json.hpp"

#include <cstddef>
#include <iterator>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace sw {
namespace {

/// Walks over the text and tells a listener how far the parser has come, which the library's
/// events do not say.
class TrackedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackedIterator(const char* at, std::size_t* consumed) : at_(at), consumed_(consumed) {}
  reference operator*() const { return *at_; }
  TrackedIterator& operator++() {
    ++at_;
    ++*consumed_;
    return *this;
  }
  friend bool operator==(const TrackedIterator& a, const TrackedIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const TrackedIterator& a, const TrackedIterator& b) { return !(a == b); }

 private:
  const char* at_;
  std::size_t* consumed_;
};

/// The start of a text from outside, safe to print.
std::string excerpt(std::string_view text) {
  constexpr std::size_t kMost = 200;
  std::string shown(text.substr(0, kMost));
  for (char& letter : shown) {
    if (letter < ' ' || letter > '~') {
      letter = '?';
    }
  }
  return text.size() > kMost ? shown + "..." : shown;
}

/// Builds the document from the parser's events and refuses what the library would let pass.
class Builder {
 public:
  Builder(std::string_view where, int max_depth, const std::size_t* consumed)
      : where_(where), max_depth_(max_depth), consumed_(consumed) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& /*text*/) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& /*value*/) { return false; }  // text holds none

  bool start_object(std::size_t /*size*/) { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    if (!levels_.back().seen.insert(name).second) {
      throw DataError(fmt::format("{}: byte {}: the key '{}' stands twice in one object", where_,
                                  *consumed_, excerpt(name)));
    }
    levels_.back().key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) {
    const std::string_view reason = error.what();  // "[json.exception.…] reason"
    throw DataError(fmt::format("{}: byte {}: not valid JSON: {}", where_, position,
                                excerpt(reason.substr(reason.find(' ') + 1))));
  }

  [[nodiscard]] Json take() { return std::move(root_); }

 private:
  struct Level {
    Json value;
    std::string key;
    std::unordered_set<std::string> seen;
  };

  bool open(Json value) {
    if (std::cmp_greater_equal(levels_.size(), max_depth_)) {
      throw DataError(
          fmt::format("{}: byte {}: nested deeper than {} levels", where_, *consumed_, max_depth_));
    }
    levels_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (level.value.is_array()) {
      level.value.push_back(std::move(value));
    } else {
      // Past the map's own insertion, which compares with every key before it: the keys of one
      // object are already known to differ, and a header can hold a million of them.
      auto& object = level.value.get_ref<Json::object_t&>();
      static_cast<Json::object_t::Container&>(object).emplace_back(std::move(level.key),
                                                                   std::move(value));
    }
    return true;
  }

  std::string_view where_;
  int max_depth_;
  const std::size_t* consumed_;
  Json root_;
  std::vector<Level> levels_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view where, int max_depth) {
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    // The library takes it for the end and would let anything follow.
    throw DataError(fmt::format("{}: byte {}: not valid JSON: a zero byte", where, zero + 1));
  }
  std::size_t consumed = 0;
  Builder builder(where, max_depth, &consumed);
  Json::sax_parse(TrackedIterator(text.data(), &consumed),
                  TrackedIterator(text.data() + text.size(), &consumed), &builder);
  return builder.take();
}

}  // namespace sw
