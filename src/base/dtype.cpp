#include "base/dtype.hpp"

#include <array>

#include "base/error.hpp"

namespace sw {
namespace {

struct Row {
  DType dtype;
  std::int64_t size;
  std::string_view name;
};

constexpr std::array<Row, 8> kTable{{
    {DType::Float64, 8, "float64"},
    {DType::Float32, 4, "float32"},
    {DType::Float16, 2, "float16"},
    {DType::BFloat16, 2, "bfloat16"},
    {DType::Int64, 8, "int64"},
    {DType::Int32, 4, "int32"},
    {DType::UInt64, 8, "uint64"},
    {DType::UInt8, 1, "uint8"},
}};

const Row& row(DType dtype) { return kTable.at(static_cast<std::size_t>(dtype)); }

}  // namespace

std::int64_t size_of(DType dtype) { return row(dtype).size; }

std::string_view to_text(DType dtype) { return row(dtype).name; }

DType dtype_from_text(std::string_view text) {
  for (const Row& candidate : kTable) {
    if (candidate.name == text) {
      return candidate.dtype;
    }
  }
  throw ConfigError(fmt::format("unknown element type '{}'", text));
}

}  // namespace sw
