#include "data/tokenize.hpp"

#include <utility>

#include "base/error.hpp"

namespace sw {

TokenSetRecipe recipe_of(const DataOptions& options, const Tokenizer& tokenizer) {
  return {.tokenizer = tokenizer.name(),
          .vocabulary = tokenizer.vocabulary(),
          .padding = tokenizer.special().padding.value_or(-1),
          .add_bos = options.add_bos,
          .add_eos = options.add_eos};
}

void check_vocabulary(const TokenSet& set, std::int64_t begin, std::int64_t vocabulary,
                      const std::filesystem::path& file) {
  if (vocabulary == 0) {
    return;
  }
  if (const auto at = set.first_beyond(vocabulary, begin)) {
    std::int32_t id = 0;
    set.copy(*at, std::span(&id, 1));
    throw ConfigError(
        fmt::format("{}: the token at position {} is {}, beyond the model's vocabulary of {}; give "
                    "the model a vocabulary of {} (what tokenizer {} has) or use another tokenizer",
                    file.string(), *at - begin, id, vocabulary, set.recipe().vocabulary,
                    set.recipe().tokenizer));
  }
}

TokenSetBuilder::TokenSetBuilder(const DataOptions& options, const Tokenizer& tokenizer,
                                 std::int64_t vocabulary)
    : options_(options),
      tokenizer_(tokenizer),
      vocabulary_(vocabulary),
      set_(recipe_of(options, tokenizer)) {
  if (options.add_bos && !tokenizer.special().begin) {
    throw ConfigError(fmt::format("data.add_bos = true, but the tokenizer {} has no such token",
                                  options.tokenizer));
  }
  if (options.add_eos && !tokenizer.special().end) {
    throw ConfigError(fmt::format("data.add_eos = true, but the tokenizer {} has no such token",
                                  options.tokenizer));
  }
}

void TokenSetBuilder::add(const std::filesystem::path& file, FileKind kind, CorpusCounts& counts) {
  const std::int64_t begin = set_.tokens();
  try {
    read_documents(file, kind, options_, counts, [this](const Document& each) { add(each); });
  } catch (const DataError& error) {
    throw ConfigError(fmt::format("{}: {}", file.string(), error.what()));
  }
  check_vocabulary(set_, begin, vocabulary_, file);
}

TokenSet TokenSetBuilder::take() {
  return std::exchange(set_, TokenSet(recipe_of(options_, tokenizer_)));
}

void TokenSetBuilder::add(const Document& document) {
  const auto append = [this](std::span<const std::int32_t> tokens) { set_.append(tokens); };
  const SpecialTokens special = tokenizer_.special();
  if (options_.add_bos) {
    append(std::span(&*special.begin, 1));
  }
  if (!document.prompt.empty()) {
    tokenizer_.encode(document.prompt, append);
    set_.end_prompt();
  }
  tokenizer_.encode(document.text, append);
  if (options_.add_eos) {
    append(std::span(&*special.end, 1));
  }
  set_.end_document();
}

}  // namespace sw
