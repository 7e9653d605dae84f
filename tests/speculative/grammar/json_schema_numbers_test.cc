// Bounds and multiples agree with arithmetic on every short text.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/decimal.h"
#include "speculative/grammar/json_schema/json_schema.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
namespace {

// All texts of at most `size` of these characters.
std::vector<std::string> ShortTexts(size_t size) {
  constexpr std::string_view kAlphabet = "-.0159";
  std::vector<std::string> texts = {""};
  for (size_t begin = 0, length = 0; length < size; ++length) {
    const size_t end = texts.size();
    for (size_t i = begin; i < end; ++i) {
      for (const char c : kAlphabet) texts.push_back(texts[i] + c);
    }
    begin = end;
  }
  return texts;
}

// A plain decimal in thousandths, by hand: -?(0|[1-9][0-9]*)(\.[0-9]{1,3})?
bool ReadThousandths(std::string_view text, int64_t* value) {
  size_t at = 0;
  const bool is_negative = !text.empty() && text[0] == '-';
  if (is_negative) ++at;
  const size_t whole = at;
  int64_t thousandths = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    thousandths = thousandths * 10 + (text[at] - '0');
  }
  if (at == whole || (text[whole] == '0' && at - whole > 1)) return false;
  thousandths *= 1000;
  if (at < text.size()) {
    if (text[at] != '.' || at + 1 == text.size()) return false;
    int64_t place = 100;
    for (++at; at < text.size(); ++at, place /= 10) {
      if (text[at] < '0' || text[at] > '9') return false;
      thousandths += (text[at] - '0') * place;
    }
  }
  if (is_negative && thousandths == 0) return false;  // -0 is not offered beside bounds
  *value = is_negative ? -thousandths : thousandths;
  return true;
}

ByteDfa Compile(const std::string& schema) {
  INFO("schema: ", schema);
  GrammarRules rules;
  std::vector<std::string> warnings;
  const absl::StatusOr<ExprId> root = BuildJsonSchema(schema, {}, &rules, &warnings);
  if (root.status().code() == absl::StatusCode::kInvalidArgument) return ByteDfa();
  REQUIRE(root.ok());
  absl::StatusOr<ByteDfa> dfa = Determinize(rules, *root);
  REQUIRE(dfa.ok());
  return *std::move(dfa);
}

