#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/account.hpp"

/// What the rules of the accounts are written with.
namespace sw::accounts {

/// The inputs of one account, with units taken care of.
class Inputs {
 public:
  Inputs(std::string account, const Json& inputs);

  [[nodiscard]] bool has(std::string_view name) const;
  /// A whole number of at least `minimum`, written as one: 2.0 and true are refused.
  [[nodiscard]] std::int64_t count(std::string_view name, std::int64_t minimum = 1) const;
  [[nodiscard]] std::int64_t count_or(std::string_view name, std::int64_t otherwise) const;
  [[nodiscard]] double number(std::string_view name) const;   ///< without a physical unit
  [[nodiscard]] double percent(std::string_view name) const;  ///< 0.1, or 10 with the unit %
  [[nodiscard]] double bytes(std::string_view name) const;
  [[nodiscard]] std::int64_t whole_bytes(std::string_view name) const;
  [[nodiscard]] double seconds(std::string_view name) const;
  [[nodiscard]] double bytes_per_second(std::string_view name) const;
  [[nodiscard]] bool flag(std::string_view name, bool otherwise) const;
  [[nodiscard]] std::string word(std::string_view name, std::string_view otherwise) const;
  [[nodiscard]] std::vector<double> numbers(std::string_view name) const;
  [[nodiscard]] const Json& raw(std::string_view name) const;

  /// The unit of the first of `names` that is there and has one, for outputs of that kind.
  [[nodiscard]] std::string unit(std::initializer_list<std::string_view> names,
                                 std::string_view otherwise) const;
  [[noreturn]] void reject(const std::string& reason) const;

 private:
  [[nodiscard]] double scaled(std::string_view name, std::string_view kind) const;

  std::string account_;
  const Json& inputs_;
};

/// Collects what rules find out.
class Outputs {
 public:
  explicit Outputs(AccountResult& result) : result_(result) {}

  void set(std::string_view name, const Json& value, std::string_view unit = "1");
  /// `value` in base units (B, s, B/s), shown in `unit`.
  void quantity(std::string_view name, double value, std::string_view unit);
  void wrong(std::string_view name, const Json& value, std::string_view unit, std::string why);
  void note(std::string text);

 private:
  AccountResult& result_;
};

/// Base units (B, s, B/s or 1) in one `unit`; 0 if it is no unit of bytes, time or bandwidth.
[[nodiscard]] double unit_factor(std::string_view unit);
/// A whole number as a JSON integer, so that no figure reads 32.0.
[[nodiscard]] Json plain(double value);

struct Rule {
  std::string_view formula;
  std::vector<std::string_view> needs;
  std::vector<std::string_view> optional = {};
  std::vector<std::string_view> absent = {};
  void (*apply)(const Inputs&, Outputs&);
};

[[nodiscard]] std::vector<Rule> ring_rules();
[[nodiscard]] std::vector<Rule> scaling_rules();
[[nodiscard]] std::vector<Rule> memory_rules();
[[nodiscard]] std::vector<Rule> zero_rules();
[[nodiscard]] std::vector<Rule> batch_rules();
[[nodiscard]] std::vector<Rule> offload_rules();
[[nodiscard]] std::vector<Rule> loss_rules();
[[nodiscard]] std::vector<Rule> pipeline_rules();
[[nodiscard]] std::vector<Rule> tensor_rules();
[[nodiscard]] std::vector<Rule> staleness_rules();
[[nodiscard]] std::vector<Rule> context_rules();
[[nodiscard]] std::vector<Rule> expert_rules();

}  // namespace sw::accounts
