#include "speculative/grammar/base/compile_cancel.h"

#include <atomic>

#include "absl/strings/match.h"

namespace specd::grammar {
namespace {

std::atomic<int> num_cancels{0};  // orders nothing: a compile sees it with one of its next looks

}  // namespace

CompileCancel::Waits& CompileCancel::waits() {
  // Never destroyed: a process may end while a thread of its engine compiles.
  static Waits* const waits = new Waits;
  return *waits;
}

CompileCancel::CompileCancel() {
  // With the lock: a thread that has just looked, and is about to wait, is told.
  const std::lock_guard lock(waits().mutex);
  num_cancels.fetch_add(1, std::memory_order_relaxed);
  waits().changed.notify_all();
}

CompileCancel::~CompileCancel() { num_cancels.fetch_sub(1, std::memory_order_relaxed); }

bool CompileCancel::IsAsked() { return num_cancels.load(std::memory_order_relaxed) > 0; }

absl::Status CompileCancel::Refusal() { return absl::UnavailableError("specd stops"); }

bool CompileCancel::IsRefusal(const absl::Status& status) {
  return absl::EndsWith(status.message(), Refusal().message());
}

}  // namespace specd::grammar
