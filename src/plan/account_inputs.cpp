#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "plan/account_rules.hpp"

namespace sw::accounts {
namespace {

struct Unit {
  std::string_view name;
  std::string_view kind;
  double factor;
};

// GB is 1e9 bytes and GiB is 2^30.
constexpr Unit kUnits[] = {
    {"B", "bytes", 1},
    {"B/param", "bytes", 1},
    {"kB", "bytes", 1e3},
    {"MB", "bytes", 1e6},
    {"GB", "bytes", 1e9},
    {"TB", "bytes", 1e12},
    {"KiB", "bytes", 0x1p10},
    {"MiB", "bytes", 0x1p20},
    {"GiB", "bytes", 0x1p30},
    {"TiB", "bytes", 0x1p40},
    {"s", "time", 1},
    {"ms", "time", 1e-3},
    {"us", "time", 1e-6},
    {"ns", "time", 1e-9},
    {"B/s", "bandwidth", 1},
    {"kB/s", "bandwidth", 1e3},
    {"MB/s", "bandwidth", 1e6},
    {"GB/s", "bandwidth", 1e9},
    {"TB/s", "bandwidth", 1e12},
    {"KiB/s", "bandwidth", 0x1p10},
    {"MiB/s", "bandwidth", 0x1p20},
    {"GiB/s", "bandwidth", 0x1p30},
};

const Unit* find_unit(std::string_view name) {
  for (const Unit& unit : kUnits) {
    if (unit.name == name) {
      return &unit;
    }
  }
  return nullptr;
}

/// 1000 ms are 1 s: divides by whole factors where it can, so that no digit is invented.
double in_unit(double value, double factor) {
  return factor < 1 ? value * std::round(1 / factor) : value / factor;
}

bool is_true_number(const Json& value) { return value.is_number(); }

}  // namespace

double unit_factor(std::string_view unit) {
  const Unit* found = find_unit(unit);
  return found == nullptr ? 0 : found->factor;
}

Json plain(double value) {
  if (std::isfinite(value) && value == std::floor(value) && std::abs(value) < 0x1p53) {
    return static_cast<std::int64_t>(value);
  }
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Inputs::Inputs(std::string account, const Json& inputs)
    : account_(std::move(account)), inputs_(inputs) {}

bool Inputs::has(std::string_view name) const { return inputs_.contains(std::string(name)); }

void Inputs::reject(const std::string& reason) const {
  throw ConfigError(fmt::format("account {}: {}", account_, reason));
}

const Json& Inputs::raw(std::string_view name) const {
  const Json& input = inputs_.at(std::string(name));
  return input.is_object() ? input.at("value") : input;
}

std::int64_t Inputs::count(std::string_view name, std::int64_t minimum) const {
  const Json& value = raw(name);
  if (!value.is_number_integer()) {
    reject(fmt::format("{} = {} is not a whole number", name, value.dump()));
  }
  if (value.get<std::int64_t>() < minimum) {
    reject(fmt::format("{} = {} is less than {}", name, value.dump(), minimum));
  }
  return value.get<std::int64_t>();
}

std::int64_t Inputs::count_or(std::string_view name, std::int64_t otherwise) const {
  return has(name) ? count(name) : otherwise;
}

double Inputs::scaled(std::string_view name, std::string_view kind) const {
  const Json& value = raw(name);
  if (!is_true_number(value) || value.get<double>() < 0) {
    reject(fmt::format("{} = {} is not a number of at least 0", name, value.dump()));
  }
  const std::string text = unit({name}, "");
  const Unit* found = find_unit(text);
  if (found != nullptr && found->kind != kind) {
    reject(fmt::format("{} is in {}, but {} is asked", name, text, kind));
  }
  if (found == nullptr) {
    return value.get<double>();
  }
  return found->factor < 1 ? value.get<double>() / std::round(1 / found->factor)
                           : value.get<double>() * found->factor;
}

double Inputs::number(std::string_view name) const { return scaled(name, "a plain number"); }
double Inputs::bytes(std::string_view name) const { return scaled(name, "bytes"); }
double Inputs::seconds(std::string_view name) const { return scaled(name, "time"); }

double Inputs::bytes_per_second(std::string_view name) const {
  const double value = scaled(name, "bandwidth");
  if (value <= 0) {
    reject(fmt::format("{} must be above 0", name));
  }
  return value;
}

double Inputs::percent(std::string_view name) const {
  const Json& input = inputs_.at(std::string(name));
  const bool said = input.is_object() && input.value("unit", "") == "%";
  return scaled(name, "a share") * (said ? 1 : 100);
}

std::int64_t Inputs::whole_bytes(std::string_view name) const {
  const double value = bytes(name);
  if (value != std::floor(value) || value >= 0x1p62) {
    reject(fmt::format("{} = {} is not a whole number of bytes", name, raw(name).dump()));
  }
  return static_cast<std::int64_t>(value);
}

bool Inputs::flag(std::string_view name, bool otherwise) const {
  if (!has(name)) {
    return otherwise;
  }
  if (!raw(name).is_boolean()) {
    reject(fmt::format("{} = {} is neither true nor false", name, raw(name).dump()));
  }
  return raw(name).get<bool>();
}

std::string Inputs::word(std::string_view name, std::string_view otherwise) const {
  if (!has(name)) {
    return std::string(otherwise);
  }
  if (!raw(name).is_string()) {
    reject(fmt::format("{} = {} is not a word", name, raw(name).dump()));
  }
  return raw(name).get<std::string>();
}

std::vector<double> Inputs::numbers(std::string_view name) const {
  const Json& list = raw(name);
  if (!list.is_array() || list.empty() ||
      !std::all_of(list.begin(), list.end(), [](const Json& v) { return v.is_number(); })) {
    reject(fmt::format("{} = {} is not a list of numbers, as in {}=[4.0,6.0]", name, list.dump(),
                       name));
  }
  return list.get<std::vector<double>>();
}

std::string Inputs::unit(std::initializer_list<std::string_view> names,
                         std::string_view otherwise) const {
  for (const std::string_view name : names) {
    if (has(name)) {
      const Json& input = inputs_.at(std::string(name));
      if (input.is_object() && input.contains("unit")) {
        auto text = input.at("unit").get<std::string>();
        if (find_unit(text) != nullptr) {
          return text;
        }
      }
    }
  }
  return std::string(otherwise);
}

void Outputs::set(std::string_view name, const Json& value, std::string_view unit) {
  SW_CHECK(!result_.outputs.contains(std::string(name)), "two rules give {}", name);
  result_.outputs[std::string(name)] = {{"value", value}, {"unit", unit}};
}

void Outputs::quantity(std::string_view name, double value, std::string_view unit) {
  set(name, plain(in_unit(value, unit_factor(unit))), unit);
}

void Outputs::wrong(std::string_view name, const Json& value, std::string_view unit,
                    std::string why) {
  note(fmt::format("a trap: {} = {} {} would be wrong: {}", name, value.dump(), unit, why));
  result_.wrong_values[std::string(name)].push_back(
      {{"value", value}, {"unit", unit}, {"why", std::move(why)}});
}

void Outputs::note(std::string text) { result_.notes.push_back(std::move(text)); }

}  // namespace sw::accounts
