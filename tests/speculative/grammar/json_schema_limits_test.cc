// Limits, errors, whitespace, and sizes that stay linear.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/deep_stack.h"
#include "speculative/grammar/base/json_value.h"
#include "speculative/grammar/json_schema/json_schema.h"
#include "speculative/grammar/network/network.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

absl::Status StatusOf(const std::string& schema) {
  absl::Status status;
  absl::Status refusal;
  const absl::Status run = RunOnDeepStack(size_t{64} << 20, [&] {
    refusal = Budget::Run(CompileLimits(), [&] {
      GrammarRules rules;
      std::vector<std::string> warnings;
      status = BuildJsonSchema(schema, {}, &rules, &warnings).status();
    });
  });
  REQUIRE(run.ok());
  return refusal.ok() ? status : refusal;
}

void CheckError(const std::string& schema, absl::StatusCode code, const std::string& part) {
  INFO("schema: ", schema.substr(0, 200));
  const absl::Status status = StatusOf(schema);
  const std::string message(status.message());
  INFO("message: ", message);
  CHECK(status.code() == code);
  CHECK(message.find(part) != std::string::npos);
}

size_t NetworkNodes(const std::string& schema) {
  GrammarRules rules;
  std::vector<std::string> warnings;
  const absl::StatusOr<ExprId> body = BuildJsonSchema(schema, {}, &rules, &warnings);
  REQUIRE(body.ok());
  const RuleId root = rules.AddRule("root");
  rules.Define(root, *body);
  rules.SetRoot(root);
  const absl::StatusOr<Network> network = Network::Build(rules);
  const std::string message(network.status().message());
  INFO("message: ", message);
  REQUIRE(network.ok());
  return network->num_nodes();
}

std::string ManyProperties(size_t count, std::string_view more) {
  std::string properties;
  for (size_t i = 0; i < count; ++i) {
    properties += fmt::format("{}\"p{}\": {{\"type\": \"integer\"}}", i == 0 ? "" : ", ", i);
  }
  return fmt::format(R"({{"type": "object", "properties": {{{}}}{}}})", properties, more);
}

