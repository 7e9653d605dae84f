// CheckAnswers looks once at every number that a backend from outside answers, for the registry.
//
// Everything behind the seam trusts a round's numbers: they index arrays, and ids go out as tokens.
// The backends of specd are held to them by tests. A plugin is held to them here, by the backend
// that wraps it (BackendRegistry::Make). A wrong number becomes the error of the call, which names
// the backend, the field, its value and the allowed range; the caller treats it as a device that
// failed.
//
//   std::unique_ptr<Backend> checked = WithCheckedAnswers(std::move(of_plugin));
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/core/round.h"

namespace specd {

// Every number of a round that has run, except those of a task that is paused. INTERNAL: one is
// out of range. REQUIRES: the batch is that of Backend::Run, with the answers in place.
absl::Status CheckAnswers(std::string_view backend, int32_t vocab_size, const RoundBatch& batch);

// The same for a transform.
absl::Status CheckAnswers(std::string_view backend, const TransformBatch& batch);

// The backend itself, with its answers checked after every call that gives some.
std::unique_ptr<Backend> WithCheckedAnswers(std::unique_ptr<Backend> backend);

}  // namespace specd
