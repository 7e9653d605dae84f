// StallScene has ten small engines and a monster on one verify loop, for StallSuite.
//
// The scene is the daemon's, without its sockets and its text side: sessions in a list, and a
// verify thread that serves them. The monster's round is legal and takes a minute or more: 640
// sampled sequences with 64 drafts over 2^20 tokens. One thread calls the public functions.
//
//   auto scene = StallScene::Create({.threads = 2});
//   auto alone_us = (*scene)->RunSmall(2.0);
//   (*scene)->BeginMonster();
//   auto beside_us = (*scene)->RunSmall(2.0);
//   (*scene)->EndMonster();
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/server/verify_loop.h"
#include "daemon/session/session_list.h"
#include "ipc/segment/engine_channel.h"

namespace specd::bench {

inline constexpr int kSmallEngines = 10;

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

  // Runs rounds of each small engine, one after the other, on a thread for each. Returns the time
  // of every round in us, from its submission until its engine has seen the answer. A wrong answer
  // is an error.
  absl::StatusOr<std::vector<double>> RunSmall(double seconds);

  // Attaches a monster and submits its round.
  absl::Status BeginMonster();
  // The monster hangs up. An error if its round has been answered.
  absl::Status EndMonster();

 private:
  class Engine;

  explicit StallScene(const Options& options);
  absl::StatusOr<std::unique_ptr<Engine>> Attach(const SessionLimits& limits);

  const Options options_;
  ModelProfile profile_;
  SharedNames names_;
  SessionList sessions_;
  VerifyLoop loop_;
  uint64_t num_attached_ = 0;
  std::vector<std::unique_ptr<Engine>> small_;
  std::unique_ptr<Engine> monster_;
  std::thread verify_;
};

}  // namespace specd::bench
