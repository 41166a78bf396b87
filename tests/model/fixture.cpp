#include "tests/model/fixture.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"

namespace sw {
namespace {

template <typename T>
std::vector<double> to_doubles(std::string_view bytes) {
  std::vector<double> values;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    values.push_back(static_cast<double>(value));
  }
  return values;
}

/// A safetensors file of ours, trusted: eight bytes of header length, the header, the tensors.
FixtureTensors read_tensors(const std::filesystem::path& path) {
  const std::string file = read_whole_file(path, 1 << 24);
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof(header_size));
  const std::string_view data = std::string_view(file).substr(sizeof(header_size) + header_size);
  const Json header =
      parse_json(std::string_view(file).substr(sizeof(header_size), header_size), path.string());
  FixtureTensors tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      continue;
    }
    const auto begin = entry["data_offsets"][0].get<std::size_t>();
    const auto end = entry["data_offsets"][1].get<std::size_t>();
    const std::string_view bytes = data.substr(begin, end - begin);
    tensors[name] = {entry["shape"].get<Shape>(), entry["dtype"] == "F32"
                                                      ? to_doubles<float>(bytes)
                                                      : to_doubles<std::int32_t>(bytes)};
  }
  return tensors;
}

}  // namespace

std::vector<std::int32_t> FixtureTensor::integers() const {
  std::vector<std::int32_t> result;
  for (const double value : values) {
    result.push_back(static_cast<std::int32_t>(value));
  }
  return result;
}

std::vector<StoredTensor> Fixture::stored() const {
  std::vector<StoredTensor> result;
  for (const auto& [name, tensor] : weights) {
    result.push_back({name, tensor.shape});
  }
  return result;
}

Fixture read_fixture(const std::string& name) {
  const auto folder = std::filesystem::path(SW_SOURCE_DIR) / "tests/fixtures/model" / name;
  return {model_config({.preset = "", .path = folder.string(), .config = ""}),
          read_tensors(folder / "model.safetensors"),
          read_tensors(folder / "expected.safetensors")};
}

std::vector<double> elements_of(const ParameterSpec& spec, const FixtureTensors& tensors,
                                const std::string& prefix) {
  const std::int64_t size = elements(spec.shape);
  std::vector<double> values(static_cast<std::size_t>(size));
  for_each_run(spec.stored, {0, size}, [&](const StoredRun& run) {
    const FixtureTensor& tensor = tensors.at(prefix + spec.stored.at(run.part).tensor);
    std::copy_n(tensor.values.begin() + run.tensor, run.count, values.begin() + run.parameter);
  });
  return values;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b, double floor) {
  SW_CHECK(a.size() == b.size() && !a.empty(), "{} values against {}", a.size(), b.size());
  double difference = 0;
  double largest = floor;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double here = std::abs(a[i] - b[i]);
    difference = std::isnan(here) ? here : std::max(difference, here);
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest == 0 ? difference : difference / largest;
}

}  // namespace sw
