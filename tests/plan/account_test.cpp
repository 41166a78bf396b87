#include "plan/account.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "base/error.hpp"
#include "base/files.hpp"
#include "tests/plan/refusal.hpp"

namespace sw {
namespace {

using testing::HasSubstr;

/// The worked numbers of three texts on distributed training, with a verdict on each.
std::vector<Json> seed_cases() {
  const std::string path = SW_SOURCE_DIR "/tests/fixtures/seed_accounts.json";
  std::vector<Json> cases;
  const Json document = parse_json(read_whole_file(path, 1 << 20), path);
  for (const Json& c : document.at("cases")) {
    const auto topic = c.at("topic").get<std::string>();
    for (const char* mine : {"ring", "zero_memory", "zero_comm", "batch", "loss", "pipeline",
                             "offload", "tensor_parallel", "stale", "context_parallel"}) {
      if (topic == mine) {
        cases.push_back(c);
      }
    }
  }
  return cases;
}

std::string account_of(const Json& c) {
  const std::map<std::string, std::string> accounts = {
      {"ring", "ring"},         {"zero_memory", "memory"},
      {"zero_comm", "zero"},    {"batch", "batch"},
      {"pipeline", "pipeline"}, {"loss", "loss"},
      {"offload", "offload"},   {"tensor_parallel", "tensor"},
      {"stale", "staleness"},   {"context_parallel", "context"}};
  if (c.at("id").get<std::string>().find(".ep.") != std::string::npos) {
    return "expert";
  }
  return accounts.at(c.at("topic").get<std::string>());
}

/// Some cases say the stage, or how a product was cut, in their name only.
Json inputs_of(const Json& c) {
  Json inputs = c.at("inputs");
  const auto id = c.at("id").get<std::string>();
  if (const auto at = id.rfind(".stage"); at != std::string::npos && !inputs.contains("stage")) {
    inputs["stage"] = id[at + 6] - '0';
  }
  if (inputs.contains("parts")) {
    inputs["split"] = id.find(".row_") != std::string::npos ? "row" : "column";
  }
  return inputs;
}

class SeedAccount : public testing::TestWithParam<Json> {
 protected:
  const Json& c() const { return GetParam(); }
  double tolerance(double expected) const {
    const Json& t = c().at("tolerance");
    return t.value("abs", 0.0) + t.value("rel", 0.0) * std::abs(expected);
  }

  void compare(const std::string& name, const Json& actual, const Json& expected) const {
    if (expected.is_number()) {
      ASSERT_TRUE(actual.is_number()) << name << ": " << actual;
      EXPECT_NEAR(actual.get<double>(), expected.get<double>(), tolerance(expected.get<double>()))
          << name;
    } else if (expected.is_array()) {
      ASSERT_TRUE(actual.is_array()) << name << ": " << actual;
      ASSERT_EQ(actual.size(), expected.size()) << name;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        compare(name, actual[i], expected[i]);
      }
    } else {
      EXPECT_EQ(actual, expected) << name;
    }
  }

  /// One entry of "expected" against the outputs; units must be the same.
  void compare_output(const Json& outputs, const std::string& name, const Json& expected) const {
    if (name == "printed_by_seed") {
      return compare_printed(outputs, expected);
    }
    if (expected.is_object() && !expected.contains("value")) {  // parts of a sum
      for (const auto& [part, value] : expected.items()) {
        compare_output(outputs, part, value);
        compare(part, outputs.at(name).at("value").at(part), value.at("value"));
      }
      return;
    }
    ASSERT_TRUE(outputs.contains(name)) << name << " is not among " << outputs;
    const bool with_unit = expected.is_object();
    compare(name, outputs.at(name).at("value"), with_unit ? expected.at("value") : expected);
    if (with_unit) {
      EXPECT_EQ(outputs.at(name).at("unit"), expected.at("unit")) << name;
    }
  }

  /// What the text printed, rounded: {"ring_ms": 175.1, …} within the rounding.
  void compare_printed(const Json& outputs, const Json& printed) const {
    for (const auto& [name, value] : printed.items()) {
      const std::string output = name.substr(0, name.find('_'));
      EXPECT_NEAR(outputs.at(output).at("value").get<double>(), value.get<double>(),
                  c().at("tolerance").at("vs_printed").at(name).get<double>())
          << name;
    }
  }

  void expect_accepted() const {
    const AccountResult result = account(account_of(c()), inputs_of(c()));
    EXPECT_FALSE(result.formulas.empty());
    for (const auto& [name, expected] : c().at("expected").items()) {
      compare_output(result.outputs, name, expected);
    }
  }

  void expect_rejected(const Json& inputs) const {
    try {
      (void)account(account_of(c()), inputs);
      ADD_FAILURE() << "accepted " << inputs;
    } catch (const ConfigError& error) {
      const Json& expected = c().at("expected");
      for (const Json& word : expected.value("reason_must_mention", Json::array())) {
        EXPECT_THAT(error.what(), HasSubstr(word.get<std::string>()));
      }
      for (const Json& fix : expected.value("fixes", Json::array())) {
        for (const auto& [name, value] : fix.items()) {
          EXPECT_THAT(error.what(), HasSubstr(name + " = " + value.dump()));
        }
      }
    }
  }

  void expect_trap() const {
    const AccountResult result = account(account_of(c()), inputs_of(c()));
    for (const auto& [name, expected] : c().at("expected").items()) {
      ASSERT_TRUE(result.wrong_values.contains(name)) << name;
      const Json& wrong = result.wrong_values.at(name).at(0);
      compare(name, wrong.at("value"), expected.at("value"));
      EXPECT_EQ(wrong.at("unit"), expected.at("unit"));
      EXPECT_NE(result.outputs.at(name).at("value"), expected.at("value"))
          << "the trap is the result";
    }
  }

