// SlowCompile runs the compiles of a library that cannot be interrupted, one at a time in a
// process, on a thread of its own.
//
// The caller waits until a deadline and then refuses the constraint by name. The thread runs on; a
// thread cannot be ended from outside. Until it ends, each caller of another compile waits for its
// turn, for a short time: the caller's thread may be one that other openings need. A process that
// stops does not wait: CompileCancel ends all waits, and the thread is left behind until the
// process ends. The function owns what it uses. Safe from any thread.
//
//   auto compiled = SlowCompile({.deadline_ms = 30000}, [request, library] { ... });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "speculative/grammar/grammar_backend.h"

namespace specd::grammar {

using CompileResult = absl::StatusOr<std::shared_ptr<const CompiledGrammar>>;

struct SlowCompileOptions {
  int64_t deadline_ms = 30000;
  int64_t turn_ms = 1000;  // the wait for another compile to end
};

// DEADLINE_EXCEEDED: the compile took longer than the deadline. UNAVAILABLE: its turn did not come
// in time, the process stops, or the system gives no thread. An exception of `compile` becomes
// UNAVAILABLE too.
CompileResult SlowCompile(const SlowCompileOptions& options,
                          std::function<CompileResult()> compile);

// A compile that its caller gave up still runs. Destructors of static objects must not run beside
// it: end the process with std::_Exit.
bool IsCompileLeftBehind();

}  // namespace specd::grammar
