#include "speculative/grammar/specd_backend.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "speculative/grammar/budget.h"
#include "speculative/grammar/choice.h"
#include "speculative/grammar/deep_stack.h"
#include "speculative/grammar/ebnf.h"
#include "speculative/grammar/json_schema.h"
#include "speculative/grammar/network.h"
#include "speculative/grammar/regex.h"
#include "speculative/grammar/state_grammar.h"
#include "speculative/grammar/structural_tag.h"

namespace specd::grammar {
namespace {

// Parts of a text nest, references lead to references, and rules take the places of their calls:
// the compiler recurses as deep, up to kCompileLevelsMax. The caller's stack may be a small one.
constexpr size_t kDeepStackBytes = size_t{64} << 20;

// The formats inside a structural tag.
StructuralTagOptions PartsOf(const JsonSchemaOptions& json) {
  const auto schemas_with = [](const JsonSchemaOptions& options) {
    return
        [options](std::string_view text, GrammarRules* rules, std::vector<std::string>* warnings) {
          return BuildJsonSchema(text, options, rules, warnings);
        };
  };
  JsonSchemaOptions any_order = json;
  any_order.key_order = KeyOrder::kAny;
  return {.build_schema = schemas_with(json),
          .build_schema_in_any_order = schemas_with(any_order),
          .build_regex = [](std::string_view text, GrammarRules* rules, std::vector<std::string>*) {
            return ParseRegex(text, {}, rules);
          }};
}

absl::StatusOr<ExprId> BuildRoot(const GrammarRequest& request, GrammarRules* rules,
                                 std::vector<std::string>* warnings) {
  const JsonSchemaOptions json = {
      .whitespace = request.whitespace, .key_order = request.key_order, .lenient = request.lenient};
  switch (request.kind) {
    case GrammarKind::kNone:
      break;
    case GrammarKind::kJsonSchema:
      return BuildJsonSchema(request.text, json, rules, warnings);
    case GrammarKind::kJsonObject:
      if (!request.text.empty()) {
        return absl::InvalidArgumentError("json_object takes no text; give a schema as json");
      }
      return BuildJsonObject(request.whitespace, rules);
    case GrammarKind::kRegex:
      return ParseRegex(request.text, {.search = false}, rules);
    case GrammarKind::kEbnf:
      return ParseEbnf(request.text, {}, rules);
    case GrammarKind::kChoice:
      return BuildChoice(request.text, rules);
    case GrammarKind::kStructuralTag:
      return BuildStructuralTag(request.text, PartsOf(json), rules, warnings);
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
    : parts_(std::make_shared<TokenizerParts>(options)), limits_(options.compile_limits) {}

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> SpecdBackend::Compile(
    const GrammarRequest& request) const {
  if (request.text.size() > kGrammarTextBytesMax) {
    return absl::ResourceExhaustedError(fmt::format("the text has {} bytes, at most {} are allowed",
                                                    request.text.size(), kGrammarTextBytesMax));
  }
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> compiled = absl::UnknownError("");
  absl::Status refusal;
  const absl::Status run = RunOnDeepStack(kDeepStackBytes, [&] {
    refusal = Budget::Run(limits_, [&] { compiled = CompileBounded(request); });
  });
  if (!run.ok()) return run;
  if (!refusal.ok()) return refusal;
  return compiled;
}

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> SpecdBackend::CompileBounded(
    const GrammarRequest& request) const {
  GrammarRules rules;
  std::vector<std::string> warnings;
  absl::StatusOr<ExprId> body = BuildRoot(request, &rules, &warnings);
  if (!body.ok()) return body.status();
  const RuleId root = rules.AddRule("the constraint");
  rules.Define(root, *body);
  rules.SetRoot(root);
  absl::StatusOr<Network> network = Network::Build(rules, parts_->spelled_bytes);
  if (!network.ok()) return network.status();
  if (network->is_never()) {
    return absl::InvalidArgumentError(
        parts_->spelled_bytes == ByteSet::All()
            ? "no text satisfies the constraint"
            : "no text that the tokenizer's tokens can spell satisfies the constraint");
  }
  return StateGrammar::Create(parts_, *std::move(network), std::move(warnings));
}

}  // namespace specd::grammar
