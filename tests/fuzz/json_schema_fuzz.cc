// Any bytes as a JSON Schema: they are refused with a message, or become rules that are all
// defined. Lenient mode takes every schema that strict mode takes, and its warnings are text.
//
// The input: one byte with the mode, and the schema.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/json_schema/json_schema.h"
#include "speculative/grammar/network/network.h"
#include "tests/fuzz/grammar_front_end.h"

namespace specd::grammar {
namespace {

// About 10 ms, so that a fuzzer sees many inputs.
constexpr BudgetLimits kLimits = {
    .units = size_t{1} << 20, .bytes = size_t{64} << 20, .levels = kCompileLevelsMax};

absl::Status CheckWithinBudget(std::string_view schema, const JsonSchemaOptions& options) {
  GrammarRules rules;
  std::vector<std::string> warnings;
  const absl::StatusOr<ExprId> body = BuildJsonSchema(schema, options, &rules, &warnings);
  CheckFrontEnd(rules, body);
  for (const std::string& warning : warnings) {
    // Strict mode enforces all of a schema, so it names remarks only.
    const bool is_remark = warning.find("is taken as a remark") != std::string::npos;
    SPECD_CHECK(options.lenient || is_remark);
    SPECD_CHECK(!warning.empty() && FindInvalidUtf8(warning) == std::string_view::npos);
  }
  if (!body.ok()) return body.status();
  const RuleId root = rules.AddRule("fuzz");
  rules.Define(root, *body);
  rules.SetRoot(root);
  const absl::StatusOr<Network> network = Network::Build(rules);
  if (!network.ok()) CheckRefusal(network.status());
  return network.status();
}

absl::Status Check(std::string_view schema, const JsonSchemaOptions& options) {
  absl::Status status;
  const absl::Status refusal =
      Budget::Run(kLimits, [&] { status = CheckWithinBudget(schema, options); });
  if (!refusal.ok()) CheckRefusal(refusal);
  return refusal.ok() ? status : refusal;
}

}  // namespace
}  // namespace specd::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  namespace grammar = specd::grammar;
  if (size_bytes == 0 || size_bytes > grammar::kFuzzSizeBytesMax) return 0;
  const std::string_view schema(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
  const auto whitespace =
      (data[0] & 1) != 0 ? grammar::Whitespace::kCompact : grammar::Whitespace::kFlexible;
  const auto key_order = (data[0] & 2) != 0 ? grammar::KeyOrder::kAny : grammar::KeyOrder::kSchema;
  const grammar::JsonSchemaOptions options = {.whitespace = whitespace, .key_order = key_order};
  const absl::Status strict = grammar::Check(schema, options);
  grammar::JsonSchemaOptions dropping = options;
  dropping.lenient = true;
  const absl::Status lenient = grammar::Check(schema, dropping);
  SPECD_CHECK(!strict.ok() || lenient.ok());
  return 0;
}
