// ReadProfileFile reads the facts of a model from a JSON file, for a daemon's --profile and for
// specd_options.profile_file.
//
// Every key is optional. docs/DAEMON.md, "Models", lists them. A key that is unknown or given twice
// is refused, so a misspelt one is never silently without effect. An error has the path of the file
// and the place: a byte of text that is no JSON, or the JSON pointer of a value. The path of the
// tokenizer is relative to the folder of the file. LoadModelProfile checks what the values mean.
// Safe from any thread.
//
//   {"tokenizer": "tokenizer.json", "eos_tokens": ["<|im_end|>"], "reasoning_end": "</think>"}
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/session/model_profile.h"

namespace specd {

absl::StatusOr<ModelProfileOptions> ReadProfileFile(const std::string& path);

// The same from memory; `path` names it in errors, and its folder is that of the tokenizer.
absl::StatusOr<ModelProfileOptions> ParseProfile(std::string_view json, const std::string& path);

}  // namespace specd
