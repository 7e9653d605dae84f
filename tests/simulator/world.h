// World is one simulated run: a daemon that dies and comes back, engines, a text side and readers,
// stepped by one thread in an order that a seed draws.
//
//   World world({.seed = 7});
//   const absl::Status status = world.Run();   // the first promise that was broken
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/simulator/sim_daemon.h"
#include "tests/simulator/sim_engine.h"
#include "tests/simulator/sim_reader.h"

namespace specd::sim {

class World {
 public:
  struct Options {
    uint64_t seed = 0;
    uint64_t num_steps = 400;  // with faults; then all may finish
    bool logs = false;         // what happens, to stdout
  };
  explicit World(const Options& options);
  ~World();

  absl::Status Run();

 private:
  // How often a thing happens: one in so many steps. Drawn for each run, so that some runs know no
  // kill and others little else.
  struct Rates {
    uint64_t kill = 0;
    uint64_t start = 0;
    uint64_t lost = 0;
    uint64_t on_way = 0;
    uint64_t slow_reader = 0;
    uint64_t crash = 0;      // of an engine
    bool has_detok = false;  // the text side is a process of its own
  };

  void DrawRates();
  // Fills in what is expected.
  void RunAlone(std::vector<SequencePlan> plans);
  void MayCrash();
  bool IsLoose(const std::string& name) const;
  void AttachEngines();
  // Each step draws from a state of its own, so what a step draws moves no later one.
  absl::Status Step(uint64_t number);
  absl::Status StepEngine();
  // While code of the product waits, others work.
  void StepOthers();
  void Serve(const std::string& endpoint);
  void MayEndDaemon(uint64_t one_in);
  bool CanEndDaemon();
  void StartDaemon();
  // A daemon, or a text side that is a process of its own; or that one is killed.
  void MayStart();
  void StepTextSide();
  absl::Status StepReader(SimReader* reader);
  absl::Status Finish();
  absl::Status CheckReaders() const;
  absl::Status CheckIds(const std::string& name, const ReadStream& read) const;
  absl::Status CheckText(const std::string& name, const ReadStream& read) const;
  absl::Status CheckLeftovers();
  bool IsDone() const;
  std::string Describe() const;
  void Log(const std::string& text) const;
  // What readers did not have of closed sequences goes with the daemon.
  void NoteLost();

  const Options options_;
  Random random_;
  Rates rates_;
  const ModelProfile profile_;
  ZmqContext context_;
  Host host_;
  uint64_t next_epoch_ = 1;
  bool has_faults_ = true;
  std::vector<bool> at_work_;  // by engine: its frames are on the stack
  std::unique_ptr<SimDaemon> daemon_;
  std::vector<std::unique_ptr<SimDaemon>> dead_;
  std::unique_ptr<TextWorker> detok_;
  std::map<std::string, Expected> expected_;
  std::map<std::string, Expected> uncut_;  // without a stop string
  std::map<std::string, size_t> begins_;   // of forks: the outputs before their streams
  std::vector<std::vector<SequencePlan>> plans_;
  std::vector<std::unique_ptr<SimEngine>> engines_;  // null: it has crashed
  // By engine: the daemons that ended since it took an answer, and the answers that it had taken.
  std::vector<uint64_t> unanswered_;
  std::vector<uint64_t> num_taken_;
  SimReader ids_;
  SimReader text_;
  // Requests that were closed when a daemon died, with all that readers did not have.
  std::set<std::string> lost_ids_;
  std::set<std::string> lost_text_;
};

}  // namespace specd::sim
