// CheckJsonMemory tells a lack of memory from a fault of a JSON text, for the readers of JSON.
//
// simdjson reports both as error codes. A text that could not be read now may be right, so the
// refusal must not be kept (CompileCache).
//
//   const simdjson::error_code error = parser.parse(json).get(root);
//   if (absl::Status status = CheckJsonMemory(error); !status.ok()) return status;
#pragma once

#include <simdjson.h>

#include "absl/status/status.h"

namespace specd::grammar {

inline absl::Status CheckJsonMemory(simdjson::error_code error) {
  if (error != simdjson::MEMALLOC) return absl::OkStatus();
  return absl::UnavailableError("no memory is left to read the JSON text; try again later");
}

}  // namespace specd::grammar
