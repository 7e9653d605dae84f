// EmbeddedModelOf reads the facts of the model from an engine's options, for Engine::Open.
//
// The facts are the tokenizer, the ids that end an output, and the texts around reasoning. An
// embedded engine has them in its options, and a daemon in its flags. A pure function.
#pragma once

#include "absl/status/statusor.h"
#include "daemon/client/embedded_profile.h"
#include "ipc/include/specd/specd.h"

namespace specd {

absl::StatusOr<EmbeddedModel> EmbeddedModelOf(const specd_options& options);

}  // namespace specd
