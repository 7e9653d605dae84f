// TagFields reads the fields of one JSON object of a structural tag, and names the place of an
// error.
//
// Every error has the JSON pointer of the object or field. The object must outlive its TagFields.
// Thread safety: as an int.
//
//   const TagFields fields(object, "/format");
//   absl::StatusOr<std::string> begin = fields.GetString("begin");
#pragma once

#include <simdjson.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace specd::grammar {

// `structural tag POINTER: message`.
absl::Status TagError(absl::StatusCode code, std::string_view pointer, std::string_view message);
absl::Status InvalidTag(std::string_view pointer, std::string_view message);
absl::Status UnsupportedTag(std::string_view pointer, std::string_view message);

// A name from the JSON for an error: short, on one line.
std::string QuoteName(std::string_view name);

class TagFields {
 public:
  TagFields(simdjson::dom::object object, std::string pointer)
      : object_(object), pointer_(std::move(pointer)) {}

  const std::string& pointer() const { return pointer_; }
  std::string PointerTo(std::string_view field) const;

  // A field that specd does not know may forbid something, so that it is refused.
  absl::Status CheckFields(std::initializer_list<std::string_view> known) const;

  // A field that is null counts as missing.
  bool Has(std::string_view field) const;
  absl::StatusOr<simdjson::dom::element> Get(std::string_view field) const;
  absl::StatusOr<std::string> GetString(std::string_view field) const;
  absl::StatusOr<simdjson::dom::array> GetArray(std::string_view field) const;
  absl::StatusOr<std::vector<std::string>> GetStrings(std::string_view field) const;
  // Leaves *flag as it is if the field is missing.
  absl::Status GetFlag(std::string_view field, bool* flag) const;

 private:
  const simdjson::dom::object object_;
  const std::string pointer_;
};

}  // namespace specd::grammar
