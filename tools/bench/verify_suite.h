// MeasureVerify measures rounds on a backend for `specd-bench verify`, beside a read of the same
// rows, chains over them, or a peer.
//
// For every combination that was asked for, it makes the rows and lets the backend run every round
// once. It compares the tokens with the reference. Then it times floor and case in turn until the
// time is used. A round whose answer differs from its first answer is an error. It runs on the
// calling thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "tools/bench/cells.h"

namespace specd::bench {

// The flags are those of VerifyCommand.
absl::StatusOr<std::vector<Measurement>> MeasureVerify(
    const Flags& flags, const Machine& machine,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<Backend>>()> make_backend, Output* out);

}  // namespace specd::bench
