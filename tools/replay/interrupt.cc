#include "tools/replay/interrupt.h"

#include <csignal>

namespace specd::replay {
namespace {

volatile std::sig_atomic_t was_interrupted = 0;

void Note(int) { was_interrupted = 1; }

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = Note;
  action.sa_flags = SA_RESETHAND;  // the second signal has its usual effect
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool WasInterrupted() { return was_interrupted != 0; }

absl::Status Interrupted() { return absl::CancelledError("interrupted"); }

}  // namespace specd::replay
