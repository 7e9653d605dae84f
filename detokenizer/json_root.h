// JsonRoot reads the root object of a JSON file for the loaders of this folder.
//
// If the file is none, the error says what it is instead: empty, a Git LFS pointer, cut short. The
// object owns the strings that elements of the root point into. Not safe for use by two threads at
// once.
#pragma once

#include <simdjson.h>

#include <string_view>

#include "absl/status/status.h"

namespace specd {

class JsonRoot {
 public:
  // Errors begin with `name`, the path of the file. Call it once.
  absl::Status Parse(std::string_view json, std::string_view name);

  const simdjson::dom::element& root() const { return root_; }
  bool Has(std::string_view key) const { return root_[key].error() == simdjson::SUCCESS; }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

}  // namespace specd
