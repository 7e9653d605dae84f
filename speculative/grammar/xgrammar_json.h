// JsonDocument parses a constraint's JSON text for the xgrammar backend.
//
//   JsonDocument document;
//   if (absl::Status status = document.Parse(text, "choice"); !status.ok()) return status;
//   use(document.root());
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "speculative/grammar/json_value.h"

namespace specd::grammar {

// The library walks JSON recursively; kJsonDepthMax keeps it, and our walk, off the end of the
// stack.
class JsonDocument {
 public:
  // `name` says in errors which text this is.
  absl::Status Parse(std::string_view text, std::string_view name);
  simdjson::dom::element root() const { return root_; }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

// The text between quotes, escaped. REQUIRES: the text is UTF-8.
std::string ToJsonString(std::string_view text);

// A JSON pointer continued by one name.
std::string JoinPointer(const std::string& pointer, std::string_view name);

}  // namespace specd::grammar
