#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"

namespace sw {
namespace {

struct TypeName {
  DType dtype;
  std::string_view name;
};

// The first name of a type is the one that is written.
constexpr std::array<TypeName, 9> kTypeNames{{
    {DType::Float64, "F64"},
    {DType::Float32, "F32"},
    {DType::Float16, "F16"},
    {DType::BFloat16, "BF16"},
    {DType::Int64, "I64"},
    {DType::Int32, "I32"},
    {DType::UInt64, "U64"},
    {DType::UInt8, "U8"},
    {DType::UInt8, "BOOL"},
}};

std::optional<DType> type_of(std::string_view name) {
  for (const TypeName& candidate : kTypeNames) {
    if (candidate.name == name) {
      return candidate.dtype;
    }
  }
  return std::nullopt;
}

constexpr std::size_t kLengthBytes = 8;
constexpr int kMaxDepth = 4;  // header, tensor, shape: three, and one for a clearer message
constexpr std::size_t kMaxDims = 64;

/// Where in a file a complaint belongs.
class Place {
 public:
  Place(std::string_view file, std::string_view tensor) : file_(file), tensor_(tensor) {}
  template <typename... Values>
  [[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) const {
    throw DataError(fmt::format("{}: tensor '{}': {}", file_, tensor_,
                                fmt::format(format, std::forward<Values>(values)...)));
  }

 private:
  std::string_view file_;
  std::string_view tensor_;
};

std::int64_t non_negative(const Json& value, std::string_view what, const Place& place) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    place.refuse("{} is {}, not a whole number from 0 to 2^63-1", what,
                 value.is_primitive() ? value.dump() : std::string(value.type_name()));
  }
  return value.get<std::int64_t>();
}

Shape shape_of(const Json& value, const Place& place) {
  if (!value.is_array() || value.size() > kMaxDims) {
    place.refuse("its shape is not a list of at most {} sizes", kMaxDims);
  }
  Shape shape;
  for (const Json& dim : value) {
    shape.push_back(non_negative(dim, "a size of its shape", place));
  }
  return shape;
}

std::int64_t bytes_of(const Shape& shape, DType dtype, const Place& place) {
  std::int64_t bytes = size_of(dtype);
  for (const std::int64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      place.refuse("the product of its shape {} does not fit in 63 bits", to_text(shape));
    }
  }
  return bytes;
}

/// The three fields of a tensor's entry; all must be there, nothing else may be.
struct Fields {
  const Json* dtype = nullptr;
  const Json* shape = nullptr;
  const Json* offsets = nullptr;
};

Fields fields_of(const Json& entry, const Place& place) {
  if (!entry.is_object()) {
    place.refuse("its entry is not an object");
  }
  Fields fields;
  for (const auto& [key, value] : entry.items()) {
    if (key == "dtype") {
      fields.dtype = &value;
    } else if (key == "shape") {
      fields.shape = &value;
    } else if (key == "data_offsets") {
      fields.offsets = &value;
    } else {
      place.refuse("unknown key '{}'; dtype, shape and data_offsets are known", key);
    }
  }
  if (fields.dtype == nullptr || fields.shape == nullptr || fields.offsets == nullptr) {
    place.refuse("dtype, shape and data_offsets must all be there");
  }
  return fields;
}

DType dtype_of(const Json& value, const Place& place) {
  if (!value.is_string()) {
    place.refuse("its dtype is not a string");
  }
  const auto name = value.get<std::string>();
  const std::optional<DType> dtype = type_of(name);
  if (!dtype) {
    place.refuse("unknown dtype '{}'; known are F64, F32, F16, BF16, I64, I32, U64, U8, BOOL",
                 name);
  }
  return *dtype;
}

/// A tensor's byte range, for the check that the ranges tile the data.
struct Extent {
  Range range;
  std::string_view name;
};

