#include "tests/fuzz/judge/known_constraints.h"

#include <fmt/format.h>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace specd::grammar {
namespace {

constexpr std::string_view kLineEnd = "␤";

std::string Joined(int count, absl::FunctionRef<std::string(int)> part) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ',';
    text += part(i);
  }
  return text;
}

std::string Properties(int count) {
  return fmt::format("\"properties\":{{{}}}",
                     Joined(count, [](int i) { return fmt::format("\"p{}\":{{}}", i); }));
}

// A union whose branches each require one name, which holds the whole again.
std::string RecursiveUnion(int num_branches) {
  return fmt::format(R"({{"type":"object","oneOf":[{}]}})", Joined(num_branches, [](int i) {
                       return fmt::format(
                           R"({{"required":["k{0}"],"properties":{{"k{0}":{{"$ref":"#"}}}}}})", i);
                     }));
}

std::string LongStrings() {
  return fmt::format(R"({{"type":"object","properties":{{{}}}}})", Joined(10, [](int i) {
                       return fmt::format(R"("s{}":{{"type":"string","maxLength":50000}})", i);
                     }));
}

std::string Conditions() {
  return fmt::format(
      R"({{"type":"object",{},"allOf":[{}]}})", Properties(11), Joined(10, [](int i) {
        return fmt::format(
            R"({{"if":{{"properties":{{"p{}":{{"const":1}}}}}},"then":{{"required":["p{}"]}}}})", i,
            i + 1);
      }));
}

std::string RequiredPairs() {
  return fmt::format(R"({{"type":"object","allOf":[{}]}})", Joined(12, [](int i) {
                       return fmt::format(
                           R"({{"anyOf":[{{"required":["a{0}"]}},{{"required":["b{0}"]}}]}})", i);
                     }));
}

std::string ManyRequired(int count) {
  return fmt::format(R"({{"type":"object",{},"required":[{}]}})", Properties(count),
                     Joined(count, [](int i) { return fmt::format("\"p{}\"", i); }));
}

std::string ManyTexts(int count) {
  return "[" + Joined(count, [](int i) { return fmt::format("\"text {}\"", i * 7919); }) + "]";
}

}  // namespace

std::string_view KindName(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kRegex:
      return "regex";
    case GrammarKind::kEbnf:
      return "ebnf";
    case GrammarKind::kChoice:
      return "choice";
    default:
      return "json";
  }
}

GrammarKind KindOf(std::string_view name) {
  for (const GrammarKind kind :
       {GrammarKind::kJsonSchema, GrammarKind::kRegex, GrammarKind::kEbnf, GrammarKind::kChoice}) {
    if (KindName(kind) == name) return kind;
  }
  return GrammarKind::kNone;
}

std::string LineOfKnown(const GrammarRequest& request) {
  return fmt::format("{} {}", KindName(request.kind),
                     absl::StrReplaceAll(request.text, {{"\n", "␤"}}));
}

absl::StatusOr<std::vector<KnownConstraint>> ParseKnown(std::string_view file) {
  constexpr size_t kNameBytes = 60;
  std::vector<KnownConstraint> known;
  for (const absl::string_view item :
       absl::StrSplit(absl::string_view(file.data(), file.size()), '\n', absl::SkipEmpty())) {
    const std::string line =
        absl::StrReplaceAll(item, {{absl::string_view(kLineEnd.data(), kLineEnd.size()), "\n"}});
    const size_t space = line.find(' ');
    const GrammarKind kind = KindOf(std::string_view(line).substr(0, space));
    if (space == std::string::npos || kind == GrammarKind::kNone) {
      return absl::InvalidArgumentError(
          fmt::format("the line \"{}\" does not begin with json, regex, ebnf or choice", line));
    }
    known.push_back({.name = std::string(item.substr(0, kNameBytes)),
                     .request = {.kind = kind, .text = line.substr(space + 1)}});
  }
  return known;
}

std::vector<KnownConstraint> LargeConstraints() {
  std::vector<KnownConstraint> known;
  const auto add = [&](std::string name, std::string text,
                       GrammarKind kind = GrammarKind::kJsonSchema) {
    known.push_back({.name = std::move(name), .request = {.kind = kind, .text = std::move(text)}});
  };
  for (const int count : {2, 3, 4, 5}) {
    add(fmt::format("a recursive union of {} branches", count), RecursiveUnion(count));
  }
  for (const int count : {200, 400, 5000, 8000}) {
    add(fmt::format("{} optional properties, others free", count),
        fmt::format(R"({{"type":"object",{}}})", Properties(count)));
  }
  add("8000 optional properties, no others",
      fmt::format(R"({{"type":"object",{},"additionalProperties":false}})", Properties(8000)));
  add("8000 required properties", ManyRequired(8000));
  add("ten strings of 50000 characters", LongStrings());
  add("ten conditions over eleven properties", Conditions());
  add("twelve choices of two required names", RequiredPairs());
  add("a choice of 30000 texts", ManyTexts(30000), GrammarKind::kChoice);
  add("an enum of 30000 texts", fmt::format(R"({{"enum":{}}})", ManyTexts(30000)));
  return known;
}

}  // namespace specd::grammar
