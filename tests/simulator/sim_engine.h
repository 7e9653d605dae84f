// SimEngine is an engine of a simulated run: the Engine of libspecd over a link without a socket.
//
// It opens its sequences, submits rounds with drafts, takes the answers, and compares the ends with
// what was expected. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/engine.h"
#include "ipc/base/mapping.h"
#include "tests/simulator/plan.h"
#include "tests/simulator/sim_daemon.h"

namespace specd::sim {

// The other side of all links: the daemon that runs now, or null.
struct Host {
  std::function<SimDaemon*()> daemon;
  // A request is on its way to the daemon, or its reply on the way back: the daemon may die here.
  std::function<void()> on_way = [] {};
};

class SimEngine {
 public:
  struct Options {
    std::vector<SequencePlan> plans;
    // By name; null: nothing is known, and `outcomes` is filled.
    const std::map<std::string, Expected>* expected = nullptr;
    bool alone = false;  // one sequence after another, one token in each round
    // A sequence was copied; afterwards `expected` has the copy.
    std::function<void(const SequencePlan&)> on_fork = nullptr;
  };

  static std::unique_ptr<SimEngine> Attach(Host* host, Options options);
  ~SimEngine();

  // Does one thing. An error is a broken promise.
  absl::Status Step(Random* random);

  bool IsDone() const { return next_plan_ == options_.plans.size() && live_.empty(); }
  const std::map<std::string, Expected>& outcomes() const { return outcomes_; }
  // Sequences that this engine has closed; no later daemon hears of them.
  const std::vector<std::string>& closed() const { return closed_; }
  // Sequences that this engine has aborted: where they end is not known.
  const std::set<std::string>& aborted() const { return aborted_; }
  // Answers that the engine has taken.
  uint64_t num_taken() const { return num_taken_; }
  std::string Describe() const;

 private:
  struct Live {
    const SequencePlan* plan = nullptr;
    specd_sequence sequence = 0;
    std::vector<int32_t> ids;  // the prompt, then the outputs
    uint32_t row = 0;          // the first of its rows
    bool is_in_flight = false;
    bool has_finished = false;
    bool is_final = false;

    size_t num_outputs() const { return ids.size() - plan->prompt.size(); }
  };

  SimEngine(std::unique_ptr<Engine> engine, Options options);
  void ShareRows();
  absl::Status Open();
  absl::Status Fork(Random* random);
  absl::Status Abort(Random* random);
  void Add(const SequencePlan* plan, specd_sequence sequence);
  absl::Status Submit(Random* random);
  absl::Status Poll();
  absl::Status Take(const specd_result& result);
  absl::Status Finish(Live* live);
  absl::Status Compare(const Live& live, const specd_sequence_state& state);
  absl::Status CloseOne();

  std::unique_ptr<Engine> engine_;
  const Options options_;
  std::optional<Mapping> rows_;
  size_t next_plan_ = 0;
  std::vector<std::unique_ptr<Live>> live_;
  std::deque<SequencePlan> forks_;
  std::set<std::string> aborted_;
  std::vector<std::string> closed_;
  std::map<std::string, Expected> outcomes_;
  uint64_t num_taken_ = 0;
  uint64_t next_round_ = 1;
};

}  // namespace specd::sim