std::string Repeated(size_t count, std::string_view part) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("json schema: text that is not JSON is refused with its place") {
    constexpr auto kWrong = absl::StatusCode::kInvalidArgument;
    // A word that begins like null and is none once threw out of the parser.
    CheckError("{\"a\":n\"x\"b}", kWrong, "not JSON");
    CheckError("[nul]", kWrong, "not JSON");
    CheckError("nx", kWrong, "not JSON");
    CheckError("", kWrong, "empty");
    CheckError(" \n", kWrong, "empty");
    for (const std::string_view text : {"{",
                                        "{\"a\":1,}",
                                        "{\"a\" 1}",
                                        "[1 2]",
                                        "{\"a\":1} x",
                                        "{\"a\":1}}",
                                        "{\"a\":01}",
                                        "{\"a\":tru}",
                                        "{\"a\":\"\\udc00\"}",
                                        "{\"a\":\"\\ud800x\"}",
                                        "{\"a\":\"\\x\"}",
                                        "{\"a\":\"\x01\"}",
                                        "{\"a\":\"\xff\"}",
                                        "{'a':1}",
                                        "nul",
                                        "1 2",
                                        "{\"a\":1.}",
                                        "{\"a\":1e1234567890}",
                                        "\"a",
                                        "{\"a\":[}"}) {
      CheckError(std::string(text), kWrong, "");
    }
    CheckError(R"({"type": "integer", "minimum": 1, "minimum": 2})", kWrong, "named \"minimum\"");
    CheckError(R"({"properties": {"a": {}, "\u0061": {}}})", kWrong, "named \"a\"");
    CheckError("1", kWrong, "neither an object");
    CheckError("12 ", kWrong, "neither an object");
  }

  TEST_CASE("json schema: depth, size and number of subschemas are limited") {
    constexpr auto kTooMuch = absl::StatusCode::kResourceExhausted;
    const auto nested = [](size_t depth) {
      return Repeated(depth, "{\"items\":") + "{}" + Repeated(depth, "}");
    };
    CHECK(StatusOf(nested(kJsonDepthMax - 1)).ok());
    CheckError(nested(kJsonDepthMax), kTooMuch, "256 levels");
    CheckError(nested(100000), kTooMuch, "256 levels");
    CheckError(std::string(kJsonSizeBytesMax, ' ') + "{}", kTooMuch, "4194304");

    // A chain of references needs no stack, and one without properties between has a limit.
    std::string chain;
    std::string aliases;
    for (int i = 0; i < 5000; ++i) {
      chain += fmt::format(R"("d{}": {{"type": "object", "properties": {{"n": {{"$ref": )"
                           R"("#/$defs/d{}"}}}}}}, )",
                           i, i + 1);
      aliases += fmt::format(R"("d{}": {{"$ref": "#/$defs/d{}"}}, )", i, i + 1);
    }
    CHECK(StatusOf(fmt::format(R"({{"$ref": "#/$defs/d0", "$defs": {{{}"d5000": true}}}})", chain))
              .ok());
    CheckError(fmt::format(R"({{"$ref": "#/$defs/d0", "$defs": {{{}"d5000": true}}}})", aliases),
               kTooMuch, "1024 levels");
  }

  TEST_CASE("json schema: a minimum past every output is refused with its place and the remedy") {
    for (const std::string_view keyword : {"minLength", "minItems", "minProperties"}) {
      for (const std::string_view count : {"1e300", "4294967294", "99999999999999999999"}) {
        CheckError(fmt::format(R"({{"items": {{"{}": {}}}}})", keyword, count),
                   absl::StatusCode::kResourceExhausted,
                   fmt::format("#/items: {} is {}, allowed are 0 to 4294967293; no output is as "
                               "long, so ask for less",
                               keyword, count));
      }
    }
  }

  TEST_CASE("json schema: a format that is a remark has one warning, however often it is there") {
    std::string properties;
    for (int i = 0; i < 5000; ++i) {
      properties += fmt::format(R"({}"p{}": {{"format": "f{}"}})", i == 0 ? "" : ", ", i, i % 3);
    }
    GrammarRules rules;
    std::vector<std::string> warnings = {"earlier"};
    REQUIRE(BuildJsonSchema(fmt::format(R"({{"properties": {{{}}}}})", properties), {}, &rules,
                            &warnings)
                .ok());
    CHECK(warnings.size() == 4);
    CHECK(warnings[0] == "earlier");
  }

  TEST_CASE("json schema: properties in any order have a bound, and it is named") {
    const auto build = [](int num_properties) {
      std::string properties;
      for (int i = 0; i < num_properties; ++i) {
        properties += fmt::format(R"({}"p{}": true)", i == 0 ? "" : ", ", i);
      }
      GrammarRules rules;
      std::vector<std::string> warnings;
      return BuildJsonSchema(
                 fmt::format(R"({{"type": "object", "properties": {{{}}}}})", properties),
                 {.key_order = KeyOrder::kAny}, &rules, &warnings)
          .status();
    };
    CHECK(build(16384).ok());
    const absl::Status status = build(16385);
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(status.message().find("16385 properties") != std::string::npos);
  }

  TEST_CASE("json schema: branches that multiply are refused, not built") {
    std::string branches;
    for (int i = 0; i < 40; ++i) {
      branches +=
          fmt::format(R"({}{{"anyOf": [{{"required": ["a{}"]}}, {{"required": ["b{}"]}}]}})",
                      i == 0 ? "" : ", ", i, i);
    }
    CheckError(fmt::format(R"({{"type": "object", "allOf": [{}]}})", branches),
               absl::StatusCode::kUnimplemented, "unsupported allOf");
  }

  TEST_CASE("json schema: branches that exclude each other do not multiply") {
    std::string names;
    std::string rules_of_names;
    for (int i = 0; i < 40; ++i) {
      const std::string comma = i == 0 ? "" : ", ";
      names += fmt::format(R"({}"v{}")", comma, i);
      rules_of_names += fmt::format(
          R"({}{{"if": {{"properties": {{"k": {{"const": "v{}"}}}}}}, "then": {{"required": ["r{}"]}}}})",
          comma, i, i);
    }
    GrammarRules rules;
    std::vector<std::string> warnings;
    const absl::StatusOr<ExprId> root = BuildJsonSchema(
        fmt::format(
            R"({{"type": "object", "properties": {{"k": {{"enum": [{}]}}}}, "required": ["k"],
                         "allOf": [{}]}})",
            names, rules_of_names),
        {}, &rules, &warnings);
    REQUIRE(root.ok());
    const GrammarReference reference(rules, *root);
    CHECK(reference.Accepts(R"({"k":"v39","r39":1})"));
    CHECK_FALSE(reference.Accepts(R"({"k":"v39","r38":1})"));
    CHECK_FALSE(reference.Accepts(R"({"k":"v0"})"));
  }

  TEST_CASE("json schema: looking for branches that hold nothing ends") {
    // A look into a required property made a form, whose making looked into the same property.
    std::string branches;
    for (int i = 0; i < 40; ++i) {
      branches +=
          fmt::format(R"({}{{"type": "object", "required": ["r{}"]}})", i == 0 ? "" : ", ", i);
    }
    const absl::StatusCode code =
        StatusOf(fmt::format(R"({{"type": "object", "required": ["n"], "allOf": [
                                {{"properties": {{"n": {{"$ref": "#"}}}}}},
                                {{"properties": {{"n": {{"anyOf": [{}]}}}}}}]}})",
                             branches))
            .code();
    CHECK((code == absl::StatusCode::kOk || code == absl::StatusCode::kResourceExhausted ||
           code == absl::StatusCode::kUnimplemented));
  }

  TEST_CASE("json schema: the network of optional properties grows with their number") {
    for (const std::string_view more : {"", R"(, "additionalProperties": false)"}) {
      const size_t small = NetworkNodes(ManyProperties(100, more));
      const size_t large = NetworkNodes(ManyProperties(400, more));
      CHECK(large < 5 * small);
    }
    CHECK(NetworkNodes(ManyProperties(3000, R"(, "additionalProperties": false)")) < 200000);
  }

  TEST_CASE("json schema: whitespace is at most 64 characters, and not around the whole") {
    GrammarRules rules;
    std::vector<std::string> warnings;
    const absl::StatusOr<ExprId> root = BuildJsonSchema(
        R"({"properties": {"a": {"items": {"type": "integer"}}, "b": {"const": [1, {"c": 2}]}},
            "type": "object", "required": ["a"], "additionalProperties": {"type": "null"}})",
        {}, &rules, &warnings);
    REQUIRE(root.ok());
    const GrammarReference reference(rules, *root);
    const std::string most = Repeated(16, " \t\n\r");
    CHECK(reference.Accepts(R"({"a":[1,2],"b":[1,{"c":2}],"x":null})"));
    CHECK(reference.Accepts(R"({ "a" : [ 1 , 2 ] , "b" : [ 1 , { "c" : 2 } ] , "x" : null })"));
    CHECK(reference.Accepts("{" + most + "\"a\":[" + most + "]" + most + "}"));
    CHECK(reference.Accepts("{\"a\":[1" + most + "]}"));
    CHECK_FALSE(reference.Accepts("{" + most + " \"a\":[]}"));
    CHECK_FALSE(reference.Accepts("{\"a\":[" + most + " ]}"));
    CHECK_FALSE(reference.Accepts("{\"a\":[1" + most + " ]}"));
    CHECK_FALSE(reference.Accepts("{\"a\":[1,\v2]}"));
    CHECK_FALSE(reference.Accepts(" {\"a\":[]}"));
    CHECK_FALSE(reference.Accepts("{\"a\":[]} "));

    GrammarRules compact_rules;
    const absl::StatusOr<ExprId> compact =
        BuildJsonSchema(R"({"items": {"type": "integer"}, "type": "array"})",
                        {.whitespace = Whitespace::kCompact}, &compact_rules, &warnings);
    REQUIRE(compact.ok());
    const GrammarReference compact_reference(compact_rules, *compact);
    CHECK(compact_reference.Accepts("[1,2]"));
    CHECK_FALSE(compact_reference.Accepts("[1, 2]"));
    CHECK_FALSE(compact_reference.Accepts("[ ]"));
  }

  TEST_CASE("json object: any object, and nothing else") {
    for (const Whitespace whitespace : {Whitespace::kFlexible, Whitespace::kCompact}) {
      GrammarRules rules;
      const GrammarReference reference(rules, BuildJsonObject(whitespace, &rules));
      CHECK(reference.Accepts("{}"));
      CHECK(reference.Accepts(R"({"a":[1,{"b":null}],"a":"\u00e9\ud83d\ude00","":-1.5e+3})"));
      const bool is_flexible = whitespace == Whitespace::kFlexible;
      CHECK(reference.Accepts("{ \"a\" :\n1 }") == is_flexible);
      for (const std::string_view text : {"", "[]", "1", "{}x", " {}", "{\"a\":1,}", "{a:1}",
                                          "{\"a\":01}", "{\"a\":\"\n\"}", "{\"a\":1", "{\"a\"}"}) {
        CHECK_FALSE(reference.Accepts(text));
      }
      CHECK(reference.IsPrefix("{\"a\":[[[{"));
    }
    GrammarRules rules;
    const GrammarReference value(rules, BuildJsonValue(Whitespace::kFlexible, &rules));
    CHECK(value.Accepts("[1, \"a\"]"));
    CHECK(value.Accepts("null"));
    CHECK_FALSE(value.Accepts("nul"));
  }

  TEST_CASE("json value: numbers keep their digits, members their order") {
    const auto value = ParseJson(R"({"b": 12345678901234567890123, "a": [1.50, "x\u0041"]})");
    REQUIRE(value.ok());
    CHECK((*value)->names == std::vector<std::string>{"b", "a"});
    CHECK((*value)->values[0].text == "12345678901234567890123");
    CHECK((*value)->values[1].values[0].text == "1.50");
    CHECK((*value)->values[1].values[1].text == "xA");
    CHECK(PointerOf((*value)->values[1].values[1]) == "#/a/1");
    const auto same = ParseJson(R"({"a": [1.5, "xA"], "b": 12345678901234567890123})");
    CHECK(AreEqualJson(**value, **same));
    CHECK_FALSE(AreEqualJson((*value)->values[0], (*value)->values[1]));
  }
}

}  // namespace specd::grammar
