#include "speculative/grammar/base/compile_turns.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <mutex>

#include "speculative/grammar/base/compile_cancel.h"

namespace specd::grammar {
namespace {

thread_local CompileTurn* current = nullptr;
thread_local int64_t current_begin_ns = 0;  // in the time that this thread has run

int64_t ThreadNs() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Beside an ordinary thread, one of this niceness gets a tenth of a processor. An ordinary thread
// that wakes seldom waits for it.
constexpr int kLongNiceness = 10;

// In Linux, a niceness is of a thread. Where the system refuses, the thread keeps its own.
void LowerPriority() {
  const int niceness = getpriority(PRIO_PROCESS, 0);
  if (niceness < kLongNiceness) (void)setpriority(PRIO_PROCESS, 0, kLongNiceness);
}

}  // namespace

CompileTurns& CompileTurns::OfProcess() {
  // A compile may run until the process ends, so it is never destroyed.
  static CompileTurns* const turns = new CompileTurns;
  return *turns;
}

size_t CompileTurns::num_waiting() const {
  const std::lock_guard lock(CompileCancel::waits().mutex);
  return waiting_.size();
}

bool CompileTurns::Take(const CompileTurn* turn) {
  CompileCancel::Waits& waits = CompileCancel::waits();
  std::unique_lock lock(waits.mutex);
  waiting_.push_back(turn);
  waits.changed.wait(lock, [&] {
    return CompileCancel::IsAsked() || (num_running_ < num_max_ && waiting_.front() == turn);
  });
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), turn));
  const bool has_turn = !CompileCancel::IsAsked();
  if (has_turn) ++num_running_;
  waits.changed.notify_all();  // the next one may be first now
  return has_turn;
}

void CompileTurns::GiveBack() {
  CompileCancel::Waits& waits = CompileCancel::waits();
  const std::lock_guard lock(waits.mutex);
  --num_running_;
  waits.changed.notify_all();
}

CompileTurn::CompileTurn(CompileTurns* turns) : turns_(*turns), on_thread_(this) {}

CompileTurn::~CompileTurn() {
  if (is_long_) turns_.GiveBack();
}

bool CompileTurn::MayGoOn() {
  if (CompileCancel::IsAsked()) return false;
  if (current == nullptr || current->is_long_ || current->turns_.num_max_ == 0 ||
      ThreadNs() - current_begin_ns < current->turns_.short_ns_) {
    return true;
  }
  LowerPriority();
  current->is_long_ = current->turns_.Take(current);
  return current->is_long_;
}

CompileTurn* CompileTurn::OfThread() { return current; }

CompileTurn::OnThread::OnThread(CompileTurn* turn)
    : outer_(current), outer_begin_ns_(current_begin_ns) {
  current = turn;
  current_begin_ns = ThreadNs();
}

CompileTurn::OnThread::~OnThread() {
  current = outer_;
  current_begin_ns = outer_begin_ns_;
}

}  // namespace specd::grammar
