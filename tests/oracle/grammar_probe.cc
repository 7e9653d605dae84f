// specd_grammar_probe answers questions about specd's grammar engine, for the oracle tests.
//
// One JSON object per line on stdin, one on stdout. Bytes are written in hexadecimal digits.
// grammar_probe.py is its other end.
//
//   {"ask": "vocabulary", "tokens": ["61", ...], "eos": 256}     ids count from 0; first of all
//   {"ask": "compile", "kind": 1, "whitespace": 1, "key_order": 0, "lenient": 0, "text": "{}"}
//   {"ask": "match", "text": "7b7d"}            is it a prefix of a text, and a whole text?
//   {"ask": "generate", "seed": 1, "count": 100, "max_tokens": 1600}
//   {"ask": "mask", "ids": [4, 5]}              the row after these ids
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "detokenizer/vocabulary.h"
#include "kernels/core/check.h"
#include "simdjson.h"
#include "speculative/grammar/compiler/grammar_compiler.h"

namespace specd::grammar {
namespace {

using Question = simdjson::dom::element;

// The script beside this program is the only caller: a wrong question ends the program.
std::string_view TextOf(const Question& question, std::string_view name) {
  std::string_view text;
  SPECD_CHECK(question[name].get(text) == simdjson::SUCCESS);
  return text;
}

uint64_t NumberOf(const Question& question, std::string_view name) {
  uint64_t number = 0;
  SPECD_CHECK(question[name].get(number) == simdjson::SUCCESS);
  return number;
}

simdjson::dom::array ListOf(const Question& question, std::string_view name) {
  simdjson::dom::array list;
  SPECD_CHECK(question[name].get(list) == simdjson::SUCCESS);
  return list;
}

std::string FromHex(std::string_view digits) {
  return absl::HexStringToBytes({digits.data(), digits.size()});
}

std::string ToHex(std::string_view bytes) {
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

// Draws one text. A text of random tokens seldom ends by itself, so each text has its own
// preference for the tokens that close something, and in the end takes no other.
class TextWalk {
 public:
  TextWalk(const Vocabulary& vocabulary, TokenId eos, std::mt19937_64* random)
      : vocabulary_(vocabulary), eos_(eos), random_(*random) {
    constexpr uint32_t kPercents[] = {0, 10, 40, 80};
    close_percent_ = kPercents[Below(std::size(kPercents))];
  }

  // Returns nothing if the text has not ended after `max_tokens`.
  std::optional<std::string> Draw(GrammarMatcher* matcher, size_t max_tokens) {
    std::string text;
    for (size_t i = 0; i < max_tokens; ++i) {
      const MaskRow mask = matcher->Mask();
      if (i > max_tokens / 8) close_percent_ = 100;
      const TokenId id = Choose(mask);
      SPECD_CHECK(matcher->Accept(id));
      if (id == eos_) return text;
      text += vocabulary_.Bytes(id);
    }
    return std::nullopt;
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  TokenId Choose(const MaskRow& mask) {
    if (Below(100) < close_percent_) {
      if (mask.Allows(eos_)) return eos_;
      // A bracket may also be a character of a string, and a pattern may want another one first.
      constexpr std::string_view kClosing[] = {"\"", "]}", ""};
      const std::vector<TokenId> ids = AllowedIds(mask, kClosing[Below(std::size(kClosing))]);
      if (!ids.empty()) return ids[Below(ids.size())];
    }
    const std::vector<TokenId> ids = AllowedIds(mask, "");
    // The engine promises that every state leads to an end.
    SPECD_CHECK(!ids.empty());
    return ids[Below(ids.size())];
  }

  // Those that begin with one of `first`; all of them if it is empty.
  std::vector<TokenId> AllowedIds(const MaskRow& mask, std::string_view first) const {
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      const bool is_wanted = first.empty() || vocabulary_.Bytes(id).find_first_of(first) == 0;
      if (mask.Allows(id) && is_wanted) ids.push_back(id);
    }
    return ids;
  }

  const Vocabulary& vocabulary_;
  const TokenId eos_;
  std::mt19937_64& random_;
  uint32_t close_percent_ = 0;
};

class Probe {
 public:
  std::string Answer(const Question& question) {
    const std::string_view ask = TextOf(question, "ask");
    if (ask == "vocabulary") return SetVocabulary(question);
    if (ask == "compile") return Compile(question);
    if (ask == "match") return Match(question);
    if (ask == "generate") return Generate(question);
    SPECD_CHECK(ask == "mask");
    return Mask(question);
  }

 private:
  std::string SetVocabulary(const Question& question) {
    eos_ = static_cast<TokenId>(NumberOf(question, "eos"));
    Vocabulary::Builder builder;
    TokenId id = 0;
    for (const Question token : ListOf(question, "tokens")) {
      std::string_view digits;
      SPECD_CHECK(token.get(digits) == simdjson::SUCCESS);
      builder.Set(id, FromHex(digits), {.special = id == eos_});
      ++id;
    }
    vocabulary_ = std::move(builder).Build();
    compiler_ = std::make_unique<GrammarCompiler>(
        GrammarCompilerOptions{.vocabulary = &vocabulary_, .vocab_size = id});
    return "{}";
  }

  std::string Compile(const Question& question) {
    const auto compiled = compiler_->CompileAnew(
        {.kind = static_cast<GrammarKind>(NumberOf(question, "kind")),
         .text = std::string(TextOf(question, "text")),
         .whitespace = static_cast<Whitespace>(NumberOf(question, "whitespace")),
         .key_order = static_cast<KeyOrder>(NumberOf(question, "key_order")),
         .lenient = NumberOf(question, "lenient") == 1});
    grammar_ = compiled.ok() ? *compiled : nullptr;
    const std::string_view message(compiled.status().message().data(),
                                   compiled.status().message().size());
    std::vector<std::string> warnings;
    if (grammar_ != nullptr) {
      for (const std::string& warning : grammar_->warnings()) {
        warnings.push_back(fmt::format("\"{}\"", ToHex(warning)));
      }
    }
    return fmt::format(R"({{"code": {}, "message": "{}", "warnings": [{}]}})",
                       static_cast<int>(compiled.status().code()), ToHex(message),
                       fmt::join(warnings, ", "));
  }

  std::unique_ptr<GrammarMatcher> NewMatcher() const {
    SPECD_CHECK(grammar_ != nullptr);
    return grammar_->NewMatcher({.stop_ids = {eos_}});
  }

  std::string Match(const Question& question) const {
    const std::unique_ptr<GrammarMatcher> matcher = NewMatcher();
    const bool is_prefix = matcher->AcceptText(FromHex(TextOf(question, "text")));
    return fmt::format(R"({{"is_prefix": {}, "is_whole": {}}})", is_prefix,
                       is_prefix && matcher->IsAccepting());
  }

  std::string Generate(const Question& question) const {
    std::mt19937_64 random(NumberOf(question, "seed"));
    const uint64_t count = NumberOf(question, "count");
    std::vector<std::string> texts;
    uint64_t unfinished = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const std::unique_ptr<GrammarMatcher> matcher = NewMatcher();
      const std::optional<std::string> text =
          TextWalk(vocabulary_, eos_, &random)
              .Draw(matcher.get(), NumberOf(question, "max_tokens"));
      if (text.has_value()) {
        texts.push_back(fmt::format("\"{}\"", ToHex(*text)));
      } else {
        ++unfinished;
      }
    }
    return fmt::format(R"({{"texts": [{}], "unfinished": {}}})", fmt::join(texts, ", "),
                       unfinished);
  }

  // Ids that the grammar allows, after the ids of the question.
  std::string Mask(const Question& question) const {
    const std::unique_ptr<GrammarMatcher> matcher = NewMatcher();
    for (const Question element : ListOf(question, "ids")) {
      int64_t id = 0;
      SPECD_CHECK(element.get(id) == simdjson::SUCCESS);
      if (!matcher->Accept(static_cast<TokenId>(id))) return R"({"is_accepted": false})";
    }
    const MaskRow mask = matcher->Mask();
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      if (mask.Allows(id)) ids.push_back(id);
    }
    return fmt::format(R"({{"is_accepted": true, "allowed": [{}]}})", fmt::join(ids, ", "));
  }

  Vocabulary vocabulary_;
  TokenId eos_ = 0;
  std::unique_ptr<GrammarCompiler> compiler_;
  std::shared_ptr<const CompiledGrammar> grammar_;
};

}  // namespace
}  // namespace specd::grammar

int main() {
  simdjson::dom::parser parser;
  specd::grammar::Probe probe;
  for (std::string line; std::getline(std::cin, line);) {
    simdjson::dom::element question;
    SPECD_CHECK(parser.parse(line).get(question) == simdjson::SUCCESS);
    std::cout << probe.Answer(question) << std::endl;
  }
  return 0;
}
