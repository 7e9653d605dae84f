#include "speculative/grammar/front_ends/tag_format.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "speculative/grammar/base/json_memory.h"
#include "speculative/grammar/front_ends/tag_fields.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {
namespace {

using simdjson::dom::element;

constexpr uint32_t kRepeatMax = 65535;

// Formats of xgrammar that need tokens, or another syntax than JSON.
constexpr std::string_view kUnsupported[] = {
    "dispatch",           "token",          "exclude_token",
    "any_tokens",         "token_dispatch", "token_triggered_tags",
    "qwen_xml_parameter", "qwen_xml",       "minimax_xml",
    "deepseek_xml",       "glm_xml",        "cohere_xml",
    "kimi_k3_xml"};

absl::StatusOr<TagFormat> ReadFormat(const element& value, const std::string& pointer, int depth);

absl::Status ReadText(const TagFields& fields, std::string_view field, TagFormat* format) {
  if (absl::Status status = fields.CheckFields({"type", field}); !status.ok()) return status;
  absl::StatusOr<std::string> text = fields.GetString(field);
  if (!text.ok()) return text.status();
  format->text = *std::move(text);
  format->pointer = fields.PointerTo(field);
  return absl::OkStatus();
}

absl::Status ReadSchema(const TagFields& fields, std::string_view field, TagFormat* format) {
  const absl::StatusOr<element> schema = fields.Get(field);
  if (!schema.ok()) return schema.status();
  if (!schema->is_object() && !schema->is_bool()) {
    return InvalidTag(fields.PointerTo(field), "not a schema; give an object, true or false");
  }
  format->text = simdjson::minify(*schema);
  format->pointer = fields.PointerTo(field);
  return absl::OkStatus();
}

absl::Status ReadJsonSchema(const TagFields& fields, TagFormat* format) {
  absl::Status status = fields.CheckFields({"type", "json_schema", "style", "any_order"});
  if (!status.ok()) return status;
  if (status = fields.GetFlag("any_order", &format->any_order); !status.ok()) return status;
  if (fields.Has("style")) {
    const absl::StatusOr<std::string> style = fields.GetString("style");
    if (!style.ok()) return style.status();
    if (*style != "json") {
      return UnsupportedTag(fields.PointerTo("style"),
                            fmt::format("unsupported style {}: use \"json\"", QuoteName(*style)));
    }
  }
  return ReadSchema(fields, "json_schema", format);
}

absl::Status ReadExcludes(const TagFields& fields, TagFormat* format) {
  if (!fields.Has("excludes")) return absl::OkStatus();
  absl::StatusOr<std::vector<std::string>> excludes = fields.GetStrings("excludes");
  if (!excludes.ok()) return excludes.status();
  for (size_t i = 0; i < excludes->size(); ++i) {
    if ((*excludes)[i].empty()) {
      return InvalidTag(fmt::format("{}/{}", fields.PointerTo("excludes"), i),
                        "an empty string is in every text; remove it");
    }
  }
  format->excludes = *std::move(excludes);
  return absl::OkStatus();
}

absl::Status ReadAnyText(const TagFields& fields, TagFormat* format) {
  absl::Status status = fields.CheckFields({"type", "excludes", "max_tokens", "max_chars"});
  if (!status.ok()) return status;
  for (const std::string_view field : {"max_tokens", "max_chars"}) {
    if (!fields.Has(field)) continue;
    return UnsupportedTag(
        fields.PointerTo(field),
        fmt::format("unsupported {}: remove it, or bound the text by a regex", field));
  }
  return ReadExcludes(fields, format);
}

absl::Status ReadContent(const TagFields& fields, TagFormat* format, int depth) {
  const absl::StatusOr<element> content = fields.Get("content");
  if (!content.ok()) return content.status();
  absl::StatusOr<TagFormat> part = ReadFormat(*content, fields.PointerTo("content"), depth + 1);
  if (!part.ok()) return part.status();
  format->parts.push_back(*std::move(part));
  return absl::OkStatus();
}

absl::Status ReadElements(const TagFields& fields, TagFormat* format, int depth) {
  if (absl::Status status = fields.CheckFields({"type", "elements"}); !status.ok()) return status;
  const absl::StatusOr<simdjson::dom::array> elements = fields.GetArray("elements");
  if (!elements.ok()) return elements.status();
  for (const element value : *elements) {
    absl::StatusOr<TagFormat> part = ReadFormat(
        value, fmt::format("{}/{}", fields.PointerTo("elements"), format->parts.size()), depth + 1);
    if (!part.ok()) return part.status();
    format->parts.push_back(*std::move(part));
  }
  if (!format->parts.empty()) return absl::OkStatus();
  return InvalidTag(fields.PointerTo("elements"), "an empty list; give at least one format");
}

absl::StatusOr<uint32_t> ReadCount(const TagFields& fields, std::string_view field) {
  const absl::StatusOr<element> value = fields.Get(field);
  if (!value.ok()) return value.status();
  int64_t count = 0;
  if (value->get(count) || count < (field == "max" ? -1 : 0) || count > kRepeatMax) {
    return InvalidTag(
        fields.PointerTo(field),
        fmt::format("not a count; allowed are 0..{}, and -1 as max for no bound", kRepeatMax));
  }
  return count < 0 ? kUnbounded : static_cast<uint32_t>(count);
}

absl::Status ReadRepeat(const TagFields& fields, TagFormat* format, int depth) {
  absl::Status status = fields.CheckFields({"type", "min", "max", "content"});
  if (!status.ok()) return status;
  const absl::StatusOr<uint32_t> min = ReadCount(fields, "min");
  if (!min.ok()) return min.status();
  const absl::StatusOr<uint32_t> max = ReadCount(fields, "max");
  if (!max.ok()) return max.status();
  if (*max < *min) return InvalidTag(fields.pointer(), "max is less than min; exchange them");
  format->min = *min;
  format->max = *max;
  return ReadContent(fields, format, depth);
}

absl::Status ReadEnds(const TagFields& fields, TagFormat* format) {
  const absl::StatusOr<element> value = fields.Get("end");
  if (!value.ok()) return value.status();
  const std::string pointer = fields.PointerTo("end");
  std::string_view text;
  if (!value->get(text)) {
    format->ends.emplace_back(text);
    return absl::OkStatus();
  }
  if (value->is_object()) {
    return UnsupportedTag(pointer,
                          "unsupported token as an end: give the token's text as a string");
  }
  absl::StatusOr<std::vector<std::string>> ends = fields.GetStrings("end");
  if (!ends.ok()) return InvalidTag(pointer, "not a string or a list of strings; give one of them");
  if (ends->empty()) return InvalidTag(pointer, "an empty list; give at least one end");
  if (ends->size() > 1 && std::find(ends->begin(), ends->end(), "") != ends->end()) {
    return InvalidTag(pointer, "an empty end beside others; give either");
  }
  format->ends = *std::move(ends);
  return absl::OkStatus();
}

// `content` is content itself, or the schema of the older form.
absl::Status ReadTag(const TagFields& fields, bool is_structure, TagFormat* format, int depth) {
  format->kind = TagFormatKind::kTag;
  absl::Status status = is_structure ? fields.CheckFields({"begin", "schema", "end"})
                                     : fields.CheckFields({"type", "begin", "content", "end"});
  if (!status.ok()) return status;
  const absl::StatusOr<element> begin_value = fields.Get("begin");
  if (begin_value.ok() && begin_value->is_object()) {
    return UnsupportedTag(fields.PointerTo("begin"),
                          "unsupported token as a begin: give the token's text as a string");
  }
  absl::StatusOr<std::string> begin = fields.GetString("begin");
  if (!begin.ok()) return begin.status();
  format->begin = *std::move(begin);
  if (status = ReadEnds(fields, format); !status.ok()) return status;
  if (!is_structure) return ReadContent(fields, format, depth);

  TagFormat schema = {.kind = TagFormatKind::kJsonSchema, .pointer = fields.PointerTo("schema")};
  // Clients of the older form may send the schema as JSON text.
  const absl::StatusOr<element> value = fields.Get("schema");
  if (value.ok() && value->is_string()) {
    schema.text = std::string(value->get_string().value_unsafe());
  } else if (status = ReadSchema(fields, "schema", &schema); !status.ok()) {
    return status;
  }
  format->parts.push_back(std::move(schema));
  return absl::OkStatus();
}

absl::Status ReadTags(const TagFields& fields, std::string_view field, TagFormat* format,
                      int depth) {
  const absl::StatusOr<simdjson::dom::array> tags = fields.GetArray(field);
  if (!tags.ok()) return tags.status();
  for (const element value : *tags) {
    const std::string pointer = fmt::format("{}/{}", fields.PointerTo(field), format->parts.size());
    simdjson::dom::object object;
    if (value.get(object)) return InvalidTag(pointer, "not an object; give a tag");
    const TagFields tag_fields(object, pointer);
    // In a list of tags the type goes without saying.
    if (tag_fields.Has("type")) {
      const absl::StatusOr<std::string> type = tag_fields.GetString("type");
      if (!type.ok()) return type.status();
      if (*type != "tag") {
        return InvalidTag(pointer, fmt::format("type is {}; give a tag", QuoteName(*type)));
      }
    }
    TagFormat tag = {.kind = TagFormatKind::kTag, .pointer = pointer};
    absl::Status status = ReadTag(tag_fields, field == "structures", &tag, depth + 1);
    if (!status.ok()) return status;
    format->parts.push_back(std::move(tag));
  }
  if (!format->parts.empty()) return absl::OkStatus();
  return InvalidTag(fields.PointerTo(field), "an empty list; give at least one tag");
}

absl::Status ReadFlags(const TagFields& fields, TagFormat* format) {
  absl::Status status = fields.GetFlag("at_least_one", &format->at_least_one);
  if (!status.ok()) return status;
  return fields.GetFlag("stop_after_first", &format->stop_after_first);
}

absl::Status ReadTriggers(const TagFields& fields, TagFormat* format) {
  absl::StatusOr<std::vector<std::string>> triggers = fields.GetStrings("triggers");
  if (!triggers.ok()) return triggers.status();
  if (triggers->empty()) {
    return InvalidTag(fields.PointerTo("triggers"), "an empty list; give at least one trigger");
  }
  for (size_t i = 0; i < triggers->size(); ++i) {
    if ((*triggers)[i].empty()) {
      return InvalidTag(fmt::format("{}/{}", fields.PointerTo("triggers"), i),
                        "an empty trigger; give the text that begins a tag");
    }
  }
  format->triggers = *std::move(triggers);
  return absl::OkStatus();
}

absl::Status ReadTriggeredTags(const TagFields& fields, TagFormat* format, int depth) {
  absl::Status status = fields.CheckFields(
      {"type", "triggers", "tags", "at_least_one", "stop_after_first", "excludes"});
  if (status.ok()) status = ReadTriggers(fields, format);
  if (status.ok()) status = ReadFlags(fields, format);
  if (status.ok()) status = ReadExcludes(fields, format);
  if (status.ok()) status = ReadTags(fields, "tags", format, depth);
  return status;
}

absl::Status ReadTagsWithSeparator(const TagFields& fields, TagFormat* format, int depth) {
  absl::Status status =
      fields.CheckFields({"type", "tags", "separator", "at_least_one", "stop_after_first"});
  if (!status.ok()) return status;
  absl::StatusOr<std::string> separator = fields.GetString("separator");
  if (!separator.ok()) return separator.status();
  format->text = *std::move(separator);
  if (status = ReadFlags(fields, format); !status.ok()) return status;
  return ReadTags(fields, "tags", format, depth);
}

absl::Status ReadByType(std::string_view type, const TagFields& fields, TagFormat* format,
                        int depth) {
  using Kind = TagFormatKind;
  const auto read_counted = [&](uint32_t min, uint32_t max) {
    format->kind = Kind::kRepeat;
    format->min = min;
    format->max = max;
    absl::Status status = fields.CheckFields({"type", "content"});
    return status.ok() ? ReadContent(fields, format, depth) : status;
  };
  if (type == "const_string") return ReadText(fields, "value", format);
  if (type == "optional") return read_counted(0, 1);
  if (type == "plus") return read_counted(1, kUnbounded);
  if (type == "star") return read_counted(0, kUnbounded);
  if (type == "tag") return ReadTag(fields, /*is_structure=*/false, format, depth);
  if (type == "json_schema") {
    format->kind = Kind::kJsonSchema;
    return ReadJsonSchema(fields, format);
  }
  if (type == "grammar") {
    format->kind = Kind::kGrammar;
    return ReadText(fields, "grammar", format);
  }
  if (type == "regex") {
    format->kind = Kind::kRegex;
    return ReadText(fields, "pattern", format);
  }
  if (type == "any_text") {
    format->kind = Kind::kAnyText;
    return ReadAnyText(fields, format);
  }
  if (type == "sequence" || type == "or") {
    format->kind = type == "or" ? Kind::kOr : Kind::kSequence;
    return ReadElements(fields, format, depth);
  }
  if (type == "repeat") {
    format->kind = Kind::kRepeat;
    return ReadRepeat(fields, format, depth);
  }
  if (type == "triggered_tags") {
    format->kind = Kind::kTriggeredTags;
    return ReadTriggeredTags(fields, format, depth);
  }
  if (type == "tags_with_separator") {
    format->kind = Kind::kTagsWithSeparator;
    return ReadTagsWithSeparator(fields, format, depth);
  }
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), type) != std::end(kUnsupported)) {
    return UnsupportedTag(
        fields.PointerTo("type"),
        fmt::format("unsupported format {}: write it with tag, json_schema, regex "
                    "and grammar",
                    QuoteName(type)));
  }
  return InvalidTag(fields.PointerTo("type"),
                    fmt::format("unknown format {}; known are const_string, json_schema, grammar, "
                                "regex, any_text, sequence, or, optional, plus, star, repeat, tag, "
                                "triggered_tags and tags_with_separator",
                                QuoteName(type)));
}

