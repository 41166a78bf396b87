#include "model/rope_config.hpp"

#include <optional>
#include <string>

#include "base/error.hpp"

namespace sw {
namespace {

/// The kind under either of its two names.
std::string kind_of(ConfigReader& rope, bool others) {
  const std::string kind = rope.text("rope_type", rope.text("type", ""));
  if (rope.has("type") && rope.text("type", "") != kind) {
    rope.refuse("type", fmt::format("contradicts rope_type = \"{}\"; keep one", kind));
  }
  if (kind.empty() && others) {
    throw ConfigError(fmt::format(
        "{}: there are factors but no rope_type that says how they scale; add rope_type",
        rope.where()));
  }
  return kind.empty() ? "default" : kind;
}

double required(ConfigReader& rope, std::string_view key) {
  if (!rope.has(key)) {
    throw ConfigError(fmt::format("{}: {} is missing", rope.where(), key));
  }
  return rope.positive(key, 0);
}

kernels::RopeParameters read_flat(const Json& json, const std::string& where, double theta,
                                  std::int64_t original_length) {
  ConfigReader rope(json, where);
  kernels::RopeParameters parameters;
  parameters.theta = rope.positive("rope_theta", theta);
  rope.only("partial_rotary_factor", 1);
  const bool others = json.size() > (json.contains("rope_theta") ? 1U : 0U);
  const std::string kind = kind_of(rope, others);
  if (kind == "linear") {
    parameters.scaling = kind;
    parameters.factor = required(rope, "factor");
    rope.ignore({"original_max_position_embeddings"});
  } else if (kind == "llama3") {
    parameters.scaling = kind;
    parameters.factor = required(rope, "factor");
    parameters.low_frequency_factor = required(rope, "low_freq_factor");
    parameters.high_frequency_factor = required(rope, "high_freq_factor");
    parameters.original_length =
        static_cast<double>(rope.integer("original_max_position_embeddings", original_length));
    if (parameters.high_frequency_factor <= parameters.low_frequency_factor) {
      rope.refuse("high_freq_factor", fmt::format("must be above low_freq_factor = {}",
                                                  parameters.low_frequency_factor));
    }
  } else if (kind != "default") {
    rope.refuse(rope.has("rope_type") ? "rope_type" : "type",
                "is not in this version; those that are: default, linear, llama3");
  }
  rope.finish();
  return parameters;
}

/// `rope_parameters` may hold one set per layer type; the models here have one type of layer, so
/// the sets must agree.
kernels::RopeParameters read_object(ConfigReader& reader, std::string_view key, double theta,
                                    std::int64_t original_length) {
  const Json& json = reader.value(key);
  if (!json.is_object()) {
    reader.refuse(key, "must be an object");
  }
  const std::string where = fmt::format("{}: {}", reader.where(), key);
  std::optional<kernels::RopeParameters> nested;
  for (const char* const type : {"full_attention", "sliding_attention"}) {
    const auto found = json.find(type);
    if (found == json.end() || found->is_null()) {
      continue;
    }
    const kernels::RopeParameters here =
        read_flat(*found, fmt::format("{}.{}", where, type), theta, original_length);
    if ((nested && *nested != here) || json.size() > 2) {
      reader.refuse(key, "differs from layer type to layer type, which is not in this version");
    }
    nested = here;
  }
  return nested ? *nested : read_flat(json, where, theta, original_length);
}

}  // namespace

kernels::RopeParameters read_rope(ConfigReader& reader, std::int64_t max_positions,
                                  double default_theta) {
  const double theta = reader.positive("rope_theta", default_theta);
  const std::int64_t original = reader.integer("original_max_position_embeddings", max_positions);
  std::optional<kernels::RopeParameters> result;
  for (const char* const key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key) || reader.value(key).empty()) {
      continue;
    }
    const kernels::RopeParameters here = read_object(reader, key, theta, original);
    if (result && *result != here) {
      reader.refuse(key, fmt::format("contradicts rope_scaling = {}; keep one",
                                     shown(reader.value("rope_scaling"))));
    }
    if (reader.has("rope_theta") && here.theta != theta) {
      reader.refuse("rope_theta",
                    fmt::format("contradicts {} = {}; keep one", key, shown(reader.value(key))));
    }
    result = here;
  }
  if (result) {
    return *result;
  }
  kernels::RopeParameters plain;
  plain.theta = theta;
  return plain;
}

void write_rope(const kernels::RopeParameters& rope, Json& json) {
  json["rope_theta"] = rope.theta;
  Json scaling;  // null: none
  if (!rope.scaling.empty()) {
    scaling["rope_type"] = rope.scaling;
    scaling["factor"] = rope.factor;
  }
  if (rope.scaling == "llama3") {
    scaling["low_freq_factor"] = rope.low_frequency_factor;
    scaling["high_freq_factor"] = rope.high_frequency_factor;
    scaling["original_max_position_embeddings"] = static_cast<std::int64_t>(rope.original_length);
  }
  json["rope_scaling"] = scaling;
}

}  // namespace sw
