#include "base/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"

namespace sw {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text, int max_depth = 64) {
  try {
    const Json parsed = parse_json(text, "file.json", max_depth);
    return "accepted: " + parsed.dump();
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST(Json, KeepsValuesAndTheOrderOfKeys) {
  const std::string text = R"({"b":[1,-2,2.5,"é\n",true,null],"a":{"c":{}}})";
  EXPECT_EQ(parse_json(text, "test").dump(), text);
}

TEST(Json, KeepsIntegersToTheLastBit) {
  const Json parsed = parse_json("[18446744073709551615, -9223372036854775808]", "test");
  EXPECT_EQ(parsed[0].get<std::uint64_t>(), ~std::uint64_t{0});
  EXPECT_EQ(parsed[1].get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
}

TEST(Json, NamesTheFileAndTheByteOfASyntaxError) {
  EXPECT_THAT(error_of(R"({"a": 1,})"), HasSubstr("file.json: byte 9: not valid JSON"));
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{} {}"), HasSubstr("byte 4"));
  EXPECT_THAT(error_of("[NaN]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(std::string_view("{}\0x", 4)), HasSubstr("byte 3: not valid JSON"));
  EXPECT_THAT(error_of("[1e999]"), HasSubstr("not valid JSON"));
}

TEST(Json, RefusesAKeyThatStandsTwiceInOneObjectAndOnlyThere) {
  EXPECT_THAT(error_of(R"({"a":1,"b":2,"a":3})"),
              HasSubstr("file.json: byte 16: the key 'a' stands twice"));
  EXPECT_THAT(error_of(R"({"a":1,"\u0061":2})"), HasSubstr("the key 'a' stands twice"));
  EXPECT_EQ(error_of(R"({"a":{"a":1},"b":{"a":1}})"), R"(accepted: {"a":{"a":1},"b":{"a":1}})");
}

TEST(Json, RefusesInvalidUtf8) {
  EXPECT_THAT(error_of("\"\xff\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("\"\xc0\xaf\""), HasSubstr("not valid JSON"));      // overlong
  EXPECT_THAT(error_of("\"\xed\xa0\x80\""), HasSubstr("not valid JSON"));  // surrogate
  EXPECT_THAT(error_of(R"("\ud800")"), HasSubstr("not valid JSON"));
}

TEST(Json, NestingHasACap) {
  const std::string two_deep = "[[]]";
  EXPECT_EQ(error_of(two_deep, 2), "accepted: [[]]");
  EXPECT_THAT(error_of(two_deep, 1), HasSubstr("byte 2: nested deeper than 1 levels"));
  EXPECT_THAT(error_of(std::string(1'000'000, '[')), HasSubstr("nested deeper than 64 levels"));
}

TEST(Json, ReadsHundredsOfThousandsOfKeysOfOneObjectInLinearTime) {
  // Quadratic insertion would take minutes; the deadline of the test program is the check.
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  }
  EXPECT_EQ(parse_json(text + "}", "test").size(), 300'000U);
}

}  // namespace
}  // namespace sw