absl::StatusOr<TagFormat> ReadFormat(const element& value, const std::string& pointer, int depth) {
  if (depth > kTagFormatDepthMax) {
    return TagError(absl::StatusCode::kResourceExhausted, pointer,
                    fmt::format("formats are nested deeper than {} levels, the most that specd "
                                "reads; nest fewer",
                                kTagFormatDepthMax));
  }
  simdjson::dom::object object;
  if (value.get(object)) return InvalidTag(pointer, "not an object; give a format with a type");
  const TagFields fields(object, pointer);
  const absl::StatusOr<std::string> type = fields.GetString("type");
  if (!type.ok()) return type.status();
  TagFormat format;
  format.pointer = pointer;
  absl::Status status = ReadByType(*type, fields, &format, depth);
  if (!status.ok()) return status;
  return format;
}

// The older form: structures and triggers.
absl::StatusOr<TagFormat> ReadStructures(const TagFields& fields) {
  TagFormat format = {.kind = TagFormatKind::kTriggeredTags};
  absl::Status status = fields.CheckFields({"type", "structures", "triggers"});
  if (status.ok()) status = ReadTriggers(fields, &format);
  if (status.ok()) status = ReadTags(fields, "structures", &format, 0);
  if (!status.ok()) return status;
  return format;
}

}  // namespace

