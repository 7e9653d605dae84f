#include "speculative/grammar/specd_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "speculative/grammar/choice.h"
#include "speculative/grammar/ebnf.h"
#include "speculative/grammar/network.h"
#include "speculative/grammar/regex.h"
#include "speculative/grammar/state_matcher.h"

namespace specd::grammar {
namespace {

absl::StatusOr<ExprId> BuildRoot(const GrammarRequest& request, GrammarRules* rules) {
  switch (request.kind) {
    case GrammarKind::kNone:
      break;
    case GrammarKind::kRegex:
      return ParseRegex(request.text, {.search = false}, rules);
    case GrammarKind::kEbnf:
      return ParseEbnf(request.text, {}, rules);
    case GrammarKind::kChoice:
      return BuildChoice(request.text, rules);
    case GrammarKind::kJsonSchema:
    case GrammarKind::kJsonObject:
    case GrammarKind::kStructuralTag:
      return absl::UnimplementedError("this kind of constraint is not built yet");
  }
  return absl::InvalidArgumentError("grammar_kind = none has nothing to compile");
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpecdBackend>> SpecdBackend::Create(
    const SpecdBackendOptions& options) {
  if (options.vocab_size < 1 || options.vocab_size > kVocabSizeMax) {
    return absl::InvalidArgumentError(
        fmt::format("vocab_size = {} is outside 1 .. {}", options.vocab_size, kVocabSizeMax));
  }
  return std::unique_ptr<SpecdBackend>(new SpecdBackend(options));
}

SpecdBackend::SpecdBackend(const SpecdBackendOptions& options)
    : parts_(std::make_shared<TokenizerParts>(options)) {}

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> SpecdBackend::Compile(
    const GrammarRequest& request) const {
  if (request.text.size() > kGrammarTextBytesMax) {
    return absl::ResourceExhaustedError(fmt::format("the text has {} bytes, at most {} are allowed",
                                                    request.text.size(), kGrammarTextBytesMax));
  }
  GrammarRules rules;
  std::vector<std::string> warnings;
  absl::StatusOr<ExprId> body = BuildRoot(request, &rules);
  if (!body.ok()) return body.status();
  const RuleId root = rules.AddRule("the constraint");
  rules.Define(root, *body);
  rules.SetRoot(root);
  absl::StatusOr<Network> network = Network::Build(rules);
  if (!network.ok()) return network.status();
  if (network->is_never()) {
    return absl::InvalidArgumentError("no text satisfies the constraint");
  }
  return std::make_shared<const StateGrammar>(parts_, *std::move(network), std::move(warnings));
}

}  // namespace specd::grammar
