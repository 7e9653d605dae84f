// StallScene has ten small engines and one neighbour on one verify loop, for StallSuite.
//
// The scene is the daemon's, without its sockets and its text side: sessions in a list, a verify
// thread that serves them, and a thread for each opening with a constraint. The neighbours:
//   monster   its round is legal and takes a minute or more: 640 sampled sequences with 64 drafts
//             over 2^20 tokens
//   openings  opens one sequence after the other with constraints that use up a compile's budget
//   masks     one sequence with 64 drafts and a constraint that needs a new mask at every place
// One thread calls the public functions.
//
//   auto scene = StallScene::Create({.threads = 2});
//   auto alone_us = (*scene)->RunSmall(SmallWork::kRounds, 2.0);
//   (*scene)->Begin(Neighbour::kMonster);
//   auto beside_us = (*scene)->RunSmall(SmallWork::kRounds, 2.0);
//   (*scene)->End();
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/server/verify_loop.h"
#include "daemon/session/grammar_compilers.h"
#include "daemon/session/session_list.h"
#include "tools/bench/stall_engine.h"
#include "tools/bench/stall_neighbour.h"
#include "tools/bench/synthetic_vocabulary.h"

namespace specd::bench {

inline constexpr int kSmallEngines = 10;

enum class Neighbour { kMonster, kOpenings, kMasks };

// What the small engines repeat. A request opens a sequence with a short prompt, runs four rounds
// of it and closes it.
enum class SmallWork { kRounds, kRequests };

class StallScene {
 public:
  struct Options {
    int32_t threads = 1;  // of each session's rounds
    int64_t piece_work = 0;
  };
  static absl::StatusOr<std::unique_ptr<StallScene>> Create(const Options& options);
  ~StallScene();
  StallScene(const StallScene&) = delete;
  StallScene& operator=(const StallScene&) = delete;

  // Each small engine does its work again and again, on a thread for each. Returns the time of
  // every round or request in us, from its beginning until its engine has seen the end. A wrong
  // answer is an error.
  absl::StatusOr<std::vector<double>> RunSmall(SmallWork work, double seconds);

  // Attaches a neighbour, which begins its work.
  absl::Status Begin(Neighbour neighbour);
  // The neighbour hangs up. An error if its work was not what the case is about.
  absl::Status End();

 private:
  explicit StallScene(const Options& options);
  absl::StatusOr<std::unique_ptr<StallEngine>> Attach(const SessionLimits& limits);

  const Options options_;
  ModelProfile profile_;
  const SyntheticVocabulary vocabulary_;
  ModelProfile constrained_;  // of neighbours with constraints
  GrammarCompilers compilers_{&constrained_};
  SharedNames names_;
  SessionList sessions_;
  VerifyLoop loop_;
  uint64_t num_attached_ = 0;
  std::vector<std::unique_ptr<StallEngine>> small_;
  std::unique_ptr<StallEngine> neighbour_;
  std::unique_ptr<StallNeighbour> work_;  // null: a monster, or no neighbour
  std::thread verify_;
};

}  // namespace specd::bench
