// TrialRunner runs trials in child processes, so that one which ends its process is a result too.
//
// A child runs some hundred trials one after the other and reports each through a pipe. If the
// child dies, the trial after the last reported one is the cause, and the next child goes on after
// it. Every trial has a limit of processor time and of memory, which the child sets for itself. The
// calling process must have one thread.
//
//   TrialRunner runner({.num_jobs = 2});
//   runner.Run(100, [&](uint64_t index, absl::FunctionRef<void()> opened) { ... return result; },
//              [&](uint64_t index, const TrialResult& result) { ... return true; });
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tests/fuzz/judge/trial.h"

namespace specd::grammar {

class TrialRunner {
 public:
  struct Options {
    int num_jobs = 1;
    uint64_t batch = 250;      // trials of one child
    double cpu_s = 2.5;        // for the compile with the first mask, and again for the walks
    int64_t memory_bytes = 0;  // above the child's base line; 0: any
    bool is_quiet = false;     // what a dying child prints is dropped
  };
  // Runs trial `index` in a child. `opened` is called when the constraint is open.
  using Work = std::function<TrialResult(uint64_t index, absl::FunctionRef<void()> opened)>;
  // Is told every result, in the order of a batch. False: stop.
  using Sink = std::function<bool(uint64_t index, const TrialResult& result)>;

  explicit TrialRunner(const Options& options) : options_(options) {}

  void Run(uint64_t num_trials, const Work& work, const Sink& sink);

 private:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  struct Child {
    pid_t pid = 0;
    int pipe = -1;
    Range range = {};           // that is left
    bool is_open = false;       // the present trial's constraint
    std::string received = {};  // a part of a line
  };

  void Start(const Range& range, const Work& work);
  [[noreturn]] void RunChild(const Range& range, const Work& work, int pipe) const;
  // False: the sink wants no more.
  bool Read(Child* child, const Sink& sink);
  bool TakeLine(Child* child, std::string_view line, const Sink& sink);
  bool Bury(Child* child, const Sink& sink);
  void KillAll();

  const Options options_;
  std::deque<Range> ranges_;
  std::vector<Child> children_;
};

}  // namespace specd::grammar