  /// Words as "equals"; what "…_wrong" names is Y by a wrong method.
  void expect_stated() const {
    const AccountResult result = account(account_of(c()), inputs_of(c()));
    for (const auto& [name, expected] : c().at("expected").items()) {
      if (!name.ends_with("_wrong")) {
        compare_output(result.outputs, name, expected);
        continue;
      }
      const Json& wrong = result.wrong_values.at("Y").at(0);
      compare(name, wrong.at("value"), expected.at("value"));
      EXPECT_NE(result.outputs.at("Y").at("value"), expected.at("value"));
    }
  }

  void expect_contained() const {
    const AccountResult result = account(account_of(c()), inputs_of(c()));
    for (const auto& [name, expected] : c().at("expected").items()) {
      const auto list = result.outputs.at(name).at("value").get<std::vector<std::string>>();
      for (const Json& element : expected) {
        EXPECT_THAT(list, testing::Contains(element.get<std::string>()));
      }
    }
  }
};

TEST_P(SeedAccount, Holds) {
  const auto kind = c().at("kind").get<std::string>();
  if (kind == "equals" || kind == "accept") {
    expect_accepted();
  } else if (kind == "wrong_value") {
    expect_trap();
  } else if (kind == "set_contains") {
    expect_contained();
  } else if (kind == "statement") {
    expect_stated();
  } else if (kind == "reject" && c().at("inputs").contains("cases")) {
    for (const Json& inputs : c().at("inputs").at("cases")) {
      expect_rejected(inputs);
    }
  } else if (kind == "reject") {
    expect_rejected(inputs_of(c()));
  } else {
    FAIL() << "kind " << kind << " is not handled";
  }
}

std::string test_name(const testing::TestParamInfo<Json>& info) {
  std::string name = info.param.at("id").get<std::string>();
  for (char& letter : name) {
    letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, SeedAccount, testing::ValuesIn(seed_cases()), test_name);

TEST(Account, CoversEveryCaseOfItsTopics) {
  EXPECT_EQ(seed_cases().size(), 33U + 16 + 10 + 8 + 5 + 10 + 2 + 8 + 5 + 3);
}

TEST(Account, ARingOfUnevenChunksIsCountedPerRank) {
  // 10 B on 4 ranks: chunks 3, 3, 2, 2; rank r leaves out chunks r + 1 and r + 2 of twice 10.
  const auto result = account("ring", {{"message", 10}, {"ranks", 4}});
  EXPECT_EQ(result.outputs["sent_per_rank"]["value"], 20 - 2 - 2);
  EXPECT_EQ(result.outputs["smallest_sent_per_rank"]["value"], 20 - 3 - 3);
}

TEST(Account, TheMeanOfMeansOfARankWithoutTokensIsNoNumber) {
  const auto result = account("loss", {{"loss_sums", {0.0, 6.0}}, {"valid_tokens", {0, 6}}});
  EXPECT_TRUE(result.wrong_values["loss"][0]["value"].is_null());
}

TEST(Account, InputsAreReadWithTheirUnits) {
  EXPECT_EQ(account_input("120MB"), (Json{{"value", 120}, {"unit", "MB"}}));
  EXPECT_EQ(account_input("0.5GiB"), (Json{{"value", 0.5}, {"unit", "GiB"}}));
  EXPECT_EQ(account_input("25GB/s"), (Json{{"value", 25}, {"unit", "GB/s"}}));
  EXPECT_EQ(account_input("4"), Json(4));
  EXPECT_EQ(account_input("[4.0, 6.0]"), (Json{4.0, 6.0}));
  EXPECT_EQ(account_input("true"), Json(true));
  EXPECT_EQ(account_input("none"), Json("none"));
}

TEST(Account, ANewUnitOfAnInputChangesNoResult) {
  const auto a = account("ring", {{"message", account_input("1GB")}, {"ranks", 8}});
  const auto b = account("ring", {{"message", 1000000000}, {"ranks", 8}});
  EXPECT_EQ(a.outputs["sent_per_rank"]["value"].get<double>() * 1e9,
            b.outputs["sent_per_rank"]["value"].get<double>());
}

TEST(Account, UnknownNamesAndInputsAreRefused) {
  EXPECT_THAT(refusal("rings", {}), HasSubstr("there is no account rings"));
  EXPECT_THAT(refusal("ring", {{"mesage", 1}, {"ranks", 2}}),
              HasSubstr("nearest known one is message"));
  EXPECT_THAT(refusal("ring", {{"message", 1}}), HasSubstr("inputs are missing"));
  EXPECT_THAT(refusal("ring", {{"message", account_input("3ms")}, {"ranks", 2}}),
              HasSubstr("message is in ms, but bytes is asked"));
  EXPECT_THAT(refusal("ring", {{"message", 1}, {"ranks", 2}, {"stage", 1}}), HasSubstr("stage"));
}

/// (M + P - 1) times 3 units, drawn by hand.
TEST(PipelineAccount, DrawsASchedule) {
  const auto result =
      account("pipeline", {{"stages", 2}, {"microbatches", 2}, {"schedule", "1f1b"}});
  EXPECT_EQ(result.outputs.at("stage_0").at("value"), "F0 F1 .  .  B0 B0 .  B1 B1 ");
  EXPECT_EQ(result.outputs.at("stage_1").at("value"), ".  F0 B0 B0 F1 B1 B1 .  .  ");
  EXPECT_THAT(refusal("pipeline", {{"stages", 2}, {"microbatches", 2}, {"schedule", "2f2b"}}),
              HasSubstr("there is no schedule 2f2b"));
}

}  // namespace
}  // namespace sw
