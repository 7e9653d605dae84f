#include "speculative/grammar/front_ends/structural_tag.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

// Stands in for JSON Schema and regex: the text of a part is a schema that allows its own text
// between angle brackets. It warns about "loose", and refuses "bad".
absl::StatusOr<ExprId> BuildStandIn(std::string_view text, GrammarRules* rules,
                                    std::vector<std::string>* warnings) {
  if (text.find("bad") != std::string_view::npos) {
    return absl::UnimplementedError("/x: unsupported bad: remove it");
  }
  if (text.find("loose") != std::string_view::npos) warnings->push_back("/x: loose is dropped");
  return rules->Literal("<" + std::string(text) + ">");
}

const StructuralTagOptions kOptions = {.build_schema = BuildStandIn, .build_regex = BuildStandIn};

std::string Root(const std::string& format) {
  return R"({"type":"structural_tag","format":)" + format + "}";
}

void CheckTexts(const std::string& json, const std::vector<std::string>& accepted,
                const std::vector<std::string>& rejected) {
  INFO(json);
  GrammarRules rules;
  std::vector<std::string> warnings;
  const absl::StatusOr<ExprId> root = BuildStructuralTag(json, kOptions, &rules, &warnings);
  REQUIRE_MESSAGE(root.ok(), std::string(root.status().message()));
  const GrammarReference reference(rules, *root);
  for (const std::string& text : accepted) {
    CHECK_MESSAGE(reference.Accepts(text), "refuses '", text, "'");
  }
  for (const std::string& text : rejected) {
    CHECK_MESSAGE(!reference.Accepts(text), "accepts '", text, "'");
  }
}

void CheckError(const std::string& json, absl::StatusCode code, const std::string& message) {
  INFO(json.substr(0, 500));
  GrammarRules rules;
  std::vector<std::string> warnings;
  const absl::StatusOr<ExprId> root = BuildStructuralTag(json, kOptions, &rules, &warnings);
  REQUIRE(!root.ok());
  const std::string found(root.status().message());
  INFO("message: ", found);
  CHECK(root.status().code() == code);
  CHECK(found.find("structural tag") == 0);
  CHECK(found.find(message) != std::string::npos);
}

void CheckInvalid(const std::string& json, const std::string& message) {
  CheckError(json, absl::StatusCode::kInvalidArgument, message);
}

void CheckUnsupported(const std::string& json, const std::string& message) {
  CheckError(json, absl::StatusCode::kUnimplemented, message);
}

