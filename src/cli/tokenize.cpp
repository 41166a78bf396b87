#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/files.hpp"
#include "cli/command.hpp"
#include "cli/print_json.hpp"
#include "data/corpus.hpp"
#include "data/tokenizers/tokenizer.hpp"

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

int tokenize(const TokenizeArguments& a) {
  DataOptions options;
  options.tokenizer = a.tokenizer;
  options.add_bos = a.add_bos;
  options.add_eos = !a.no_eos;
  options.bad_lines = a.skip ? DataOptions::BadLines::Skip : DataOptions::BadLines::Stop;
  const std::filesystem::path here = std::filesystem::current_path();
  const CorpusCounts counts = tokenize_files(
      options, {.key = "FILES", .patterns = a.files, .base = here}, real_files(), a.out);
  if (a.json) {
    print_json({{"out", a.out},
                {"files", counts.files},
                {"bytes", counts.bytes},
                {"documents", counts.documents},
                {"empty_documents", counts.empty_documents},
                {"bad_lines", counts.bad_lines},
                {"tokens", counts.tokens},
                {"vocabulary", make_tokenizer(a.tokenizer, here)->vocabulary()}});
  } else {
    fmt::print(
        "{}: {} tokens of {} documents from {} files ({} empty documents and {} bad lines left "
        "out)\n",
        a.out, counts.tokens, counts.documents, counts.files, counts.empty_documents,
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
