#include "tests/support/xgrammar_fixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "speculative/grammar/xgrammar_backend.h"

namespace specd::grammar {

const std::vector<std::string> kTokens = {
    "{",  "}",      "\"",    "a", "b",    "ab", "abc", ":",    ",",    " ",    "1",
    "12", "\"a\":", "[",     "]", "true", "\n", "é",   "\xC3", "\xA9", "null", ", ",
    "<f", "</f>",   "<f=a>", "x", ".",    "\\", "\"}", "<",    ">",    "{\"",  "c"};
XgrammarFixture::XgrammarFixture() {
  sigaction(SIGSEGV, nullptr, &fault_handler_before);
  Vocabulary::Builder builder;
  for (size_t id = 0; id < kTokens.size(); ++id) {
    builder.Set(static_cast<TokenId>(id), kTokens[id], {});
  }
  builder.Set(kPad, "a", {.added = true, .special = true});
  builder.Set(kEos, "</s>", {.added = true, .special = true});
  const Vocabulary vocabulary = std::move(builder).Build();
  auto loaded = LoadXgrammar({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
  if (!loaded.ok()) {
    fmt::print(stderr, "{}\n", std::string(loaded.status().message()));
    std::exit(1);
  }
  backend = *loaded;
  sigaction(SIGSEGV, nullptr, &fault_handler_after);

  Vocabulary::Builder byte_builder;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    byte_builder.Set(byte, std::string_view(&text, 1), {});
  }
  const Vocabulary byte_vocabulary = std::move(byte_builder).Build();
  bytes = LoadXgrammar({.vocabulary = &byte_vocabulary, .vocab_size = 256}).value();
}

const XgrammarFixture& Library() {
  static const XgrammarFixture loaded;
  return loaded;
}

std::shared_ptr<const CompiledGrammar> Compile(GrammarKind kind, const std::string& text,
                                               Whitespace whitespace) {
  auto compiled =
      Library().backend->Compile({.kind = kind, .text = text, .whitespace = whitespace});
  INFO(std::string(compiled.status().message()));
  REQUIRE(compiled.ok());
  return *compiled;
}

std::unique_ptr<GrammarMatcher> MatcherOf(GrammarKind kind, const std::string& text,
                                          std::vector<TokenId> stop_ids) {
  return Compile(kind, text)->NewMatcher({.stop_ids = std::move(stop_ids)});
}

std::set<TokenId> Allowed(GrammarMatcher& matcher) {
  const MaskRow mask = matcher.Mask();
  REQUIRE(!mask.IsUnconstrained());
  REQUIRE(mask.words().size() == (kVocabSize + 31) / 32);
  const uint32_t past_the_end = mask.words().back() >> (kVocabSize % 32);
  CHECK(past_the_end == 0);
  std::set<TokenId> allowed;
  for (TokenId id = 0; id < kVocabSize; ++id) {
    if (mask.Allows(id)) allowed.insert(id);
  }
  return allowed;
}

std::set<TokenId> Ids(std::initializer_list<std::string_view> texts) {
  std::set<TokenId> ids;
  for (const std::string_view text : texts) {
    const auto found = std::find(kTokens.begin(), kTokens.end(), text);
    ids.insert(text == "</s>" ? kEos : static_cast<TokenId>(found - kTokens.begin()));
  }
  return ids;
}
TokenId Id(std::string_view text) { return *Ids({text}).begin(); }

bool AcceptText(GrammarMatcher& matcher, std::string_view text) {
  while (!text.empty()) {
    TokenId best = -1;
    size_t size = 0;
    for (size_t id = 0; id < kTokens.size(); ++id) {
      if (kTokens[id].size() > size && text.starts_with(kTokens[id])) {
        best = static_cast<TokenId>(id);
        size = kTokens[id].size();
      }
    }
    REQUIRE(best >= 0);
    if (!matcher.Accept(best)) return false;
    text.remove_prefix(size);
  }
  return true;
}

TokenId Draw(const std::set<TokenId>& ids, std::mt19937& random) {
  return *std::next(ids.begin(), static_cast<std::ptrdiff_t>(random() % ids.size()));
}

}  // namespace specd::grammar
