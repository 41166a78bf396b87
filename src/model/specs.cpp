#include "model/specs.hpp"

#include <utility>

#include "base/error.hpp"

namespace sw {
namespace {

StoredPart whole_tensor(const std::string& name, const Shape& shape) {
  StoredPart part{name, shape, {}};
  for (const std::int64_t size : part.tensor_shape) {
    part.box.push_back({0, size});
  }
  return part;
}

}  // namespace

void Specs::matrix(const std::string& name, Shape shape, std::string letters,
                   const Shape& tensor_shape, double scale) {
  add(name, std::move(shape), std::move(letters), tensor_shape, true,
      {.mean = 0, .deviation = config_.initializer_range * scale});
}

void Specs::norm(const std::string& name) {
  add(name, {config_.hidden}, "d", {config_.hidden}, false, {.mean = 1, .deviation = 0});
}

void Specs::head_norm(const std::string& name) {
  add(name, {config_.head_dim}, "k", {config_.head_dim}, false, {.mean = 1, .deviation = 0});
}

void Specs::bias(const std::string& name, Shape shape, std::string letters) {
  const std::int64_t size = elements(shape);
  add(name, std::move(shape), std::move(letters), {size}, false, {});
}

void Specs::fuse(std::string tensor, std::int64_t index, std::int64_t parts) {
  StoredPart& stored = specs_.back().stored.front();
  const std::int64_t width = stored.tensor_shape.back();
  stored.tensor = std::move(tensor);
  stored.tensor_shape.back() = width * parts;
  stored.box.back() = {width * index, width * (index + 1)};
}

void Specs::split_experts(const std::vector<std::string>& tensors) {
  ParameterSpec& spec = specs_.back();
  const Shape each(spec.shape.begin() + 1, spec.shape.end());
  SW_CHECK(static_cast<std::int64_t>(tensors.size()) == spec.shape.front(), "{}: {} tensors of {}",
           spec.name, tensors.size(), to_text(spec.shape));
  spec.stored.clear();
  for (const std::string& tensor : tensors) {
    spec.stored.push_back(whole_tensor(tensor, each));
  }
}

void Specs::add(const std::string& name, Shape shape, std::string letters,
                const Shape& tensor_shape, bool decay, Initialization initial) {
  SW_CHECK(elements(shape) == elements(tensor_shape), "{}: {} and {}", name, to_text(shape),
           to_text(tensor_shape));
  specs_.push_back({name,
                    std::move(shape),
                    std::move(letters),
                    layer_,
                    decay,
                    initial,
                    {whole_tensor(name, tensor_shape)}});
}

}  // namespace sw
