#include <algorithm>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "checkpoint/safetensors.hpp"

namespace sw {

std::int64_t bytes_of(const TensorDeclaration& tensor) {
  return elements(tensor.shape) * size_of(tensor.dtype);
}

namespace {

/// The names as an object of strings, entry by entry: one JSON value per tensor at a time.
std::string header_text(const std::vector<TensorDeclaration>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":" + Json(metadata).dump();
  }
  std::int64_t offset = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const std::int64_t end = offset + bytes_of(tensor);
    const Json entry{{"dtype", safetensors_name(tensor.dtype)},
                     {"shape", tensor.shape},
                     {"data_offsets", {offset, end}}};
    fmt::format_to(std::back_inserter(text), "{}{}:{}", text.size() > 1 ? "," : "",
                   Json(tensor.name).dump(), entry.dump());
    offset = end;
  }
  text += "}";
  text.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(text.size()), 8)), ' ');
  return text;
}

void check_unique(const std::vector<TensorDeclaration>& tensors, const std::string& where) {
  std::set<std::string_view> names{"__metadata__"};
  for (const TensorDeclaration& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw DataError(fmt::format("{}: the tensor name '{}' is {}", where, tensor.name,
                                  tensor.name == "__metadata__" ? "reserved" : "given twice"));
    }
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(Files& files, const std::filesystem::path& path,
                                     std::vector<TensorDeclaration> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : where_(path.string()), tensors_(std::move(tensors)) {
  check_unique(tensors_, where_);
  const std::string header = header_text(tensors_, metadata);
  if (std::cmp_greater(header.size(), kMaxSafetensorsHeader)) {
    throw DataError(
        fmt::format("{}: the header of {} tensors would have {} bytes, more than the "
                    "{} that readers accept; write fewer tensors to one file",
                    where_, tensors_.size(), header.size(), kMaxSafetensorsHeader));
  }
  std::array<std::byte, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(header.size() >> (8 * i));
  }
  file_ = files.create(path);
  append(length);
  append(std::as_bytes(std::span(header)));
  if (!tensors_.empty()) {
    current_left_ = bytes_of(tensors_[0]);
    skip_complete();
  }
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  constexpr std::size_t kBlock = 8 << 20;  // so that a failing disk is noticed on the way
  while (!bytes.empty()) {
    const auto block = bytes.first(std::min(bytes.size(), kBlock));
    hasher_.update(block);
    file_->write(block);
    written_ += static_cast<std::int64_t>(block.size());
    bytes = bytes.subspan(block.size());
  }
}

void SafetensorsWriter::skip_complete() {
  while (current_left_ == 0 && current_ < tensors_.size()) {
    ++current_;
    current_left_ = current_ < tensors_.size() ? bytes_of(tensors_[current_]) : 0;
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> part) {
  if (part.empty()) {
    return;
  }
  SW_CHECK(current_ < tensors_.size(), "{}: '{}' comes after the last tensor", where_, name);
  SW_CHECK(name == tensors_[current_].name, "{}: '{}' comes where '{}' is due", where_, name,
           tensors_[current_].name);
  SW_CHECK(std::cmp_less_equal(part.size(), current_left_), "{}: '{}' gets {} bytes, {} are left",
           where_, name, part.size(), current_left_);
  append(part);
  current_left_ -= static_cast<std::int64_t>(part.size());
  skip_complete();
}

SafetensorsWriter::Finished SafetensorsWriter::finish() {
  SW_CHECK(complete(), "{}: '{}' still lacks {} bytes", where_, tensors_[current_].name,
           current_left_);
  file_->sync();
  file_->close();
  return {written_, hasher_.digest()};
}

}  // namespace sw
