#include "speculative/grammar/xgrammar_warnings.h"
#include "speculative/grammar/xgrammar_json.h"
namespace specd::grammar {
absl::StatusOr<std::vector<std::string>> FindUnenforced(std::string_view schema,
                                                        const std::string&) {
  JsonDocument document;
  if (absl::Status status = document.Parse(schema, "json schema"); !status.ok()) return status;
  return std::vector<std::string>();
}
}
