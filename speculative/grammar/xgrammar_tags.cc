#include "speculative/grammar/xgrammar_tags.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "speculative/grammar/xgrammar_json.h"
#include "speculative/grammar/xgrammar_text.h"

namespace specd::grammar {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// Formats that the library is given as they are, apart from the schemas inside.
constexpr std::string_view kFormats[] = {"const_string", "any_text",       "grammar",
                                         "regex",        "sequence",       "or",
                                         "tag",          "triggered_tags", "tags_with_separator",
                                         "optional",     "plus",           "star",
                                         "repeat"};

absl::Status Wrong(const std::string& pointer, std::string_view what) {
  return absl::InvalidArgumentError(
      fmt::format("structural tag: {} {}", pointer.empty() ? "the text" : pointer, what));
}

absl::Status Unsupported(const std::string& pointer, std::string_view what) {
  return absl::UnimplementedError(fmt::format("structural tag: unsupported {}: {}", pointer, what));
}

// The format of a schema, as that of its grammar.
absl::StatusOr<std::string> SchemaFormat(const element& schema, const std::string& pointer,
                                         SchemaToEbnf to_ebnf) {
  absl::StatusOr<std::string> ebnf = to_ebnf(simdjson::minify(schema), pointer);
  if (!ebnf.ok()) return ebnf.status();
  return fmt::format(R"({{"type":"grammar","grammar":{}}})", ToJsonString(*ebnf));
}

// Writes a tree of formats. The depth of the recursion is that of the JSON (kJsonDepthMax).
class Rewriter {
 public:
  explicit Rewriter(SchemaToEbnf to_ebnf) : to_ebnf_(to_ebnf) {}

  absl::StatusOr<std::string> Rewrite(const element& value, const std::string& pointer) {
    object format;
    array list;
    if (!value.get(format)) return RewriteFormat(format, pointer);
    if (value.get(list)) return simdjson::minify(value);
    std::string out = "[";
    size_t index = 0;
    for (const element item : list) {
      if (index > 0) out += ',';
      absl::StatusOr<std::string> rewritten = Rewrite(item, fmt::format("{}/{}", pointer, index));
      if (!rewritten.ok()) return rewritten.status();
      out += *rewritten;
      ++index;
    }
    return out + "]";
  }

 private:
  absl::StatusOr<std::string> RewriteFormat(const object& format, const std::string& pointer) {
    std::string_view type;
    if (format["type"].get(type)) return Wrong(pointer, "must have a string type");
    if (type == "json_schema") return RewriteSchema(format, pointer);
    if (std::find(std::begin(kFormats), std::end(kFormats), type) == std::end(kFormats)) {
      return Unsupported(pointer + "/type",
                         fmt::format("{}. Use one of json_schema, {}", type,
                                     fmt::join(std::begin(kFormats), std::end(kFormats), ", ")));
    }
    std::string_view text;
    if (type == "regex" && !format["pattern"].get(text)) {
      if (absl::Status status = CheckPattern(text); !status.ok()) return status;
    }
    if (type == "grammar" && !format["grammar"].get(text)) {
      if (absl::Status status = CheckEbnf(text); !status.ok()) return status;
    }
    std::string out = "{";
    for (const auto& [name, value] : format) {
      if (out.size() > 1) out += ',';
      absl::StatusOr<std::string> rewritten = Rewrite(value, JoinPointer(pointer, name));
      if (!rewritten.ok()) return rewritten.status();
      out += ToJsonString(name) + ":" + *rewritten;
    }
    return out + "}";
  }

  absl::StatusOr<std::string> RewriteSchema(const object& format, const std::string& pointer) {
    element schema;
    for (const auto& [name, value] : format) {
      std::string_view style;
      const bool is_json = name == "style" && !value.get(style) && style == "json";
      if (name == "json_schema") {
        schema = value;
      } else if (name != "type" && !is_json) {
        return Unsupported(JoinPointer(pointer, name), "a schema here has no options. Remove it");
      }
    }
    if (format["json_schema"].error()) return Wrong(pointer, "must have a json_schema");
    return SchemaFormat(schema, pointer + "/json_schema", to_ebnf_);
  }

  SchemaToEbnf to_ebnf_;
};

// A tag with its members `begin`, `schema` and `end`.
absl::StatusOr<std::string> RewriteTriple(const element& tag, const std::string& pointer,
                                          SchemaToEbnf to_ebnf) {
  element begin;
  element schema;
  element end;
  if (tag["begin"].get(begin) || tag["schema"].get(schema) || tag["end"].get(end)) {
    return Wrong(pointer, "must be an object with begin, schema and end");
  }
  for (const auto& [value, name] : {std::pair{begin, "/begin"}, std::pair{end, "/end"}}) {
    if (!value.is_string()) return Wrong(pointer + name, "must be a string");
  }
  absl::StatusOr<std::string> content = SchemaFormat(schema, pointer + "/schema", to_ebnf);
  if (!content.ok()) return content.status();
  return fmt::format(R"({{"type":"tag","begin":{},"content":{},"end":{}}})",
                     simdjson::minify(begin), *content, simdjson::minify(end));
}

absl::StatusOr<std::string> RewriteTriples(const element& root, SchemaToEbnf to_ebnf) {
  array tags;
  array triggers;
  std::string_view tags_name = "structures";
  if (root["structures"].get(tags)) {
    tags_name = "tags";
    if (root["tags"].get(tags)) {
      return Wrong("",
                   "must be a JSON object with a format, or with arrays structures and triggers");
    }
  }
  if (root["triggers"].get(triggers)) return Wrong("/triggers", "must be an array");
  std::string out = R"({"type":"triggered_tags","triggers":[)";
  size_t index = 0;
  for (const element trigger : triggers) {
    if (!trigger.is_string()) return Wrong(fmt::format("/triggers/{}", index), "must be a string");
    if (index++ > 0) out += ',';
    out += simdjson::minify(trigger);
  }
  out += R"(],"tags":[)";
  index = 0;
  for (const element tag : tags) {
    absl::StatusOr<std::string> rewritten =
        RewriteTriple(tag, fmt::format("/{}/{}", tags_name, index), to_ebnf);
    if (!rewritten.ok()) return rewritten.status();
    if (index++ > 0) out += ',';
    out += *rewritten;
  }
  return out + R"(],"at_least_one":false,"stop_after_first":false})";
}

}  // namespace

absl::StatusOr<std::string> StructuralTagToXgrammar(std::string_view text, SchemaToEbnf to_ebnf) {
  JsonDocument document;
  if (absl::Status status = document.Parse(text, "structural tag"); !status.ok()) return status;
  element format;
  const bool has_format = !document.root()["format"].get(format);
  if (has_format && !format.is_object()) return Wrong("/format", "must be an object");
  absl::StatusOr<std::string> rewritten = has_format ? Rewriter(to_ebnf).Rewrite(format, "/format")
                                                     : RewriteTriples(document.root(), to_ebnf);
  if (!rewritten.ok()) return rewritten.status();
  return fmt::format(R"({{"type":"structural_tag","format":{}}})", *rewritten);
}

}  // namespace specd::grammar
