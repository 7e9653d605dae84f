// DaemonMeters lays the meters of a daemon into its counters file, and hands each thread its own.
//
// Made before any thread, and destroyed after all. Of the functions only CountCompile and Sums may
// be called by any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "daemon/base/mutex.h"
#include "daemon/metrics/meters.h"
#include "ipc/counters/counter_file.h"

namespace specd {

// ControlMeters::state.
enum class DaemonPhase : uint64_t { kStarting = 0, kServing = 1, kDraining = 2 };

class DaemonMeters {
 public:
  struct Options {
    std::string path = {};  // of the file; "": no other process reads the meters
    uint64_t epoch = 0;
    std::string version = {};
    std::string device = {};
    std::vector<std::string> models = {};  // each once; "" is the one without a name
  };
  static absl::StatusOr<std::unique_ptr<DaemonMeters>> Create(const Options& options);

  // REQUIRES: one of the models.
  RoundMeters* OfModel(std::string_view model) { return rounds_.find(model)->second; }
  VerifyMeters* verify() { return &meters_->verify; }
  ControlMeters* control() { return &meters_->control; }
  PublisherMeters* publisher() { return &meters_->publisher; }
  TextMeters* text() { return &meters_->text; }
  void CountCompile(bool is_refused, int64_t ns) ABSL_LOCKS_EXCLUDED(compile_mutex_);
  void SetPhase(DaemonPhase phase) { meters_->control.state.Set(static_cast<uint64_t>(phase)); }

  // What all sessions have counted, those that run included.
  Counters Sums() const;

  // All meters but those of rounds, which follow, one for each model.
  struct Meters {
    VerifyMeters verify;
    CompileMeters compile;
    ControlMeters control;
    PublisherMeters publisher;
    TextMeters text;
  };

 private:
  DaemonMeters(CounterFile file, const Options& options);

  const CounterFile file_;
  Meters* const meters_;
  std::map<std::string, RoundMeters*, std::less<>> rounds_;
  Mutex compile_mutex_;  // makes the threads that compile one writer
};

// What stands in the file of such a daemon.
CounterPlan PlanMeters(const DaemonMeters::Options& options);

}  // namespace specd
