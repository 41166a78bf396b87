#include "data/documents.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "tests/data/scratch.hpp"

namespace sw {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Found {
  std::vector<std::string> texts;  ///< prompt|text for lines with a prompt
  CorpusCounts counts;
};

Found read(const std::filesystem::path& path, const DataOptions& options) {
  Found found;
  read_documents(path, kind_of(path), options, found.counts, [&](const Document& document) {
    found.texts.push_back(document.prompt.empty()
                              ? std::string(document.text)
                              : fmt::format("{}|{}", document.prompt, document.text));
  });
  return found;
}

Found read_content(const std::string& name, std::string_view content,
                   DataOptions::BadLines bad_lines = DataOptions::BadLines::Stop) {
  const Scratch scratch;
  return read(scratch.write(name, content), {.bad_lines = bad_lines});
}

Found skipping(const std::string& name, std::string_view content) {
  return read_content(name, content, DataOptions::BadLines::Skip);
}

std::string refusal(const std::string& name, std::string_view content) {
  return message_of<ConfigError>([&] { read_content(name, content); });
}

TEST(TextFile, IsOneDocumentByteForByte) {
  const std::string content("one\r\ntwo\0\n\n three", 17);
  EXPECT_THAT(read_content("a.txt", content).texts, ElementsAre(content));
}

TEST(TextFile, LosesAByteOrderMarkAtItsStartOnly) {
  EXPECT_THAT(read_content("a.txt", "\uFEFFa\uFEFFb").texts, ElementsAre("a\uFEFFb"));
}

TEST(TextFile, InvalidUtf8StopsWithFileLineByteAndExcerpt) {
  EXPECT_THAT(refusal("a.txt",
                      "good\nb\xE4"
                      "d one\n"),
              AllOf(HasSubstr("/a.txt: line 2, which starts at byte 5: byte 0xe4 at column 2"),
                    HasSubstr("`b?d one`"), HasSubstr("data.bad_lines = \"skip\"")));
}

TEST(TextFile, InvalidUtf8LinesAreLeftOutWhenAskedAndTheRestStays) {
  const Found found = skipping("a.txt", "one\n\xFF\ntwo\n\xC3(\nlast");
  EXPECT_THAT(found.texts, ElementsAre("one\ntwo\nlast"));
  EXPECT_EQ(found.counts.bad_lines, 2);
}

TEST(TextFile, ThatIsEmptyOrWhiteSpaceIsAnEmptyDocument) {
  for (const char* content : {"", "\uFEFF", "\n", " \t\r\n\v\f"}) {
    const Found found = read_content("a.txt", content);
    EXPECT_THAT(found.texts, IsEmpty());
    EXPECT_EQ(found.counts.empty_documents, 1);
    EXPECT_EQ(found.counts.documents, 0);
  }
}

TEST(Jsonl, ALineIsADocument) {
  const Found found = read_content("a.jsonl",
                                   "{\"text\": \"one\", \"id\": 7}\n"
                                   "{\"id\": null, \"text\": \"t\\u0077o\\n\"}\n");
  EXPECT_THAT(found.texts, ElementsAre("one", "two\n"));
  EXPECT_EQ(found.counts.documents, 2);
  EXPECT_EQ(found.counts.lines, 2);
  EXPECT_EQ(found.counts.files, 1);
}

TEST(Jsonl, AnEscapedNulIsText) {
  EXPECT_THAT(read_content("a.jsonl", R"({"text": "a\u0000b"})").texts,
              ElementsAre(std::string("a\0b", 3)));
}

TEST(Jsonl, PromptAndCompletionAreADocumentInTwoParts) {
  EXPECT_THAT(read_content("a.jsonl", R"({"prompt": "Q", "completion": "A"})").texts,
              ElementsAre("Q|A"));
  EXPECT_THAT(read_content("a.jsonl", R"({"completion": "", "prompt": "Q"})").texts,
              ElementsAre("Q|"));
}

TEST(Jsonl, BlankLinesCrLfByteOrderMarkAndAMissingLastNewlineChangeNothing) {
  const std::string one = R"({"text": "one"})";
  const std::string two = R"({"text": "two"})";
  for (const std::string& content :
       {one + "\n" + two + "\n", one + "\n" + two, one + "\r\n" + two + "\r\n",
        "\uFEFF" + one + "\n" + two, "\uFEFF" + one + "\n\uFEFF" + two,
        "\n\n" + one + "\n \t\r\n\n" + two + "\n\n"}) {
    EXPECT_THAT(read_content("a.jsonl", content).texts, ElementsAre("one", "two"));
  }
  EXPECT_EQ(read_content("a.jsonl", "\n" + one + "\n\r\n").counts.blank_lines, 2);
}

TEST(Jsonl, EmptyDocumentsAreLeftOutAndCountedWhereverTheyStand) {
  const std::string empty = "{\"text\": \"\"}\n";
  const std::string blank = "{\"text\": \" \\n\\t\"}\n";
  const std::string nothing = "{\"prompt\": \"\\n\", \"completion\": \" \"}\n";
  const std::string one = "{\"text\": \"one\"}\n";
  const std::string two = "{\"text\": \"two\"}\n";
  const Found found = read_content("a.jsonl", empty + one + blank + "\n" + nothing + two + empty);
  EXPECT_THAT(found.texts, ElementsAre("one", "two"));
  EXPECT_EQ(found.counts.empty_documents, 4);
  EXPECT_EQ(found.counts.documents + found.counts.empty_documents + found.counts.blank_lines +
                found.counts.bad_lines,
            found.counts.lines);
  EXPECT_EQ(found.counts.lines, 7);
}

/// Case C018: what can stand on a line that is no document, and what the message says of it.
struct Broken {
  std::string line, reason;
};

const std::vector<Broken>& broken_lines() {
  static const std::vector<Broken> kLines = {
      {"{", "not valid JSON"},
      {R"({"text": "trunc)", "not valid JSON"},
      {R"({"text": "a"} {"text": "b"})", "not valid JSON"},
      {std::string("{\"text\": \"a\0b\"}", 15), "not valid JSON"},
      {std::string(3, '\0'), "not valid JSON"},
      {R"({"id": 1})", "the line has no \"text\""},
      {"{}", "the line has no \"text\""},
      {R"({"text": 7})", "\"text\" is number and not a string"},
      {R"({"text": null})", "\"text\" is null and not a string"},
      {R"({"text": ["a"]})", "\"text\" is array and not a string"},
      {R"({"text": "a", "text": "b"})", "the key 'text' stands twice"},
      {R"({"text": "a", "meta": {"k": 1, "k": 1}})", "the key 'k' stands twice"},
      {R"({"text": "a", "prompt": "b"})", "also \"prompt\" or \"completion\""},
      {R"({"prompt": "a"})", "the line has no \"completion\""},
      {R"({"completion": "a"})", "the line has no \"prompt\""},
      {R"({"prompt": "a", "completion": 3})", "\"completion\" is number and not a string"},
      {R"(["text"])", "no object but array"},
      {R"("text")", "no object but string"},
      {"null", "no object but null"},
      {"{\"text\": \"\xFF\"}", "byte 0xff at column 11 is not valid UTF-8"},
      {"{\"text\": \"\xED\xA0\x80\"}", "is not valid UTF-8"},
      {R"({"text": "\ud800"})", "not valid JSON"},
      {"{\"text\": \"a\"}\uFEFF", "not valid JSON"},
      {std::string(200, '[') + std::string(200, ']'), "nested deeper"},
  };
  return kLines;
}

std::string good_line(int number) { return fmt::format("{{\"text\": \"document {}\"}}\n", number); }

TEST(BrokenLines, EachAloneStopsWithFileLineByteReasonAndExcerpt) {
  std::string before;
  for (int i = 1; i < 50; ++i) {
    before += good_line(i);
  }
  for (const Broken& broken : broken_lines()) {
    const std::string content = before + broken.line + "\n" + good_line(51);
    const std::string message = refusal("corpus.jsonl", content);
    EXPECT_THAT(message, HasSubstr(fmt::format("/corpus.jsonl: line 50, which starts at byte {}: ",
                                               before.size())))
        << broken.line;
    EXPECT_THAT(message, HasSubstr(broken.reason)) << broken.line;
    EXPECT_THAT(message, HasSubstr("data.bad_lines = \"skip\""));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    EXPECT_LT(message.size(), 500U) << message;
    if (broken.line.find_first_of(std::string_view("\0\xFF\xED", 3)) == std::string::npos) {
      EXPECT_THAT(message, HasSubstr(fmt::format("`{}", broken.line.substr(0, 20))));
    }
  }
}

TEST(BrokenLines, ATruncatedLastLineIsBadAndNamed) {
  const std::string content = good_line(1) + "{\"text\": \"docum";
  EXPECT_THAT(refusal("a.jsonl", content), AllOf(HasSubstr("line 2, which starts at byte 23"),
                                                 HasSubstr("`{\"text\": \"docum`")));
  EXPECT_THAT(skipping("a.jsonl", content).texts, ElementsAre("document 1"));
}

TEST(BrokenLines, AllTogetherAreSkippedCountedAndShiftNoOtherLine) {
  std::string content = "\uFEFF";
  std::vector<std::string> expected;
  const auto count = static_cast<int>(broken_lines().size());
  for (int i = 0; i < 100; ++i) {
    content += good_line(i);
    expected.push_back(fmt::format("document {}", i));
    if (i % 4 == 3 && i / 4 < count) {
      content += broken_lines()[static_cast<std::size_t>(i / 4)].line + "\r\n";
    }
  }
  const Found found = skipping("a.jsonl", content);
  EXPECT_EQ(found.texts, expected);
  EXPECT_EQ(found.counts.bad_lines, count);
  EXPECT_EQ(found.counts.documents, 100);
  EXPECT_EQ(found.counts.lines, 100 + count);
  ASSERT_EQ(found.counts.first_bad_lines.size(), 5U);
  EXPECT_THAT(found.counts.first_bad_lines[0], HasSubstr("a.jsonl: line 5, "));
  EXPECT_THAT(found.counts.first_bad_lines[4], HasSubstr("a.jsonl: line 25, "));
}

TEST(BrokenLines, MoreThanTheLimitAreRefusedWithBothNumbers) {
  const Scratch scratch;
  DataOptions options{.bad_lines = DataOptions::BadLines::Skip, .max_bad_lines = 2};
  EXPECT_EQ(read(scratch.write("a.jsonl", "{\n{\n" + good_line(1)), options).counts.bad_lines, 2);
  scratch.write("a.jsonl", "{\n{\n" + good_line(1) + "{\n");
  const std::string message =
      message_of<ConfigError>([&] { read(scratch.folder() / "a.jsonl", options); });
  EXPECT_THAT(message, AllOf(HasSubstr("3 bad lines are more than data.max_bad_lines = 2"),
                             HasSubstr("line 4")));
}

TEST(KindOf, GoesByNameAndRefusesFormatsThatAreNotRead) {
  const Scratch scratch;
  EXPECT_EQ(kind_of(scratch.write("a.jsonl", "")), FileKind::Jsonl);
  EXPECT_EQ(kind_of(scratch.write("a.ndjson", "")), FileKind::Jsonl);
  EXPECT_EQ(kind_of(scratch.write("a.json", "")), FileKind::Jsonl);
  EXPECT_EQ(kind_of(scratch.write("README", "")), FileKind::Text);
  EXPECT_EQ(kind_of(scratch.write("a.md", "")), FileKind::Text);
  for (const char* name : {"a.jsonl.gz", "a.parquet", "a.bin"}) {
    const auto path = scratch.write(name, "x");
    EXPECT_THAT(message_of<ConfigError>([&] { (void)kind_of(path); }),
                HasSubstr("not in this version"));
  }
}

}  // namespace
}  // namespace sw
