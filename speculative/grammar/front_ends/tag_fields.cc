#include "speculative/grammar/front_ends/tag_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "speculative/grammar/base/hash_tables.h"

namespace specd::grammar {

using simdjson::dom::element;

absl::Status TagError(absl::StatusCode code, std::string_view pointer, std::string_view message) {
  return absl::Status(
      code, fmt::format("structural tag{}{}: {}", pointer.empty() ? "" : " ", pointer, message));
}

absl::Status InvalidTag(std::string_view pointer, std::string_view message) {
  return TagError(absl::StatusCode::kInvalidArgument, pointer, message);
}

absl::Status UnsupportedTag(std::string_view pointer, std::string_view message) {
  return TagError(absl::StatusCode::kUnimplemented, pointer, message);
}

std::string QuoteName(std::string_view name) {
  constexpr size_t kQuotedMax = 60;
  if (name.size() > kQuotedMax) return "(a long name)";
  return "\"" + absl::Utf8SafeCHexEscape({name.data(), name.size()}) + "\"";
}

std::string TagFields::PointerTo(std::string_view field) const {
  return fmt::format("{}/{}", pointer_, field);
}

absl::Status TagFields::CheckFields(std::initializer_list<std::string_view> known) const {
  HashSet<std::string_view> seen;
  for (const auto field : object_) {
    if (!seen.insert(field.key).second) {
      return InvalidTag(pointer_,
                        fmt::format("field {} is there twice; remove one", QuoteName(field.key)));
    }
    if (std::find(known.begin(), known.end(), field.key) == known.end()) {
      return UnsupportedTag(pointer_, fmt::format("unsupported field {}: known are {}; remove it",
                                                  QuoteName(field.key), fmt::join(known, ", ")));
    }
  }
  return absl::OkStatus();
}

bool TagFields::Has(std::string_view field) const {
  element value;
  return !object_[field].get(value) && !value.is_null();
}

absl::StatusOr<element> TagFields::Get(std::string_view field) const {
  element value;
  if (object_[field].get(value)) {
    return InvalidTag(pointer_, fmt::format("field \"{}\" is missing; add it", field));
  }
  return value;
}

absl::StatusOr<std::string> TagFields::GetString(std::string_view field) const {
  const absl::StatusOr<element> value = Get(field);
  if (!value.ok()) return value.status();
  std::string_view text;
  if (value->get(text)) return InvalidTag(PointerTo(field), "not a string; put it into quotes");
  return std::string(text);
}

absl::StatusOr<simdjson::dom::array> TagFields::GetArray(std::string_view field) const {
  const absl::StatusOr<element> value = Get(field);
  if (!value.ok()) return value.status();
  simdjson::dom::array array;
  if (value->get(array)) return InvalidTag(PointerTo(field), "not an array; give a list");
  return array;
}

absl::StatusOr<std::vector<std::string>> TagFields::GetStrings(std::string_view field) const {
  const absl::StatusOr<simdjson::dom::array> array = GetArray(field);
  if (!array.ok()) return array.status();
  std::vector<std::string> strings;
  for (const element value : *array) {
    std::string_view text;
    if (value.get(text)) {
      return InvalidTag(fmt::format("{}/{}", PointerTo(field), strings.size()),
                        "not a string; put it into quotes");
    }
    strings.emplace_back(text);
  }
  return strings;
}

absl::Status TagFields::GetFlag(std::string_view field, bool* flag) const {
  if (!Has(field)) return absl::OkStatus();
  if (Get(field)->get(*flag)) return InvalidTag(PointerTo(field), "not true or false; give one");
  return absl::OkStatus();
}

}  // namespace specd::grammar
