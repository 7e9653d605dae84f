#include "speculative/grammar/json_schema/schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"

namespace specd::grammar {
namespace {

bool HasScheme(std::string_view uri) {
  const size_t colon = uri.find(':');
  return colon != std::string_view::npos && colon > 0 && uri.find('/') >= colon;
}

// %XX becomes a byte. False if a % is not followed by two hexadecimal digits.
bool DecodePercent(std::string_view text, std::string* decoded) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      *decoded += text[i];
      continue;
    }
    const std::string digits(text.substr(i + 1, 2));
    if (digits.size() < 2 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) {
      return false;
    }
    *decoded += absl::HexStringToBytes(digits);
    i += 2;
  }
  return true;
}

// One step of a JSON pointer: ~1 is a slash, ~0 a tilde. False for any other tilde.
bool DecodeStep(std::string_view step, std::string* decoded) {
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] != '~') {
      *decoded += step[i];
      continue;
    }
    ++i;
    if (i == step.size() || (step[i] != '0' && step[i] != '1')) return false;
    *decoded += step[i] == '0' ? '~' : '/';
  }
  return true;
}

// Instances stand under these keywords: an $anchor in them names nothing.
bool HoldsInstances(std::string_view keyword) {
  return keyword == "const" || keyword == "enum" || keyword == "default" || keyword == "examples";
}

// Names that the schema's author chose stand under these keywords.
bool HoldsNames(std::string_view keyword) {
  return keyword == "properties" || keyword == "patternProperties" || keyword == "$defs" ||
         keyword == "definitions" || keyword == "dependentSchemas" || keyword == "dependencies";
}

// Follows a JSON pointer that begins with a slash. Null if it leads nowhere.
const JsonValue* Follow(const JsonValue& from, std::string_view pointer) {
  const JsonValue* at = &from;
  while (!pointer.empty()) {
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string step;
    if (!DecodeStep(pointer.substr(1, end - 1), &step)) return nullptr;
    pointer.remove_prefix(end);
    if (at->IsObject()) {
      at = at->Find(step);
      if (at == nullptr) return nullptr;
      continue;
    }
    constexpr size_t kPositionSizeMax = 9;
    const bool is_position = !step.empty() && step.size() <= kPositionSizeMax &&
                             step.find_first_not_of("0123456789") == step.npos &&
                             (step.size() == 1 || step[0] != '0');
    if (!at->IsArray() || !is_position) return nullptr;
    const size_t position = std::stoul(step);
    if (position >= at->values.size()) return nullptr;
    at = &at->values[position];
  }
  return at;
}

}  // namespace

bool IsDraft4(const JsonValue& schema) {
  const JsonValue* root = &schema;
  while (root->parent != nullptr) root = root->parent;
  const JsonValue* dialect = root->Find("$schema");
  return dialect != nullptr && dialect->text.find("draft-04") != std::string::npos;
}

absl::StatusOr<SchemaDocument> SchemaDocument::Parse(std::string_view json) {
  SchemaDocument document;
  absl::StatusOr<std::unique_ptr<const JsonValue>> root = ParseJson(json);
  if (!root.ok()) return root.status();
  document.root_ = *std::move(root);
  if (IsDraft4(*document.root_)) document.id_keyword_ = "id";
  document.CollectNamed();
  return document;
}

void SchemaDocument::CollectNamed() {
  struct Place {
    const JsonValue* value;
    bool holds_names;
  };
  std::vector<Place> open = {{root_.get(), false}};
  while (!open.empty()) {
    const Place place = open.back();
    open.pop_back();
    const JsonValue& value = *place.value;
    const bool is_schema = value.IsObject() && !place.holds_names;
    const bool is_named = value.Find("$id") != nullptr || value.Find("id") != nullptr ||
                          value.Find("$anchor") != nullptr ||
                          value.Find("$dynamicAnchor") != nullptr;
    if (is_schema && is_named) named_.push_back(&value);
    for (size_t i = 0; i < value.values.size(); ++i) {
      if (is_schema && HoldsInstances(value.names[i])) continue;
      open.push_back({&value.values[i], is_schema && HoldsNames(value.names[i])});
    }
  }
}

std::string_view SchemaDocument::IdOf(const JsonValue& value) const {
  const JsonValue* id = value.Find(id_keyword_);
  // Draft 7 and before write an anchor as an $id that begins with #.
  const bool is_id = id != nullptr && id->IsString() && !id->text.empty() && id->text[0] != '#';
  return is_id ? std::string_view(id->text) : std::string_view();
}