std::string Thousandths(int64_t value) {
  const int64_t magnitude = value < 0 ? -value : value;
  return fmt::format("{}{}.{:03}", value < 0 ? "-" : "", magnitude / 1000, magnitude % 1000);
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("json schema: bounds agree with arithmetic on every short text") {
    const std::vector<std::string> texts = ShortTexts(5);
    std::mt19937 random(20261123);
    for (int round = 0; round < 60; ++round) {
      const bool is_integer = round % 2 == 0;
      // Bounds of the same few digits as the texts, so that many texts are close to them.
      const auto draw = [&] {
        int64_t value = 0;
        while (!ReadThousandths(texts[random() % texts.size()], &value)) {
        }
        return value;
      };
      const auto [min, max] = std::minmax({draw(), draw()});
      const bool is_min_exclusive = random() % 2 == 0;
      const bool is_max_exclusive = random() % 2 == 0;
      const std::string schema =
          fmt::format(R"({{"type": "{}", "{}": {}, "{}": {}}})", is_integer ? "integer" : "number",
                      is_min_exclusive ? "exclusiveMinimum" : "minimum", Thousandths(min),
                      is_max_exclusive ? "exclusiveMaximum" : "maximum", Thousandths(max));
      INFO("schema: ", schema);
      const ByteDfa dfa = Compile(schema);
      for (const std::string& text : texts) {
        int64_t value = 0;
        const bool is_allowed = ReadThousandths(text, &value) &&
                                (!is_integer || value % 1000 == 0) &&
                                (is_min_exclusive ? value > min : value >= min) &&
                                (is_max_exclusive ? value < max : value <= max);
        if (dfa.Accepts(text) != is_allowed) FAIL_CHECK("text: ", text);
      }
    }
  }

  TEST_CASE("json schema: multiples agree with arithmetic on every short text") {
    const std::vector<std::string> texts = ShortTexts(5);
    for (const int64_t divisor : {1, 2, 3, 7, 12, 45, 100, 999}) {
      const ByteDfa dfa = Compile(
          fmt::format(R"({{"type": "integer", "multipleOf": {}, "minimum": -915}})", divisor));
      for (const std::string& text : texts) {
        int64_t value = 0;
        const bool is_allowed =
            ReadThousandths(text, &value) && value >= -915000 && value % (divisor * 1000) == 0;
        if (dfa.Accepts(text) != is_allowed) FAIL_CHECK(divisor, " text: ", text);
      }
    }
  }

  TEST_CASE(
      "json schema: at most three zeros come after a whole number, and other digits never do") {
    // 1.0 was refused where an integer is asked for, and to JSON Schema it is one.
    for (const char* schema :
         {R"({"type": "integer"})", R"({"type": "integer", "minimum": 0, "maximum": 12})",
          R"({"type": "integer", "multipleOf": 2})", R"({"type": "number", "multipleOf": 4})",
          R"({"type": "integer", "multipleOf": 0.25})"}) {
      CAPTURE(schema);
      const ByteDfa dfa = Compile(schema);
      for (const char* text : {"8", "8.0", "8.00", "8.000", "12.0", "0.0"})
        CHECK(dfa.Accepts(text));
      for (const char* text : {"8.", "8.0000", "8.5", "8.01", "8.0e1", "-0.0", "08.0", ".0"}) {
        CHECK_FALSE(dfa.Accepts(text));
      }
    }
    const ByteDfa quarters = Compile(R"({"type": "number", "multipleOf": 0.25})");
    for (const char* text : {"0.5", "0.50", "0.500", "0.250"}) CHECK(quarters.Accepts(text));
    for (const char* text : {"0.5000", "0.251", "0.100"}) CHECK_FALSE(quarters.Accepts(text));
    // The zeros cost few states, however many residues there are.
    CHECK(
        Compile(R"({"type": "integer", "multipleOf": 4096, "minimum": -99999999})").states.size() <
        45000);
  }

  TEST_CASE("json schema: integers that are left out leave exactly the others") {
    const ByteDfa dfa = Compile(R"({"type": "integer", "not": {"enum": [0, 9, 10, -5, 99]}})");
    for (int64_t value = -120; value <= 120; ++value) {
      const bool is_left_out =
          value == 0 || value == 9 || value == 10 || value == -5 || value == 99;
      CHECK(dfa.Accepts(std::to_string(value)) != is_left_out);
    }
  }

  TEST_CASE("decimal: values compare, whatever their spelling") {
    const auto parse = [](std::string_view text) { return Decimal::Parse(text); };
    CHECK(parse("1.50e3") == parse("1500"));
    CHECK(parse("-0.0") == Decimal());
    CHECK(parse("1e400") > parse("9e399"));
    CHECK(parse("-1e400") < parse("-9e399"));
    CHECK(parse("9007199254740993") > parse("9007199254740992"));
    CHECK(parse("0.1") < parse("0.10000000000000000000000001"));
    CHECK(parse("-2.5").Floor() == parse("-3"));
    CHECK(parse("-2.5").Ceiling() == parse("-2"));
    CHECK(parse("-0.5").Floor() == parse("-1"));
    CHECK(parse("0.5").Ceiling() == parse("1"));
    CHECK(parse("99").PlusOne() == parse("100"));
    CHECK(parse("-1").PlusOne() == Decimal());
    CHECK(parse("-100").PlusOne() == parse("-99"));
    CHECK(parse("12.50").ToPlainText() == "12.5");
    CHECK(parse("1e-3").ToPlainText() == "0.001");
    CHECK(parse("1e30").IsMultipleOf(7, 0) == false);
    CHECK(parse("7e30").IsMultipleOf(7, 0));
    CHECK(parse("0.75").IsMultipleOf(25, 2));
    CHECK_FALSE(parse("0.755").IsMultipleOf(25, 2));
    for (const std::string_view text : {"", "-", "01", "1.", ".5", "1e", "+1", "1 ", "0x1"}) {
      CHECK_FALSE(IsJsonNumber(text));
    }
  }
}

}  // namespace specd::grammar