Extent read_tensor(const std::string& name, const Json& entry, std::span<const std::byte> data,
                   std::string_view where, TensorViews& tensors) {
  const Place place(where, name);
  const Fields fields = fields_of(entry, place);
  const DType dtype = dtype_of(*fields.dtype, place);
  Shape shape = shape_of(*fields.shape, place);
  if (!fields.offsets->is_array() || fields.offsets->size() != 2) {
    place.refuse("its data_offsets are not a pair");
  }
  const Range range{non_negative((*fields.offsets)[0], "the begin of its data_offsets", place),
                    non_negative((*fields.offsets)[1], "the end of its data_offsets", place)};
  const std::int64_t needed = bytes_of(shape, dtype, place);
  if (range.begin > range.end || std::cmp_greater(range.end, data.size())) {
    place.refuse("its data_offsets [{}, {}] do not lie in order inside the {} bytes of data",
                 range.begin, range.end, data.size());
  }
  if (range.size() != needed) {
    place.refuse("its data_offsets hold {} bytes, but shape {} of {} needs {}", range.size(),
                 to_text(shape), to_text(dtype), needed);
  }
  const auto bytes =
      data.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
  const auto added = tensors.emplace(name, TensorView{dtype, std::move(shape), bytes}).first;
  return {range, added->first};
}

void check_tiling(std::vector<Extent> extents, std::size_t data_bytes, std::string_view where) {
  std::ranges::sort(extents, [](const Extent& a, const Extent& b) {
    return std::pair(a.range.begin, a.range.end) < std::pair(b.range.begin, b.range.end);
  });
  std::int64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.range.begin != end) {
      Place(where, extent.name)
          .refuse("its bytes begin at {}, but those before it end at {}: {}", extent.range.begin,
                  end, extent.range.begin < end ? "they overlap" : "there is a hole");
    }
    end = extent.range.end;
  }
  if (std::cmp_not_equal(end, data_bytes)) {
    throw DataError(
        fmt::format("{}: the tensors end at byte {} of the data, but the file holds {}: "
                    "{} bytes belong to nothing",
                    where, end, data_bytes, data_bytes - static_cast<std::size_t>(end)));
  }
}

std::uint64_t header_length(std::span<const std::byte> file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    throw DataError(
        fmt::format("{}: has {} bytes, too few for a safetensors file, which begins "
                    "with {} bytes of header length",
                    where, file.size(), kLengthBytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  if (std::cmp_greater(length, kMaxSafetensorsHeader)) {
    throw DataError(
        fmt::format("{}: says its header has {} bytes, more than the {} allowed; this "
                    "is no safetensors file",
                    where, length, kMaxSafetensorsHeader));
  }
  if (length > file.size() - kLengthBytes) {
    throw DataError(
        fmt::format("{}: says its header has {} bytes, but only {} follow; the file "
                    "was cut",
                    where, length, file.size() - kLengthBytes));
  }
  return length;
}

void read_metadata(const Json& value, std::string_view where, SafetensorsContent& content) {
  if (!value.is_object()) {
    throw DataError(fmt::format("{}: __metadata__ is not an object", where));
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      throw DataError(fmt::format("{}: __metadata__ '{}' is not a string", where, key));
    }
    content.metadata.emplace(key, text.get<std::string>());
  }
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  const auto* row = std::ranges::find(kTypeNames, dtype, &TypeName::dtype);
  SW_CHECK(row != kTypeNames.end(), "{} has no name in safetensors", to_text(dtype));
  return row->name;
}

SafetensorsContent parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  const std::uint64_t length = header_length(file, where);
  const auto header_bytes = file.subspan(kLengthBytes, length);
  const auto data = file.subspan(kLengthBytes + length);
  if (header_bytes.empty() || header_bytes[0] != std::byte{'{'}) {
    throw DataError(fmt::format("{}: its header does not begin with '{{'", where));
  }
  const Json header =
      parse_json({reinterpret_cast<const char*>(header_bytes.data()), header_bytes.size()},
                 fmt::format("{}: header", where), kMaxDepth);
  SafetensorsContent content;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      read_metadata(entry, where, content);
    } else {
      extents.push_back(read_tensor(name, entry, data, where, content.tensors));
    }
  }
  check_tiling(std::move(extents), data.size(), where);
  return content;
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : file_(path), content_(parse_safetensors(file_.bytes(), path.string())) {}

}  // namespace sw