bool SchemaDocument::HasAnchor(const JsonValue& value, std::string_view name) const {
  for (const std::string_view keyword : {"$anchor", "$dynamicAnchor"}) {
    const JsonValue* anchor = value.Find(keyword);
    if (anchor != nullptr && anchor->IsString() && anchor->text == name) return true;
  }
  for (const std::string_view keyword : {"$id", "id"}) {
    const JsonValue* id = value.Find(keyword);
    if (id != nullptr && id->IsString() && id->text.size() == name.size() + 1 &&
        id->text[0] == '#' && std::string_view(id->text).substr(1) == name) {
      return true;
    }
  }
  return false;
}

const JsonValue* SchemaDocument::ResourceOf(const JsonValue& value) const {
  const JsonValue* at = &value;
  while (at->parent != nullptr && IdOf(*at).empty()) at = at->parent;
  return at;
}

absl::StatusOr<const JsonValue*> SchemaDocument::FindResource(std::string_view uri,
                                                              const JsonValue& from) const {
  const JsonValue* base = ResourceOf(from);
  const JsonValue* found = nullptr;
  for (const JsonValue* candidate : named_) {
    std::string_view id = IdOf(*candidate);
    if (id.empty()) continue;
    if (!id.empty() && id.back() == '#') id.remove_suffix(1);
    if (id != uri) continue;
    // A relative $id means the same as a relative reference only if both start from one base.
    const bool is_same_base = candidate == base || (candidate->parent != nullptr &&
                                                    ResourceOf(*candidate->parent) == base);
    if (!HasScheme(uri) && !is_same_base) continue;
    if (found != nullptr) {
      return absl::UnimplementedError(fmt::format(
          "more than one value has the $id \"{}\"; refer to it with a JSON pointer", uri));
    }
    found = candidate;
  }
  if (found != nullptr) return found;
  return absl::UnimplementedError(
      fmt::format("\"{}\" is not in this document, and nothing is fetched; put that schema under "
                  "$defs and refer to it with #/$defs/NAME",
                  absl::Utf8SafeCHexEscape(std::string(uri))));
}

const JsonValue* SchemaDocument::FindAnchor(std::string_view name,
                                            const JsonValue& resource) const {
  for (const JsonValue* candidate : named_) {
    if (HasAnchor(*candidate, name) && ResourceOf(*candidate) == &resource) return candidate;
  }
  return nullptr;
}

absl::StatusOr<const JsonValue*> SchemaDocument::Resolve(std::string_view ref,
                                                         const JsonValue& from) const {
  const size_t hash = std::min(ref.find('#'), ref.size());
  const std::string_view uri = ref.substr(0, hash);
  const JsonValue* resource = ResourceOf(from);
  if (!uri.empty()) {
    absl::StatusOr<const JsonValue*> found = FindResource(uri, from);
    if (!found.ok()) return found.status();
    resource = *found;
  }
  std::string fragment;
  const JsonValue* target = nullptr;
  if (DecodePercent(ref.substr(std::min(hash + 1, ref.size())), &fragment)) {
    target = fragment.empty()     ? resource
             : fragment[0] == '/' ? Follow(*resource, fragment)
                                  : FindAnchor(fragment, *resource);
  }
  const std::string quoted = absl::Utf8SafeCHexEscape(std::string(ref));
  if (target == nullptr) {
    return SchemaReport::Invalid(
        from, fmt::format("$ref: nothing in the schema is at \"{}\"; correct the pointer", quoted));
  }
  if (!target->IsSchema()) {
    return SchemaReport::Invalid(from, fmt::format("$ref: \"{}\" is {}, expected a schema", quoted,
                                                   NameWithArticle(target->type)));
  }
  return target;
}

absl::Status SchemaReport::Invalid(const JsonValue& schema, std::string_view message) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", PointerOf(schema), message));
}

absl::Status SchemaReport::Refuse(const JsonValue& schema, std::string_view keyword,
                                  std::string_view why) {
  if (lenient_) {
    Warn(schema, fmt::format("{} is not enforced: {}", keyword, why));
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      fmt::format("{}: unsupported {} (remove it, or ask for lenient to drop it): {}",
                  PointerOf(schema), keyword, why));
}

void SchemaReport::Warn(const JsonValue& schema, std::string_view message) {
  std::string warning = fmt::format("{}: {}", PointerOf(schema), message);
  if (known_.insert(warning).second) warnings_.push_back(std::move(warning));
}

}  // namespace specd::grammar
