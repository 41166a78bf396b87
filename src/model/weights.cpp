#include "model/weights.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.hpp"

namespace sw {
namespace {

constexpr std::string_view kHead = "lm_head.weight";

/// What stands before the names of the base model.
std::string_view prefix_of(Family family) {
  return family == Family::Gpt2 ? "transformer." : "model.";
}

/// Buffers that older versions of the library wrote beside the weights: they hold nothing learned.
bool is_leftover(Family family, std::string_view name) {
  if (family == Family::Gpt2) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  }
  return name.ends_with(".rotary_emb.inv_freq");
}

/// The tensors of a folder under the model's full names.
class Folder {
 public:
  Folder(const ModelConfig& config, const std::vector<StoredTensor>& found)
      : prefix_(prefix_of(config.family)) {
    bare_ = std::none_of(found.begin(), found.end(), [&](const StoredTensor& tensor) {
      return tensor.name.starts_with(prefix_);
    });
    for (const StoredTensor& tensor : found) {
      tensors_.emplace(full_name(tensor.name), &tensor);
    }
  }

  /// Takes the tensor out, so that what stays is what nobody knows; null if it is not there.
  const StoredTensor* take(const std::string& full_name) {
    const auto found = tensors_.find(full_name);
    if (found == tensors_.end()) {
      return nullptr;
    }
    const StoredTensor* const tensor = found->second;
    tensors_.erase(found);
    return tensor;
  }
  [[nodiscard]] std::vector<std::string> rest() const {
    std::vector<std::string> names;
    for (const auto& [full, tensor] : tensors_) {
      names.push_back(tensor->name);
    }
    return names;
  }

 private:
  [[nodiscard]] std::string full_name(const std::string& name) const {
    return bare_ && name != kHead ? std::string(prefix_) + name : name;
  }

  std::string_view prefix_;
  bool bare_ = false;
  std::map<std::string, const StoredTensor*> tensors_;
};

/// What is wrong with a folder; all of it is said at once.
struct Complaints {
  std::vector<std::string> missing;
  std::vector<std::string> shapes;
  std::vector<std::string> unknown;

  void raise(std::string_view where) const {
    std::vector<std::string> sentences;
    if (!missing.empty()) {
      sentences.push_back(fmt::format("missing: {}", fmt::join(missing, ", ")));
    }
    if (!shapes.empty()) {
      sentences.push_back(fmt::format("of another shape: {}", fmt::join(shapes, ", ")));
    }
    if (!unknown.empty()) {
      sentences.push_back(fmt::format("not part of this model: {}", fmt::join(unknown, ", ")));
    }
    if (!sentences.empty()) {
      throw DataError(
          fmt::format("{}: the weights do not fit config.json; {}; use a folder whose weights and "
                      "config.json belong together",
                      where, fmt::join(sentences, "; ")));
    }
  }
};

void check_shape(const StoredTensor& tensor, const Shape& wanted, Complaints& complaints) {
  if (tensor.shape != wanted) {
    complaints.shapes.push_back(fmt::format("{} is {} and should be {}", tensor.name,
                                            to_text(tensor.shape), to_text(wanted)));
  }
}

void match_parameters(const ModelConfig& config, Folder& folder, WeightMatch& match,
                      Complaints& complaints) {
  std::map<std::string, const StoredTensor*> taken;  // a fused tensor serves several parameters
  for (ParameterSpec& spec : match.parameters) {
    for (StoredPart& part : spec.stored) {
      const std::string wanted = part.tensor;
      const auto [entry, first] = taken.emplace(wanted, nullptr);
      if (first) {
        entry->second = folder.take(wanted);
        if (entry->second == nullptr) {
          complaints.missing.push_back(wanted);
        } else {
          check_shape(*entry->second, part.tensor_shape, complaints);
        }
      }
      if (entry->second != nullptr) {
        part.tensor = entry->second->name;
      }
    }
  }
  if (!config.tied) {
    return;
  }
  if (const StoredTensor* head = folder.take(std::string(kHead)); head != nullptr) {
    const ParameterSpec& embedding = match.parameters.front();
    check_shape(*head, embedding.stored.front().tensor_shape, complaints);
    match.tied_copies.push_back({head->name, embedding.name});
  }
}

}  // namespace

std::int64_t stored_elements(const StoredPart& part) {
  std::int64_t count = 1;
  for (const Range& range : part.box) {
    count *= range.size();
  }
  return count;
}

std::vector<StoredTensor> stored_tensors(const ModelConfig& config) {
  std::vector<StoredTensor> tensors;
  std::set<std::string> names;
  for (const ParameterSpec& spec : parameter_specs(config)) {
    for (const StoredPart& part : spec.stored) {
      if (names.insert(part.tensor).second) {
        tensors.push_back({part.tensor, part.tensor_shape});
      }
    }
  }
  return tensors;
}

WeightMatch match_weights(const ModelConfig& config, const std::vector<StoredTensor>& found,
                          std::string_view where) {
  WeightMatch match;
  match.parameters = parameter_specs(config);
  Folder folder(config, found);
  Complaints complaints;
  match_parameters(config, folder, match, complaints);
  for (const std::string& name : folder.rest()) {
    (is_leftover(config.family, name) ? match.ignored : complaints.unknown).push_back(name);
  }
  complaints.raise(where);
  return match;
}

void for_each_run(const std::vector<StoredPart>& stored, Range range,
                  const std::function<void(const StoredRun&)>& run) {
  std::int64_t parameter = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const StoredPart& part = stored[i];
    const std::int64_t part_end = parameter + stored_elements(part);
    if (part_end <= range.begin || range.end <= parameter) {
      parameter = part_end;
      continue;
    }
    for_each_row(part.tensor_shape, part.box, [&](Range row) {
      const std::int64_t begin = std::max(range.begin, parameter);
      const std::int64_t end = std::min(range.end, parameter + row.size());
      if (begin < end) {
        run({i, row.begin + begin - parameter, begin, end - begin});
      }
      parameter += row.size();
    });
  }
  SW_CHECK(range.begin >= 0 && range.end <= parameter, "{}: elements {} to {} of {}",
           stored.front().tensor, range.begin, range.end, parameter);
}

}  // namespace sw
