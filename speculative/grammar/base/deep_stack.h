// RunOnDeepStack calls a function on a thread with a stack of a given size, and waits for it.
//
// A library that recurses as deep as its input says would overflow an ordinary stack. Pages of the
// stack that the function does not reach take no memory. Use it for calls of milliseconds: a thread
// is made for each. Any number of threads may call.
//
//   absl::Status status = RunOnDeepStack(64 << 20, [&] { tree = Parse(text); });
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace specd::grammar {

// Unavailable if the system gives no such thread now; the function did not run then. The caller
// gets the exception that the function throws.
absl::Status RunOnDeepStack(size_t stack_bytes, absl::FunctionRef<void()> function);

}  // namespace specd::grammar
