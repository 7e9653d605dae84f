// MeasureHttp is the case `http` of the suite `egress`: the text of streams to 1, 100 and 1,000
// clients of specd-http, a stream each.
//
// `program` is the path of specd-http. Prints a line for each number of clients. On the calling
// thread, with one more that writes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/bench/output.h"

namespace specd::bench {

absl::Status MeasureHttp(const std::string& program, Output* out);

}  // namespace specd::bench
