// SchemaDocument is the text of a schema, and what its references mean.
//
// References stay inside the document: "#", a JSON pointer, an $anchor, or the $id of a part. An
// embedded $id begins a resource of its own, as the standard says. Immutable after Parse.
//
// SchemaReport collects what lenient mode drops, and turns what it does not drop into an error that
// names the place, the keyword and the remedy.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/base/json_value.h"

namespace specd::grammar {

// The document that `schema` is part of says so in its $schema.
bool IsDraft4(const JsonValue& schema);

class SchemaDocument {
 public:
  static absl::StatusOr<SchemaDocument> Parse(std::string_view json);

  const JsonValue& root() const { return *root_; }
  // The schema that the reference `ref` in the schema `from` names.
  absl::StatusOr<const JsonValue*> Resolve(std::string_view ref, const JsonValue& from) const;

 private:
  SchemaDocument() = default;

  // Fills named_.
  void CollectNamed();
  // The $id of `value` if that names a resource, or "".
  std::string_view IdOf(const JsonValue& value) const;
  bool HasAnchor(const JsonValue& value, std::string_view name) const;
  // The closest resource that `value` is part of: `value` itself if it has an $id, or the root.
  const JsonValue* ResourceOf(const JsonValue& value) const;
  absl::StatusOr<const JsonValue*> FindResource(std::string_view uri, const JsonValue& from) const;
  const JsonValue* FindAnchor(std::string_view name, const JsonValue& resource) const;

  std::unique_ptr<const JsonValue> root_;
  std::string_view id_keyword_ = "$id";  // draft 4 says id
  std::vector<const JsonValue*> named_;  // objects with an $id or an anchor
};

class SchemaReport {
 public:
  SchemaReport(bool lenient, std::vector<std::string>* warnings)
      : lenient_(lenient), warnings_(*warnings), known_(warnings->begin(), warnings->end()) {}

  bool is_lenient() const { return lenient_; }

  // The schema itself is wrong.
  static absl::Status Invalid(const JsonValue& schema, std::string_view message);
  // `keyword` cannot be enforced exactly, because of `why`. OK if it may be dropped.
  absl::Status Refuse(const JsonValue& schema, std::string_view keyword, std::string_view why);
  void Warn(const JsonValue& schema, std::string_view message);

 private:
  const bool lenient_;
  std::vector<std::string>& warnings_;
  HashSet<std::string> known_;  // each warning is there once
};

}  // namespace specd::grammar