absl::StatusOr<TagFormat> ReadTagFormat(std::string_view json) {
  if (json.size() > kStructuralTagSizeBytesMax) {
    return TagError(absl::StatusCode::kResourceExhausted, "",
                    fmt::format("{} bytes, allowed are {}; make it shorter", json.size(),
                                kStructuralTagSizeBytesMax));
  }
  simdjson::dom::parser parser;
  element root;
  if (const simdjson::error_code error = parser.parse(json.data(), json.size()).get(root)) {
    if (absl::Status status = CheckJsonMemory(error); !status.ok()) return status;
    return InvalidTag(
        "", fmt::format("not valid JSON ({}); give an object", simdjson::error_message(error)));
  }
  simdjson::dom::object object;
  if (root.get(object)) return InvalidTag("", "not an object; give one with a type and a format");
  const TagFields fields(object, "");
  const absl::StatusOr<std::string> type = fields.GetString("type");
  if (!type.ok()) return type.status();
  if (*type != "structural_tag") {
    return InvalidTag("/type", fmt::format("type is {}, expected \"structural_tag\"; correct it",
                                           QuoteName(*type)));
  }
  if (fields.Has("structures")) return ReadStructures(fields);
  if (absl::Status status = fields.CheckFields({"type", "format"}); !status.ok()) return status;
  const absl::StatusOr<element> format = fields.Get("format");
  if (!format.ok()) return format.status();
  return ReadFormat(*format, "/format", 1);
}

}  // namespace specd::grammar
