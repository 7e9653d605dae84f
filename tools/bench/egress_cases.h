// These functions measure the cases of the suite `egress` that have scenes of their own.
//
// Each prints its lines. One at a time, on the calling thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/bench/output.h"

namespace specd::bench {

// From a round's confirmation to its readers, at a steady rate of rounds.
absl::Status MeasureEgressLatency(double seconds, Output* out);

// The text of streams to clients of specd-http, a stream each. `program` is its path.
absl::Status MeasureEgressHttp(const std::string& program, Output* out);

}  // namespace specd::bench
