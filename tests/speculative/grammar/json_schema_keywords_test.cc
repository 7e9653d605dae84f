// Every case of tests/data/json_schema is right or refused, and never wrong. The README there
// describes the files.
#include <doctest/doctest.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/json_schema/json_schema.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

namespace ondemand = simdjson::ondemand;

struct Case {
  std::string schema;
  std::vector<std::string> valid;
  std::vector<std::string> invalid;
  std::string refused;
  std::string wrong;
  std::string lenient;
  std::string remark;
  KeyOrder key_order = KeyOrder::kSchema;
};

// The text of `value` without whitespace; simdjson would lose digits of a number that it parses.
std::string TextOf(ondemand::value value) {
  std::string_view raw;
  switch (value.type()) {
    case ondemand::json_type::object:
      raw = value.get_object().value().raw_json();
      break;
    case ondemand::json_type::array:
      raw = value.get_array().value().raw_json();
      break;
    default:
      raw = value.raw_json_token();
  }
  const simdjson::padded_string padded(raw);
  std::string text(raw.size() + simdjson::SIMDJSON_PADDING, '\0');
  size_t size = 0;
  REQUIRE(simdjson::minify(padded.data(), padded.size(), text.data(), size) == simdjson::SUCCESS);
  text.resize(size);
  return text;
}

Case ReadCase(ondemand::object object) {
  Case one;
  for (auto field : object) {
    const std::string_view name = field.unescaped_key();
    ondemand::value value = field.value();
    if (name == "schema") {
      one.schema = TextOf(value);
    } else if (name == "key_order") {
      REQUIRE(value.get_string().value() == "any");
      one.key_order = KeyOrder::kAny;
    } else if (name == "refused" || name == "wrong" || name == "lenient" || name == "remark") {
      const std::string_view part = value.get_string();
      (name == "refused"   ? one.refused
       : name == "wrong"   ? one.wrong
       : name == "lenient" ? one.lenient
                           : one.remark) = part;
    } else {
      const bool is_text = name == "valid_text" || name == "invalid_text" || name == "not_offered";
      REQUIRE((is_text || name == "valid" || name == "invalid"));
      std::vector<std::string>& texts =
          name == "valid" || name == "valid_text" ? one.valid : one.invalid;
      for (auto item : value.get_array()) {
        if (is_text) {
          texts.emplace_back(std::string_view(item.get_string()));
        } else {
          texts.push_back(TextOf(item.value()));
        }
      }
    }
  }
  return one;
}

std::vector<Case> ReadCases(const std::filesystem::path& path) {
  ondemand::parser parser;
  const simdjson::padded_string json = simdjson::padded_string::load(path.string());
  ondemand::document document = parser.iterate(json);
  std::vector<Case> cases;
  for (auto item : document.get_array()) cases.push_back(ReadCase(item.get_object()));
  return cases;
}

void CheckError(const absl::Status& status, absl::StatusCode code, const std::string& part) {
  const std::string message(status.message());
  INFO("message: ", message);
  CHECK(status.code() == code);
  CHECK(message.find(part) != std::string::npos);
}

void CheckCase(const Case& one, Whitespace whitespace) {
  INFO("schema: ", one.schema);
  GrammarRules rules;
  std::vector<std::string> warnings;
  const JsonSchemaOptions options = {
      .whitespace = whitespace, .key_order = one.key_order, .lenient = !one.lenient.empty()};
  const absl::StatusOr<ExprId> root = BuildJsonSchema(one.schema, options, &rules, &warnings);
  if (!one.refused.empty()) {
    CheckError(root.status(), absl::StatusCode::kUnimplemented, "unsupported " + one.refused);
    return;
  }
  if (!one.wrong.empty()) {
    CheckError(root.status(), absl::StatusCode::kInvalidArgument, one.wrong);
    return;
  }
  const std::string message(root.status().message());
  INFO("message: ", message);
  REQUIRE(root.ok());
  const std::string& expected = one.lenient.empty() ? one.remark : one.lenient;
  const bool has_warning = std::any_of(
      warnings.begin(), warnings.end(),
      [&](const std::string& warning) { return warning.find(expected) != std::string::npos; });
  CHECK((expected.empty() ? warnings.empty() : has_warning));
  const GrammarReference reference(rules, *root);
  for (const std::string& text : one.valid) {
    INFO("valid: ", text);
    CHECK(reference.Accepts(text));
  }
  for (const std::string& text : one.invalid) {
    INFO("invalid: ", text);
    CHECK_FALSE(reference.Accepts(text));
  }
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("json schema: every keyword is right or refused, and never wrong") {
    size_t num_cases = 0;
    for (const auto& file : std::filesystem::directory_iterator(SPECD_JSON_SCHEMA_CASES)) {
      if (file.path().extension() != ".json") continue;
      const std::string name = file.path().filename().string();
      INFO("file: ", name);
      for (const Case& one : ReadCases(file.path())) {
        CheckCase(one, Whitespace::kCompact);
        CheckCase(one, Whitespace::kFlexible);
        ++num_cases;
      }
    }
    CHECK(num_cases > 200);
  }
}

}  // namespace specd::grammar
