// CompileCancel asks every compile of the process to end, because the process stops.
//
// While an object is there, a compile that asks IsAsked gives up with Refusal. Waits of compiles
// use the one mutex and condition here, so a cancel ends them too (compile_turns.h). A compile asks
// every few milliseconds of its work: CompileTurn::MayGoOn. Safe from any thread.
//
//   const CompileCancel cancel;  // from here on, compiles end soon
//   for (std::thread& thread : threads) thread.join();
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/status/status.h"

namespace specd::grammar {

class CompileCancel {
 public:
  CompileCancel();
  ~CompileCancel();
  CompileCancel(const CompileCancel&) = delete;
  CompileCancel& operator=(const CompileCancel&) = delete;

  static bool IsAsked();
  // UNAVAILABLE, which no cache keeps.
  static absl::Status Refusal();
  // Also if its text has got a part in front, as the name of a field, and if its code has changed.
  static bool IsRefusal(const absl::Status& status);

  // For waits that end when IsAsked() becomes true.
  struct Waits {
    std::mutex mutex;
    std::condition_variable changed;
  };
  static Waits& waits();
};

}  // namespace specd::grammar
