#include "tools/bench/grammar_peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "simdjson.h"
#include "speculative/grammar/base/grammar_request.h"
#include "tools/bench/python_script.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

std::string ToHex(std::string_view bytes) {
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

// The names of xgrammar_peer.py, by GrammarKind.
constexpr std::string_view kKinds[] = {"none", "json",   "json_object",   "regex",
                                       "ebnf", "choice", "structural_tag"};

absl::Status Strange(std::string_view answer) {
  return absl::InternalError(
      fmt::format("{} said \"{}\"", GrammarPeer::kName, answer.substr(0, 200)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrammarPeer>> GrammarPeer::Start(
    const std::string& interpreter, const SyntheticVocabulary& vocabulary, int32_t vocab_size) {
  SPECD_TAKE(std::unique_ptr<PythonProcess> process,
             PythonProcess::Start({.interpreter = interpreter, .script = kXgrammarScript}));
  std::string tokens;
  for (TokenId id = 0; id < vocabulary.vocabulary().size(); ++id) {
    const bool is_special = vocabulary.vocabulary().IsSpecial(id);
    tokens += fmt::format("{}\"{}\"", id == 0 ? "" : ", ",
                          is_special ? "" : ToHex(vocabulary.vocabulary().Bytes(id)));
  }
  const absl::StatusOr<std::string> answer =
      process->Ask(fmt::format(R"({{"vocab_size": {}, "eos": {}, "tokens": [{}]}})", vocab_size,
                               vocabulary.eos_id(), tokens));
  if (!answer.ok()) {
    return absl::FailedPreconditionError(
        fmt::format("python = {} did not start {}; give an interpreter that has the package and "
                    "what it needs (tools/bench/README.md, \"Grammars\")",
                    interpreter, kName));
  }
  return std::unique_ptr<GrammarPeer>(new GrammarPeer(std::move(process)));
}

absl::StatusOr<size_t> GrammarPeer::Add(const grammar::GrammarRequest& request,
                                        const std::vector<TokenId>& tokens) {
  SPECD_TAKE(const std::string answer,
             process_->Ask(fmt::format(R"({{"kind": "{}", "text": "{}", "ids": [{}]}})",
                                       kKinds[static_cast<size_t>(request.kind)],
                                       ToHex(request.text), fmt::join(tokens, ", "))));
  simdjson::dom::parser parser;
  simdjson::dom::element parsed;
  uint64_t bytes = 0;
  std::string_view why;
  if (parser.parse(answer).get(parsed) != simdjson::SUCCESS) return Strange(answer);
  if (parsed["bytes"].get(bytes) == simdjson::SUCCESS) return static_cast<size_t>(bytes);
  if (parsed["refused"].get(why) == simdjson::SUCCESS) {
    return absl::UnimplementedError(std::string(why));
  }
  if (parsed["wrong"].get(why) != simdjson::SUCCESS) return Strange(answer);
  return absl::InternalError(fmt::format("{}: {}", kName, why));
}

absl::Status GrammarPeer::Run(size_t lane, GrammarSamples* samples) {
  SPECD_TAKE(const std::string answer, process_->Ask(fmt::format(R"({{"run": {}}})", lane)));
  simdjson::dom::parser parser;
  simdjson::dom::object times;
  if (parser.parse(answer).get(times) != simdjson::SUCCESS) return Strange(answer);
  for (size_t i = 0; i < kNumGrammarCases; ++i) {
    simdjson::dom::array values;
    if (times[GrammarCaseName(static_cast<GrammarCase>(i))].get(values) != simdjson::SUCCESS) {
      continue;  // a text shorter than a draft has no round
    }
    for (const simdjson::dom::element value : values) {
      double us = 0;
      if (value.get(us) != simdjson::SUCCESS) return Strange(answer);
      (*samples)[i].push_back(us);
    }
  }
  return absl::OkStatus();
}

}  // namespace specd::bench
