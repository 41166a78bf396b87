#include "data/tokenize.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/print_json.hpp"
#include "data/patterns.hpp"

namespace sw {
namespace {

struct TokenizeArguments {
  std::vector<std::string> files;
  std::string tokenizer;
  std::string out;
  bool add_bos = false;
  bool no_eos = false;
  bool skip = false;
  bool json = false;
};

Json to_json(const TokenSet& set, const CorpusCounts& counts, const std::string& out) {
  return {{"out", out},
          {"files", counts.files},
          {"bytes", counts.bytes},
          {"documents", set.documents().size()},
          {"empty_documents", counts.empty_documents},
          {"bad_lines", counts.bad_lines},
          {"tokens", set.tokens()},
          {"vocabulary", set.recipe().vocabulary}};
}

int tokenize(const TokenizeArguments& a) {
  DataOptions options;
  options.tokenizer = a.tokenizer;
  options.add_bos = a.add_bos;
  options.add_eos = !a.no_eos;
  options.bad_lines = a.skip ? DataOptions::BadLines::Skip : DataOptions::BadLines::Stop;
  const std::filesystem::path here = std::filesystem::current_path();
  const auto tokenizer = make_tokenizer(a.tokenizer, here);
  TokenSetBuilder builder(options, *tokenizer, 0);
  CorpusCounts counts;
  for (const auto& file : files_matching("FILES", a.files, here)) {
    const FileKind kind = kind_of(file);
    if (kind == FileKind::TokenSet) {
      throw ConfigError(fmt::format("{} is a token set already", file.string()));
    }
    builder.add(file, kind, counts);
  }
  if (builder.empty()) {
    throw ConfigError(fmt::format("{} files hold no document with text ({} are empty)",
                                  counts.files, counts.empty_documents));
  }
  const TokenSet set = builder.take();
  set.write(real_files(), a.out);
  if (a.json) {
    print_json(to_json(set, counts, a.out));
  } else {
    fmt::print(
        "{}: {} tokens of {} documents from {} files ({} empty documents and {} bad lines "
        "left out)\n",
        a.out, set.tokens(), set.documents().size(), counts.files, counts.empty_documents,
        counts.bad_lines);
  }
  return kDone;
}

}  // namespace

Action add_tokenize(Arguments& arguments) {
  auto a = std::make_shared<TokenizeArguments>();
  arguments.positional("FILES", a->files, "Text or JSONL.");
  arguments.option("--tokenizer", a->tokenizer, "T", "bytes, or a tokenizer.json.", true);
  arguments.option("--out", a->out, "DATA", "The token set.", true);
  arguments.flag("--add-bos", a->add_bos, "BOS before every document.");
  arguments.flag("--no-eos", a->no_eos, "No EOS after every document.");
  arguments.flag("--skip-bad-lines", a->skip, "Leave out lines that are no valid UTF-8 or JSON.");
  arguments.json(a->json);
  return [a](const Environment&) { return tokenize(*a); };
}

}  // namespace sw