const char* const kAny = R"({"type":"any_text"})";
std::string Const(const std::string& value) {
  return R"({"type":"const_string","value":")" + value + R"("})";
}
std::string Tag(const std::string& begin, const std::string& content, const std::string& end) {
  return R"({"type":"tag","begin":")" + begin + R"(","content":)" + content + R"(,"end":)" + end +
         "}";
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("structural tag: structures and triggers, as vLLM and SGLang send them") {
    const std::string json = R"({"type":"structural_tag","structures":[
        {"begin":"<function=f1>","schema":{"f":1},"end":"</function>"},
        {"begin":"<function=f2>","schema":"{\"f\":2}","end":"</function>"},
        {"begin":"<function=g>","schema":true,"end":"</function>"}],
        "triggers":["<function=f","<function=g"]})";
    const std::string f1 = R"(<function=f1><{"f":1}></function>)";
    const std::string f2 = R"(<function=f2><{"f":2}></function>)";
    const std::string g = "<function=g><true></function>";
    CheckTexts(json,
               {"", "only text", f1, f2 + g, "a " + f1 + " b " + g + " c", "<function=", "<" + f1,
                "<function=<function=" + f2, f1 + "</function>", "é" + g + "€", "<function=h>"},
               {"<function=f", "<function=f3>", f1 + "<function=g", R"(<function=f1><{"f":2}>)",
                "<function=f1></function>", "text <function=gx", "\xC3" + f1, f1 + "\xC3"});
  }

  TEST_CASE("structural tag: any text ends at the first end of its tag") {
    const std::string think = Tag("<think>", kAny, R"("</think>")");
    CheckTexts(
        Root(think), {"<think></think>", "<think>a</thin</think>", "<think>é\n</think>"},
        {"", "<think>", "<think></think></think>", "<think></think>a", "<think>\xFF</think>"});
    CheckTexts(Root(Tag("b", kAny, R"(["aa","x"])")), {"baa", "bx", "bcaa"},
               {"baaa", "bxx", "baax", "bxaa", "ba"});
    CheckTexts(Root(Tag("", kAny, R"("")")), {"", "anything"}, {"\xFF"});
    CheckTexts(Root(Tag("<o>", Tag("<i>", kAny, R"("")"), R"("</o>")")), {"<o><i>a</o>"},
               {"<o><i>a</o></o>", "<o><i>a"});
  }

  TEST_CASE("structural tag: free text at the end of a sequence ends at the tag's end") {
    const std::string sequence =
        R"({"type":"sequence","elements":[)" + Const("1") + "," + kAny + "]}";
    CheckTexts(Root(sequence), {"1", "1abc"}, {"", "a1"});
    CheckTexts(Root(Tag("<", sequence, R"(">")")), {"<1>", "<1abc>"}, {"<a>", "<1>>", "<1"});
    const std::string either = R"({"type":"or","elements":[)" + Const("1>2") + "," + kAny + "]}";
    CheckTexts(Root(Tag("<", either, R"(">")")), {"<1>2>", "<1>", "<abc>"}, {"<1>2", "<1>3>"});
    CheckTexts(Root(either), {"1>2", "", "abc"}, {"\xFF"});
  }

  TEST_CASE("structural tag: parts by other front ends") {
    CheckTexts(Root(R"({"type":"json_schema","json_schema":{"a":[1.5,"é"]},"style":"json"})"),
               {R"(<{"a":[1.5,"é"]}>)"}, {""});
    CheckTexts(Root(R"({"type":"regex","pattern":"[0-9]"})"), {"<[0-9]>"}, {"1"});
    CheckTexts(Root(R"({"type":"grammar","grammar":"root ::= \"a\" root | \"\""})"), {"", "aaa"},
               {"b"});
    CheckTexts(Root(Tag("<", R"({"type":"grammar","grammar":"root ::= [0-9]+"})", R"([">","!"])")),
               {"<12>", "<1!"}, {"<>", "<12", "<12>!"});
  }

  TEST_CASE("structural tag: sequence, or, optional, plus, star and repeat") {
    const auto content = [](const std::string& type) {
      return Root(R"({"type":")" + type + R"(","content":)" + Const("ab") + "}");
    };
    CheckTexts(content("optional"), {"", "ab"}, {"abab"});
    CheckTexts(content("plus"), {"ab", "abab"}, {""});
    CheckTexts(content("star"), {"", "ab", "abab"}, {"a"});
    const auto repeat = [](const std::string& counts) {
      return Root(R"({"type":"repeat","content":)" + Const("a") + "," + counts + "}");
    };
    CheckTexts(repeat(R"("min":1,"max":2)"), {"a", "aa"}, {"", "aaa"});
    CheckTexts(repeat(R"("min":2,"max":-1)"), {"aa", "aaaa"}, {"a"});
    CheckTexts(Root(R"({"type":"sequence","elements":[)" + Const("a") + "," + Const("b") + "]}"),
               {"ab"}, {"a", "b", "ba"});
    CheckTexts(Root(R"({"type":"or","elements":[)" + Const("a") + "," + Const("b") + "]}"),
               {"a", "b"}, {"", "ab"});
    CheckTexts(Root(Tag("<", R"({"type":"star","content":)" + Const("a") + "}", R"(">")")),
               {"<>", "<aa>"}, {"<a", "<b>"});
  }

  TEST_CASE("structural tag: the two switches of triggered tags") {
    const auto json = [](const std::string& switches) {
      return Root(R"({"type":"triggered_tags","triggers":["<"],"tags":[)" +
                  Tag("<a>", Const("1"), R"(".")") + "," + Tag("<b>", Const("2"), R"(".")") + "]" +
                  switches + "}");
    };
    CheckTexts(json(""), {"", "x", "x<a>1.y<b>2.", "<b>2.<b>2."}, {"<", "<a>2.", "<a>1"});
    CheckTexts(json(R"(,"at_least_one":true)"), {"<a>1.", "<a>1.x", "<a>1.x<b>2."},
               {"", "x", "x<a>1.", "<a>1.<"});
    CheckTexts(json(R"(,"stop_after_first":true)"), {"", "x", "<a>1.", "x<b>2."},
               {"<a>1.x", "<a>1.<b>2.", "x<"});
    CheckTexts(json(R"(,"at_least_one":true,"stop_after_first":true)"), {"<a>1.", "<b>2."},
               {"", "x", "x<a>1.", "<a>1.x"});
    CheckTexts(json(R"(,"excludes":["no"],"at_least_one":null)"), {"n", "<a>1.n<b>2."},
               {"no", "<a>1.no", "nno<a>1."});
  }

  TEST_CASE("structural tag: triggered tags inside a tag end at its end") {
    const auto json = [](const std::string& switches) {
      return Root(Tag("[",
                      R"({"type":"triggered_tags","triggers":["<a"],"tags":[)" +
                          Tag("<a>", kAny, R"("</a>")") + "]" + switches + "}",
                      R"(["]","end"])"));
    };
    CheckTexts(json(""), {"[]", "[end", "[x<a>]end</a>y]", "[<a></a><a></a>end"},
               {"[", "[x]]", "[<a>]", "[<a></a>", "[en", "[<a></a>]end"});
    CheckTexts(json(R"(,"stop_after_first":true)"), {"[]", "[x<a></a>]", "[<a></a>end"},
               {"[<a></a>x]", "[<a></a>"});
    CheckTexts(json(R"(,"at_least_one":true,"stop_after_first":true)"), {"[<a></a>]"},
               {"[]", "[x<a></a>]", "[<a></a>"});
    CheckTexts(json(R"(,"at_least_one":true)"), {"[<a></a>]", "[<a></a>x<a></a>end"}, {"[]"});
  }

  TEST_CASE("structural tag: tags with a separator") {
    const auto json = [](const std::string& switches) {
      return Root(R"({"type":"tags_with_separator","separator":", ","tags":[)" +
                  Tag("<a>", Const("1"), R"(".")") + R"(,{"begin":"<b>","content":)" + Const("2") +
                  R"(,"end":"."}])" + switches + "}");
    };
    CheckTexts(json(""), {"", "<a>1.", "<a>1., <b>2., <a>1."}, {"<a>1.<b>2.", "<a>1., ", ", "});
    CheckTexts(json(R"(,"at_least_one":true)"), {"<a>1.", "<a>1., <a>1."}, {""});
    CheckTexts(json(R"(,"stop_after_first":true)"), {"", "<b>2."}, {"<a>1., <a>1."});
    CheckTexts(json(R"(,"at_least_one":true,"stop_after_first":true)"), {"<b>2."},
               {"", "<b>2., <b>2."});
  }

  TEST_CASE("structural tag: warnings and errors of parts name the part") {
    const std::string loose = R"({"type":"json_schema","json_schema":{"loose":1}})";
    GrammarRules rules;
    std::vector<std::string> warnings = {"before"};
    REQUIRE(BuildStructuralTag(Root(Tag("a", loose, R"("b")")), kOptions, &rules, &warnings).ok());
    REQUIRE(warnings.size() == 2);
    CHECK(warnings[0] == "before");
    CHECK(warnings[1] == "structural tag /format/content/json_schema: /x: loose is dropped");

    CheckUnsupported(Root(R"({"type":"json_schema","json_schema":{"bad":1}})"),
                     "/format/json_schema: /x: unsupported bad");
    CheckUnsupported(R"({"type":"structural_tag","triggers":["a"],"structures":[
                         {"begin":"a","schema":{"bad":1},"end":"b"}]})",
                     "/structures/0/schema: /x: unsupported bad");
    CheckInvalid(Root(R"({"type":"grammar","grammar":"root ::= item"})"),
                 "/format/grammar: grammar, line 1, column 10: no rule is named item");
    CHECK(BuildStructuralTag(Root(loose), {}, &rules, &warnings).status().code() ==
          absl::StatusCode::kUnimplemented);
  }

  TEST_CASE("structural tag: wrong tags are refused with the JSON pointer") {
    CheckInvalid("", "not valid JSON");
    CheckInvalid("[]", "structural tag: not an object");
    CheckInvalid("{}", "structural tag: field \"type\" is missing");
    CheckInvalid(R"({"type":"tag"})", "/type: type is \"tag\"");
    CheckInvalid(R"({"type":"structural_tag"})", "field \"format\" is missing");
    CheckInvalid(Root("1"), "/format: not an object");
    CheckInvalid(Root("{}"), "/format: field \"type\" is missing");
    CheckInvalid(Root(R"({"type":7})"), "/format/type: not a string");
    CheckInvalid(Root(R"({"type":"tagg"})"), "/format/type: unknown format \"tagg\"");
    CheckInvalid(Root(R"({"type":"const_string"})"), "/format: field \"value\" is missing");
    CheckInvalid(Root(R"({"type":"const_string","value":1})"), "/format/value: not a string");
    CheckInvalid(Root(R"({"type":"const_string","value":"a","value":"b"})"),
                 "\"value\" is there twice");
    CheckInvalid(Root(R"({"type":"json_schema","json_schema":"{}"})"),
                 "/format/json_schema: not a schema");
    CheckInvalid(Root(R"({"type":"sequence","elements":[]})"), "/format/elements: an empty list");
    CheckInvalid(Root(R"({"type":"or","elements":{}})"), "/format/elements: not an array");
    CheckInvalid(Root(R"({"type":"or","elements":[{"type":"any_text"},1]})"),
                 "/format/elements/1: not an object");
    CheckInvalid(Root(R"({"type":"repeat","min":2,"max":1,"content":)" + Const("a") + "}"),
                 "max is less than min");
    CheckInvalid(Root(R"({"type":"repeat","min":-1,"max":1,"content":)" + Const("a") + "}"),
                 "/format/min: not a count");
    CheckInvalid(Root(R"({"type":"repeat","min":0,"max":65536,"content":)" + Const("a") + "}"),
                 "/format/max: not a count");
    CheckInvalid(Root(Tag("a", Const("b"), "[]")), "/format/end: an empty list");
    CheckInvalid(Root(Tag("a", Const("b"), "[1]")), "/format/end: not a string");
    CheckInvalid(Root(Tag("a", Const("b"), R"(["","x"])")), "/format/end: an empty end");
    CheckInvalid(Root(R"({"type":"tag","begin":"a","content":{"type":"any_text"}})"),
                 "/format: field \"end\" is missing");
    CheckInvalid(Root(R"({"type":"any_text","excludes":[""]})"), "/format/excludes/0: an empty");
    CheckInvalid(Root(Tag("a", R"({"type":"any_text","excludes":["x","n"]})", R"("end")")),
                 "/format/content/excludes/1: the string is in \"end\"");
  }

  TEST_CASE("structural tag: excluded strings may hold the end, or be the end") {
    CheckTexts(
        Root(Tag("a", R"({"type":"any_text","excludes":["x","end","endy","zend"]})", R"("end")")),
        {"aend", "ayend"}, {"axend", "aendx", "azend", "aendy"});
  }

  TEST_CASE("structural tag: triggers and tags fit together") {
    const auto json = [](const std::string& triggers, const std::string& begin) {
      return R"({"type":"triggered_tags","triggers":)" + triggers + R"(,"tags":[)" +
             Tag(begin, Const("1"), R"(".")") + "," + Tag("<b>", Const("2"), R"(".")") + "]}";
    };
    CheckTexts(Root(json(R"(["<","<"])", "<a>")), {"x<a>1."}, {"<"});
    CheckInvalid(Root(json(R"(["<","["])", "<a>")), "/format/triggers/1: no tag begins with");
    CheckInvalid(Root(json(R"(["<b"])", "<a>")), "/format/tags/0/begin: the tag begins with no");
    CheckInvalid(Root(json(R"(["<","<b"])", "<a>")),
                 "/format/triggers/1: the trigger holds trigger");
    CheckInvalid(Root(json(R"(["<b","b"])", "b")), "/format/triggers/0: the trigger holds trigger");
    CheckInvalid(Root(json("[]", "<a>")), "/format/triggers: an empty list");
    CheckInvalid(Root(json(R"(["<",""])", "<a>")), "/format/triggers/1: an empty trigger");
    CheckInvalid(Root(Tag("[", json(R"(["<"])", "<a>"), R"("</a>")")),
                 "/format/content/triggers/0: the trigger and \"</a>\"");
    CheckInvalid(Root(Tag("[", json(R"(["<"])", "<a>"), R"(["]","<"])")),
                 "/format/content/triggers/0: the trigger and \"<\"");
    CheckInvalid(Root(R"({"type":"triggered_tags","triggers":["<"],"tags":[]})"),
                 "/format/tags: an empty list");
    CheckInvalid(Root(R"({"type":"triggered_tags","triggers":["<"],"tags":[)" + Const("<") + "]}"),
                 "/format/tags/0: type is \"const_string\"");
    CheckInvalid(R"({"type":"structural_tag","triggers":["x"],"structures":[
                     {"begin":"a","schema":{},"end":"b"}]})",
                 "structural tag /triggers/0: no tag begins with this trigger");
    CheckInvalid(R"({"type":"structural_tag","triggers":["a"],"structures":[
                     {"begin":"a","schema":{},"end":[]}]})",
                 "structural tag /structures/0/end: an empty list");
  }

  TEST_CASE("structural tag: right tags that cannot be enforced are refused by name") {
    CheckUnsupported(Root(R"({"type":"qwen_xml_parameter","json_schema":{}})"),
                     "/format/type: unsupported format \"qwen_xml_parameter\"");
    CheckUnsupported(Root(R"({"type":"token","token":1})"), "unsupported format \"token\"");
    CheckUnsupported(Root(R"({"type":"dispatch","rules":[]})"), "unsupported format \"dispatch\"");
    CheckUnsupported(Root(R"({"type":"json_schema","json_schema":{},"style":"glm_xml"})"),
                     "/format/style: unsupported style \"glm_xml\"");
    CheckUnsupported(Root(R"({"type":"any_text","max_tokens":5})"), "/format/max_tokens");
    CheckUnsupported(Root(R"({"type":"any_text","min_chars":5})"), "field \"min_chars\"");
    CheckUnsupported(Root(R"({"type":"tag","begin":{"type":"token"},"content":{"type":"any_text"},
                              "end":"a"})"),
                     "/format/begin: unsupported token");
    CheckUnsupported(Root(Tag("a", kAny, R"({"type":"token"})")), "/format/end: unsupported token");
    CheckUnsupported(
        Root(R"({"type":"sequence","elements":[{"type":"any_text"},)" + Const("a") + "]}"),
        "/format/elements/0: unsupported free text");
    CheckUnsupported(Root(R"({"type":"star","content":{"type":"any_text"}})"),
                     "/format/content: unsupported free text");
    CheckUnsupported(Root(R"({"type":"tags_with_separator","separator":",","tags":[)" +
                          Tag("a", kAny, R"("")") + "]}"),
                     "/format/tags/0/content: unsupported free text");
    CheckUnsupported(R"({"type":"structural_tag","format":{"type":"any_text"},"strict":true})",
                     "unsupported field \"strict\"");
  }

  TEST_CASE("structural tag: limits") {
    const auto exhausted = absl::StatusCode::kResourceExhausted;
    const auto nested = [](int depth) {
      std::string json = Const("a");
      for (int i = 1; i < depth; ++i) json = R"({"type":"optional","content":)" + json + "}";
      return Root(json);
    };
    CheckTexts(nested(256), {"", "a"}, {"aa"});
    CheckError(nested(257), exhausted, "deeper than 256 levels");
    CheckError(std::string(4 << 20, ' ') + "{}", exhausted, "allowed are 4194304");
    CheckError(Root(Tag("a", kAny, "\"" + std::string(16385, 'x') + "\"")), exhausted,
               "/format/content: the triggers, ends and excluded strings");
    std::string many = kAny;
    for (int i = 0; i < 40; ++i) many += "," + std::string(kAny);
    CheckError(Root(Tag("a", R"({"type":"or","elements":[)" + many + "]}",
                        "\"" + std::string(16000, 'x') + "\"")),
               exhausted, "/format/content/elements/32: free text");
    std::string triggers;
    for (int i = 0; i < 600; ++i) {
      triggers += R"("t)" + std::to_string(1000 + i) + R"(",)";
    }
    CheckError(Root(R"({"type":"triggered_tags","triggers":[)" + triggers + R"("x"],"tags":[)" +
                    Tag("x", Const("a"), R"("b")") + "]}"),
               exhausted, "/format: free text");
  }
}

}  // namespace specd::grammar
