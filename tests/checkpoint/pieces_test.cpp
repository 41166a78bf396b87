#include "checkpoint/pieces.hpp"

#include <gmock/gmock.h>

#include "tests/checkpoint/layouts.hpp"

namespace sw {
namespace {

using sw::testing::element_indices;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> indices_by_runs(const Shape& whole, const PieceRange& range) {
  std::vector<std::int64_t> indices;
  Runs runs(whole, range);
  while (const auto run = runs.next()) {
    EXPECT_EQ(run->local, std::ssize(indices));
    EXPECT_GT(run->count, 0);
    for (std::int64_t i = 0; i < run->count; ++i) {
      indices.push_back(run->whole + i);
    }
  }
  return indices;
}

PieceRange random_range(const Shape& whole, std::mt19937_64& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  const auto part = [&](std::int64_t size) {
    const std::int64_t begin = below(size + 1);
    return Range{begin, begin + below(size - begin + 1)};
  };
  PieceRange range;
  for (const std::int64_t dim : whole) {
    range.box.push_back(below(3) == 0 ? Range{0, dim} : part(dim));
  }
  range.elements = below(3) == 0 ? Range{0, box_elements(range)} : part(box_elements(range));
  return range;
}

const std::vector<Shape> kShapes{{}, {1}, {9}, {4, 5}, {3, 1, 4}, {2, 3, 2, 3}, {0, 2}, {1, 1}};

TEST(Runs, GoThroughTheElementsInOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    for (const Shape& whole : kShapes) {
      const PieceRange range = random_range(whole, random);
      ASSERT_EQ(misfit(range, whole), std::nullopt);
      EXPECT_EQ(indices_by_runs(whole, range), element_indices(whole, range)) << to_text(whole);
    }
  }
}

TEST(Runs, AreAsLongAsTheRowsThatLieSideBySide) {
  Runs whole({4, 6}, whole_range({4, 6}));
  EXPECT_EQ(whole.next()->count, 24);
  Runs rows({4, 6}, {{{1, 3}, {0, 6}}, {0, 12}});
  EXPECT_EQ(rows.next()->count, 12);
  Runs columns({4, 6}, {{{0, 4}, {2, 5}}, {1, 12}});
  EXPECT_EQ(columns.next()->count, 2);  // the rest of the first row
  EXPECT_EQ(columns.next()->count, 3);
}

TEST(CopyCommon, CopiesWhatBothHoldAndTouchesNothingElse) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    for (const Shape& whole : kShapes) {
      const PieceRange from = random_range(whole, random);
      const PieceRange to = random_range(whole, random);
      const auto from_indices = element_indices(whole, from);
      const auto to_indices = element_indices(whole, to);
      std::vector<std::int64_t> out(to_indices.size(), -1);
      std::vector<std::int64_t> expected(to_indices.size(), -1);
      std::int64_t common = 0;
      for (std::size_t i = 0; i < to_indices.size(); ++i) {
        if (std::ranges::find(from_indices, to_indices[i]) != from_indices.end()) {
          expected[i] = to_indices[i];
          ++common;
        }
      }
      EXPECT_EQ(copy_common(whole, sizeof(std::int64_t), from,
                            std::as_bytes(std::span(from_indices)).data(), to,
                            std::as_writable_bytes(std::span(out)).data()),
                common);
      EXPECT_EQ(out, expected) << to_text(whole);
    }
  }
}

TEST(CoverFault, NamesTheFirstElementThatIsMissingOrThereTwice) {
  const Shape whole{2, 4};
  const PieceRange left{{{0, 2}, {0, 2}}, {0, 4}};
  const PieceRange right{{{0, 2}, {2, 4}}, {0, 4}};
  const PieceRange right_begin{{{0, 2}, {2, 4}}, {0, 3}};
  EXPECT_EQ(cover_fault(whole, std::vector{right, left}), std::nullopt);
  EXPECT_EQ(cover_fault(whole, std::vector{left, right_begin}), "elements 7 to 7 are missing");
  EXPECT_EQ(cover_fault(whole, std::vector{left, right, right_begin}), "element 2 is there twice");
  EXPECT_EQ(cover_fault(whole, std::vector{right}), "elements 0 to 1 are missing");
  EXPECT_EQ(cover_fault(whole, {}), "elements 0 to 7 are missing");
  EXPECT_EQ(cover_fault({}, std::vector{whole_range({})}), std::nullopt);
  EXPECT_EQ(cover_fault({0, 5}, {}), std::nullopt);
}

TEST(Misfit, SaysWhatLiesOutside) {
  EXPECT_THAT(misfit({{{0, 2}}, {0, 2}}, {2, 2}).value(), HasSubstr("1 sides, but the tensor 2"));
  EXPECT_THAT(misfit({{{0, 3}}, {0, 3}}, {2}).value(), HasSubstr("outside a size of 2"));
  EXPECT_THAT(misfit({{{-1, 1}}, {0, 2}}, {2}).value(), HasSubstr("[-1, 1)"));
  EXPECT_THAT(misfit({{{0, 2}}, {1, 3}}, {2}).value(), HasSubstr("outside a box of 2"));
  EXPECT_EQ(misfit({{}, {0, 1}}, {}), std::nullopt);
}

}  // namespace
}  // namespace sw
