#include "model/parameters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/error.hpp"

namespace sw {
namespace {

const ParameterSpec& find(const std::vector<ParameterSpec>& specs, const std::string& name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const ParameterSpec& spec) { return spec.name == name; });
  SW_CHECK(found != specs.end(), "no {}", name);
  return *found;
}

std::vector<float> whole(const ParameterSpec& spec, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(elements(spec.shape)));
  initialize(spec, seed, Range{0, elements(spec.shape)}, values);
  return values;
}

TEST(Initialize, APieceHasTheBitsOfTheWhole) {
  const auto specs = parameter_specs(preset("llama-tiny"));
  const ParameterSpec& spec = find(specs, "model.layers.1.self_attn.q_proj.weight");
  const std::vector<float> all = whole(spec, 5);
  std::vector<float> piece(102);
  initialize(spec, 5, Range{1001, 1103}, piece);
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), all.begin() + 1001));

  // Heads 1 and 2 of 4, columns 3 to 10 of 64: what a rank of an uneven layout may hold.
  const std::vector<Range> box = {{1, 3}, {0, 16}, {3, 10}};
  std::vector<float> boxed(2 * 16 * 7);
  // In parts that begin and end within rows.
  for (const Range part : {Range{0, 100}, Range{100, 101}, Range{101, 224}}) {
    initialize(spec, 5, box, part,
               std::span(boxed).subspan(static_cast<std::size_t>(part.begin),
                                        static_cast<std::size_t>(part.size())));
  }
  std::size_t at = 0;
  for (std::size_t h = 1; h < 3; ++h) {
    for (std::size_t k = 0; k < 16; ++k) {
      for (std::size_t d = 3; d < 10; ++d) {
        ASSERT_EQ(boxed[at++], all[(h * 16 + k) * 64 + d]);
      }
    }
  }
}

TEST(Initialize, ParametersAndSeedsDrawDifferentNumbers) {
  const auto specs = parameter_specs(preset("llama-tiny"));
  const ParameterSpec& first = find(specs, "model.layers.0.mlp.gate_proj.weight");
  const ParameterSpec& second = find(specs, "model.layers.1.mlp.gate_proj.weight");
  EXPECT_EQ(whole(first, 1), whole(first, 1));
  EXPECT_NE(whole(first, 1), whole(first, 2));
  EXPECT_NE(whole(first, 1), whole(second, 1));
}

/// A sample's deviation lies within 6 standard errors, s / sqrt(2 n), of the true one.
void expect_deviation(const ParameterSpec& spec, double deviation) {
  const std::vector<float> values = whole(spec, 3);
  double squares = 0;
  double sum = 0;
  for (const float value : values) {
    squares += static_cast<double>(value) * value;
    sum += value;
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(std::sqrt(squares / n), deviation, 6 * deviation / std::sqrt(2 * n)) << spec.name;
  EXPECT_NEAR(sum / n, 0, 6 * deviation / std::sqrt(n)) << spec.name;
}

TEST(Initialize, DrawsWhatTheFamilyPrescribes) {
  const auto specs = parameter_specs(preset("gpt2-small-384"));
  expect_deviation(find(specs, "transformer.h.3.attn.c_attn.weight.k"), 0.02);
  expect_deviation(find(specs, "transformer.h.3.attn.c_proj.weight"), 0.02 / std::sqrt(12.0));
  expect_deviation(find(specs, "transformer.h.3.mlp.c_proj.weight"), 0.02 / std::sqrt(12.0));
  EXPECT_EQ(whole(find(specs, "transformer.ln_f.weight"), 1), std::vector<float>(384, 1.0F));
  EXPECT_EQ(whole(find(specs, "transformer.ln_f.bias"), 1), std::vector<float>(384, 0.0F));
  EXPECT_EQ(whole(find(specs, "transformer.h.0.mlp.c_fc.bias"), 1), std::vector<float>(1536, 0.0F));
}

TEST(ParameterSpecs, DecayIsForMatricesAndEmbeddings) {
  for (const char* const name : {"llama-tiny", "mixtral-tiny", "gpt2"}) {
    for (const ParameterSpec& spec : parameter_specs(preset(name))) {
      EXPECT_EQ(spec.decay, spec.stored.front().tensor_shape.size() > 1) << spec.name;
    }
  }
}

TEST(ParameterSpecs, NamesAreUniqueAndTheStoredPartsTileTheTensors) {
  for (const std::string& name : preset_names()) {
    std::set<std::string> names;
    for (const ParameterSpec& spec : parameter_specs(preset(name))) {
      EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
      EXPECT_EQ(spec.letters.size(), spec.shape.size()) << spec.name;
      std::int64_t in_parts = 0;
      for (const StoredPart& part : spec.stored) {
        std::int64_t in_box = 1;
        for (const Range& range : part.box) {
          in_box *= range.size();
        }
        in_parts += in_box;
      }
      EXPECT_EQ(in_parts, elements(spec.shape)) << spec.name;
    }
  }
}

TEST(ForEachRow, MakesRunsAsLongAsMemoryAllows) {
  std::vector<Range> rows;
  const auto collect = [&](Range row) { rows.push_back(row); };
  for_each_row({4, 3, 5}, {{1, 3}, {0, 3}, {0, 5}}, collect);
  EXPECT_EQ(rows, (std::vector<Range>{{15, 45}}));
  rows.clear();
  for_each_row({2, 3, 5}, {{0, 2}, {1, 3}, {0, 5}}, collect);
  EXPECT_EQ(rows, (std::vector<Range>{{5, 15}, {20, 30}}));
  rows.clear();
  for_each_row({2, 2, 5}, {{0, 2}, {0, 2}, {1, 4}}, collect);
  EXPECT_EQ(rows, (std::vector<Range>{{1, 4}, {6, 9}, {11, 14}, {16, 19}}));
  rows.clear();
  for_each_row({2, 2}, {{0, 2}, {1, 1}}, collect);
  for_each_row({2, 2}, {{1, 1}, {0, 2}}, collect);
  EXPECT_TRUE(rows.empty());
  for_each_row({}, {}, collect);
  EXPECT_EQ(rows, (std::vector<Range>{{0, 1}}));
}

}  // namespace
}  // namespace sw
