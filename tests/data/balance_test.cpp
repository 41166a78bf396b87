#include "data/balance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/data/scratch.hpp"

namespace sw {
namespace {

std::vector<double> sums(const std::vector<double>& work, const std::vector<std::size_t>& order,
                         std::size_t groups) {
  std::vector<double> result(groups, 0.0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    result[i / (order.size() / groups)] += work[order[i]];
  }
  return result;
}

TEST(BalancedGroups, HaveAsManyRowsAndAboutAsMuchWork) {
  // 9, then 5 + 4, then 3 to the first of equals, 1 to the other, and 1 where there is room; as
  // they come it would be 18 and 5.
  const std::vector<double> work = {9, 5, 4, 1, 3, 1};
  const std::vector<std::size_t> order = balanced_groups(work, 2);
  std::vector<double> totals = sums(work, order, 2);
  std::sort(totals.begin(), totals.end());
  EXPECT_EQ(totals, (std::vector<double>{10, 13}));
}

TEST(BalancedGroups, ArePermutationsWhoseGroupsDifferByNoMoreThanTheLargestRow) {
  for (const std::size_t groups : {1U, 2U, 3U, 8U}) {
    std::vector<double> work;
    for (std::size_t i = 0; i < 24; ++i) {
      work.push_back(static_cast<double>((i * 7919) % 101));
    }
    std::vector<std::size_t> order = balanced_groups(work, groups);
    const std::vector<double> totals = sums(work, order, groups);
    const auto [least, most] = std::minmax_element(totals.begin(), totals.end());
    EXPECT_LE(*most - *least, *std::max_element(work.begin(), work.end())) << groups;
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> all(work.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    EXPECT_EQ(order, all);
  }
}

TEST(BalancedGroups, OfEqualRowsAreDealtInTurn) {
  EXPECT_EQ(balanced_groups(std::vector<double>(4, 1.0), 2),
            (std::vector<std::size_t>{0, 2, 1, 3}));
}

/// One long document is half the data, the other half are short ones: rows of the first have most
/// attention to do, and all have as many tokens.
TEST(Balance, GivesEachGroupAsMuchAttentionAndKeepsTheSamples) {
  const Scratch scratch;
  std::string lines = R"({"text": ")" + std::string(127, 'a') + "\"}\n";
  for (int i = 0; i < 32; ++i) {
    lines += "{\"text\": \"abc\"}\n";
  }
  scratch.write("a.jsonl", lines);
  DataOptions options;
  options.sequence_length = 16;
  CorpusSource source;
  source.patterns = {"a.jsonl"};
  source.base = scratch.folder();
  source.vocabulary = 259;
  const Corpus corpus = Corpus::load(options, source);
  Window window;
  for (std::int64_t sample = 0; sample < 16; ++sample) {
    window.samples.push_back(sample < corpus.samples() ? sample : -1);
  }
  const Window before = window;
  balance(window, corpus, DataOptions::Balance::None, 2);
  EXPECT_EQ(window.samples, before.samples);
  balance(window, corpus, DataOptions::Balance::Attention, 2);
  const auto of_the_long_one = [](std::int64_t sample) { return sample >= 0 && sample < 8; };
  const auto middle = window.samples.begin() + 8;
  EXPECT_EQ(std::count_if(window.samples.begin(), middle, of_the_long_one), 4);
  EXPECT_EQ(std::count_if(middle, window.samples.end(), of_the_long_one), 4);
  std::vector<std::int64_t> same = window.samples;
  std::vector<std::int64_t> all = before.samples;
  std::sort(same.begin(), same.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(same, all);
}

}  // namespace
}  // namespace sw
