#include "speculative/grammar/front_ends/structural_tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/front_ends/ebnf.h"
#include "speculative/grammar/front_ends/free_text.h"
#include "speculative/grammar/front_ends/tag_fields.h"
#include "speculative/grammar/front_ends/tag_format.h"

namespace specd::grammar {
namespace {

using Strings = std::vector<std::string>;

// The states of all free text of a structural tag, estimated from the sizes of what ends it.
constexpr size_t kScansMax = 1 << 19;

// The text after a format.
struct Following {
  // Another format follows, or the format may repeat. Free text cannot tell where to end.
  bool is_format = false;
  // Otherwise one of these ends of the tag around it; empty: the end of the whole text.
  const Strings* ends = nullptr;
};

constexpr Following kFormatFollows = {.is_format = true, .ends = nullptr};

bool HasText(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

class TagBuilder {
 public:
  TagBuilder(const StructuralTagOptions& options, GrammarRules* rules,
             std::vector<std::string>* warnings)
      : options_(options), rules_(rules), warnings_(warnings) {}

  // The format and what follows it, unless another format does.
  absl::StatusOr<ExprId> Build(const TagFormat& format, const Following& following);

 private:
  // A tag in free text: its first bytes are a trigger.
  struct Tag {
    const TagFormat* format = nullptr;
    ExprId rest = 0;  // after `begin`
  };

  absl::StatusOr<ExprId> BuildPart(const TagFormat& format);
  absl::StatusOr<ExprId> BuildAnyText(const TagFormat& format, const Following& following);
  absl::StatusOr<ExprId> BuildSequence(const TagFormat& format, const Following& following);
  absl::StatusOr<ExprId> BuildOr(const TagFormat& format, const Following& following);
  absl::StatusOr<ExprId> BuildRepeat(const TagFormat& format);
  absl::StatusOr<ExprId> BuildTag(const TagFormat& format, const Following& following);
  absl::StatusOr<ExprId> BuildTagsWithSeparator(const TagFormat& format);
  absl::StatusOr<ExprId> BuildTriggeredTags(const TagFormat& format, const Following& following);

  absl::StatusOr<ExprId> BuildTagRest(const TagFormat& tag, const Following& following);
  absl::StatusOr<List<Tag>> BuildTags(const TagFormat& format);
  // One of the tags, after the first `trigger` bytes of their begin.
  ExprId AnyTag(const List<Tag>& tags, std::string_view trigger);
  absl::StatusOr<FreeText> Scan(const TagFormat& format, const std::vector<Strings>& groups,
                                const Strings& excludes);
  absl::Status TakeBudget(const TagFormat& format, const Strings& ends);
  ExprId WithEnd(ExprId expr, const Following& following);

  const StructuralTagOptions& options_;
  GrammarRules* const rules_;
  std::vector<std::string>* const warnings_;
  size_t scans_budget_ = kScansMax;
  HashMap<const Strings*, ExprId> any_end_;  // one expression for each tag's ends
};

// A marker ends the text, so that it may be excluded from the text too. A marker that holds an
// excluded string could never come.
absl::StatusOr<Strings> CheckExcludes(const TagFormat& format, const Strings& markers) {
  Strings kept;
  for (size_t i = 0; i < format.excludes.size(); ++i) {
    const std::string& excluded = format.excludes[i];
    bool is_kept = true;
    for (const std::string& marker : markers) {
      if (excluded == marker) {
        is_kept = false;
      } else if (HasText(marker, excluded)) {
        return InvalidTag(
            fmt::format("{}/excludes/{}", format.pointer, i),
            fmt::format("the string is in {}, which ends the text; remove it", QuoteName(marker)));
      }
    }
    if (is_kept) kept.push_back(excluded);
  }
  return kept;
}

// Each trigger begins a tag, each tag begins with a trigger, and a text that is read from left to
// right has one answer.
absl::Status CheckTriggers(const TagFormat& format, const Strings& ends) {
  const auto begins = [](const TagFormat& tag, const std::string& trigger) {
    return std::string_view(tag.begin).substr(0, trigger.size()) == trigger;
  };
  for (size_t i = 0; i < format.triggers.size(); ++i) {
    const std::string& trigger = format.triggers[i];
    const std::string pointer = fmt::format("{}/triggers/{}", format.pointer, i);
    if (std::none_of(format.parts.begin(), format.parts.end(),
                     [&](const TagFormat& tag) { return begins(tag, trigger); })) {
      return InvalidTag(pointer, "no tag begins with this trigger; remove it, or add a tag");
    }
    for (const std::string& other : format.triggers) {
      if (other == trigger || !HasText(trigger, other)) continue;
      return InvalidTag(pointer, fmt::format("the trigger holds trigger {}, which is complete "
                                             "first; remove one of them",
                                             QuoteName(other)));
    }
    for (const std::string& end : ends) {
      if (!HasText(trigger, end) && !HasText(end, trigger)) continue;
      return InvalidTag(pointer, fmt::format("the trigger and {}, the end of the tag around it, "
                                             "hold one another; change one of them",
                                             QuoteName(end)));
    }
  }
  for (const TagFormat& tag : format.parts) {
    if (std::none_of(format.triggers.begin(), format.triggers.end(),
                     [&](const std::string& trigger) { return begins(tag, trigger); })) {
      return InvalidTag(tag.pointer + "/begin",
                        "the tag begins with no trigger; add its begin to the triggers");
    }
  }
  return absl::OkStatus();
}

absl::Status FreeTextNeedsEnd(const TagFormat& format) {
  return UnsupportedTag(format.pointer,
                        "unsupported free text before another format: nothing tells where it "
                        "ends; put it into a tag of its own, with an end");
}

absl::StatusOr<ExprId> TagBuilder::Build(const TagFormat& format, const Following& following) {
  switch (format.kind) {
    case TagFormatKind::kAnyText:
      return BuildAnyText(format, following);
    case TagFormatKind::kTriggeredTags:
      return BuildTriggeredTags(format, following);
    case TagFormatKind::kSequence:
      return BuildSequence(format, following);
    case TagFormatKind::kOr:
      return BuildOr(format, following);
    case TagFormatKind::kTag:
      return BuildTag(format, following);
    default:
      break;
  }
  absl::StatusOr<ExprId> expr = format.kind == TagFormatKind::kRepeat ? BuildRepeat(format)
                                : format.kind == TagFormatKind::kTagsWithSeparator
                                    ? BuildTagsWithSeparator(format)
                                    : BuildPart(format);
  if (!expr.ok()) return expr;
  return WithEnd(*expr, following);
}

ExprId TagBuilder::WithEnd(ExprId expr, const Following& following) {
  if (following.is_format || following.ends->empty()) return expr;
  const auto [any_end, is_new] = any_end_.try_emplace(following.ends, 0);
  if (is_new) {
    List<ExprId> parts;
    for (const std::string& end : *following.ends) parts.push_back(rules_->Literal(end));
    any_end->second = rules_->AnyOf(parts);
  }
  return rules_->Sequence({expr, any_end->second});
}

// The same ends are around many texts, so that all automata together are limited, and not each one.
absl::Status TagBuilder::TakeBudget(const TagFormat& format, const Strings& ends) {
  size_t size_bytes = 0;
  for (const Strings* strings : {&format.triggers, &format.excludes, &ends}) {
    for (const std::string& text : *strings) size_bytes += text.size() + 1;
  }
  const size_t num_automata = format.triggers.size() + 1;
  // An automaton has a state for each byte, and some within a character.
  constexpr size_t kCharacterStates = 8;
  const size_t num_states_max = scans_budget_ / num_automata;
  if (size_bytes + kCharacterStates > num_states_max) {
    return TagError(absl::StatusCode::kResourceExhausted, format.pointer,
                    fmt::format("free text with its triggers, ends and excluded strings needs more "
                                "than {} states in all; give fewer or shorter ones",
                                kScansMax));
  }
  scans_budget_ -= (size_bytes + kCharacterStates) * num_automata;
  return absl::OkStatus();
}

absl::StatusOr<FreeText> TagBuilder::Scan(const TagFormat& format,
                                          const std::vector<Strings>& groups,
                                          const Strings& excludes) {
  absl::StatusOr<FreeText> text = FreeText::Create(groups, excludes);
  if (text.ok()) return text;
  const absl::string_view message = text.status().message();
  return TagError(text.status().code(), format.pointer, {message.data(), message.size()});
}

absl::StatusOr<ExprId> TagBuilder::BuildPart(const TagFormat& format) {
  if (format.kind == TagFormatKind::kConstString) return rules_->Literal(format.text);
  const size_t num_warnings = warnings_->size();
  absl::StatusOr<ExprId> part = absl::UnimplementedError("unsupported here: use another format");
  if (format.kind == TagFormatKind::kGrammar) {
    part = ParseEbnf(format.text, {}, rules_);
  } else {
    const bool is_regex = format.kind == TagFormatKind::kRegex;
    const auto& build = is_regex           ? options_.build_regex
                        : format.any_order ? options_.build_schema_in_any_order
                                           : options_.build_schema;
    if (build != nullptr) part = build(format.text, rules_, warnings_);
  }
  for (size_t i = num_warnings; i < warnings_->size(); ++i) {
    (*warnings_)[i] = fmt::format("structural tag {}: {}", format.pointer, (*warnings_)[i]);
  }
  if (part.ok()) return part;
  const absl::string_view message = part.status().message();
  return TagError(part.status().code(), format.pointer, {message.data(), message.size()});
}

absl::StatusOr<ExprId> TagBuilder::BuildAnyText(const TagFormat& format,
                                                const Following& following) {
  if (following.is_format) return FreeTextNeedsEnd(format);
  if (absl::Status status = TakeBudget(format, *following.ends); !status.ok()) return status;
  const absl::StatusOr<Strings> excludes = CheckExcludes(format, *following.ends);
  if (!excludes.ok()) return excludes.status();
  const absl::StatusOr<FreeText> text = Scan(format, {*following.ends}, *excludes);
  if (!text.ok()) return text.status();
  return rules_->Automaton(following.ends->empty() ? text->Without() : text->Through(0));
}

absl::StatusOr<ExprId> TagBuilder::BuildSequence(const TagFormat& format,
                                                 const Following& following) {
  List<ExprId> parts;
  for (const TagFormat& part : format.parts) {
    const bool is_last = &part == &format.parts.back();
    const absl::StatusOr<ExprId> expr = Build(part, is_last ? following : kFormatFollows);
    if (!expr.ok()) return expr;
    parts.push_back(*expr);
  }
  return rules_->Sequence(parts);
}

absl::StatusOr<ExprId> TagBuilder::BuildOr(const TagFormat& format, const Following& following) {
  List<ExprId> parts;
  for (const TagFormat& part : format.parts) {
    const absl::StatusOr<ExprId> expr = Build(part, following);
    if (!expr.ok()) return expr;
    parts.push_back(*expr);
  }
  return rules_->AnyOf(parts);
}

absl::StatusOr<ExprId> TagBuilder::BuildRepeat(const TagFormat& format) {
  const absl::StatusOr<ExprId> part = Build(format.parts[0], kFormatFollows);
  if (!part.ok()) return part;
  return rules_->Repeat(*part, format.min, format.max);
}

// The content and the end. An empty end says that the tag ends with its content.
absl::StatusOr<ExprId> TagBuilder::BuildTagRest(const TagFormat& tag, const Following& following) {
  if (tag.ends[0].empty()) return Build(tag.parts[0], following);
  const absl::StatusOr<ExprId> rest = Build(tag.parts[0], {.is_format = false, .ends = &tag.ends});
  if (!rest.ok()) return rest;
  return WithEnd(*rest, following);
}

absl::StatusOr<ExprId> TagBuilder::BuildTag(const TagFormat& format, const Following& following) {
  const absl::StatusOr<ExprId> rest = BuildTagRest(format, following);
  if (!rest.ok()) return rest;
  return rules_->Sequence({rules_->Literal(format.begin), *rest});
}

absl::StatusOr<List<TagBuilder::Tag>> TagBuilder::BuildTags(const TagFormat& format) {
  List<Tag> tags;
  for (const TagFormat& tag : format.parts) {
    const absl::StatusOr<ExprId> rest = BuildTagRest(tag, kFormatFollows);
    if (!rest.ok()) return rest.status();
    // A rule, because a tag may be called from several places.
    const RuleId rule = rules_->AddRule(tag.pointer);
    rules_->Define(rule, *rest);
    tags.push_back({.format = &tag, .rest = rules_->Call(rule)});
  }
  return tags;
}

ExprId TagBuilder::AnyTag(const List<Tag>& tags, std::string_view trigger) {
  List<ExprId> parts;
  for (const Tag& tag : tags) {
    const std::string_view begin = tag.format->begin;
    if (begin.substr(0, trigger.size()) != trigger) continue;
    parts.push_back(rules_->Sequence({rules_->Literal(begin.substr(trigger.size())), tag.rest}));
  }
  return rules_->AnyOf(parts);
}

absl::StatusOr<ExprId> TagBuilder::BuildTagsWithSeparator(const TagFormat& format) {
  const absl::StatusOr<List<Tag>> tags = BuildTags(format);
  if (!tags.ok()) return tags.status();
  const ExprId tag = AnyTag(*tags, "");
  const ExprId list =
      format.stop_after_first
          ? tag
          : rules_->Sequence(
                {tag, rules_->Star(rules_->Sequence({rules_->Literal(format.text), tag}))});
  return format.at_least_one ? list : rules_->Optional(list);
}

// With at_least_one the text begins with a tag, as xgrammar has it.
absl::StatusOr<ExprId> TagBuilder::BuildTriggeredTags(const TagFormat& format,
                                                      const Following& following) {
  const Strings ends = following.is_format ? Strings() : *following.ends;
  if (absl::Status status = TakeBudget(format, ends); !status.ok()) return status;
  if (absl::Status status = CheckTriggers(format, ends); !status.ok()) return status;
  const absl::StatusOr<List<Tag>> tags = BuildTags(format);
  if (!tags.ok()) return tags.status();
  const ExprId first = AnyTag(*tags, "");
  if (format.at_least_one && format.stop_after_first) return WithEnd(first, following);
  if (following.is_format) return FreeTextNeedsEnd(format);

  Strings triggers = format.triggers;
  std::sort(triggers.begin(), triggers.end());
  triggers.erase(std::unique(triggers.begin(), triggers.end()), triggers.end());
  std::vector<Strings> groups;
  for (const std::string& trigger : triggers) groups.push_back({trigger});
  groups.push_back(ends);
  Strings markers = triggers;
  markers.insert(markers.end(), ends.begin(), ends.end());
  const absl::StatusOr<Strings> excludes = CheckExcludes(format, markers);
  if (!excludes.ok()) return excludes.status();
  const absl::StatusOr<FreeText> text = Scan(format, groups, *excludes);
  if (!text.ok()) return text.status();

  List<ExprId> text_and_tag;
  for (size_t i = 0; i < triggers.size(); ++i) {
    text_and_tag.push_back(
        rules_->Sequence({rules_->Automaton(text->Through(i)), AnyTag(*tags, triggers[i])}));
  }
  const ExprId any = rules_->AnyOf(text_and_tag);
  const ExprId last =
      rules_->Automaton(ends.empty() ? text->Without() : text->Through(triggers.size()));
  if (format.stop_after_first) return rules_->AnyOf({last, WithEnd(any, following)});
  const ExprId rest = rules_->Sequence({rules_->Star(any), last});
  return format.at_least_one ? rules_->Sequence({first, rest}) : rest;
}

}  // namespace

absl::StatusOr<ExprId> BuildStructuralTag(std::string_view json,
                                          const StructuralTagOptions& options, GrammarRules* rules,
                                          std::vector<std::string>* warnings) {
  const absl::StatusOr<TagFormat> format = ReadTagFormat(json);
  if (!format.ok()) return format.status();
  const Strings no_ends;
  return TagBuilder(options, rules, warnings)
      .Build(*format, {.is_format = false, .ends = &no_ends});
}

}  // namespace specd::grammar
