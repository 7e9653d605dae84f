// OpeningScene has two engines on one verify loop, for OpeningSuite, and Openings opens and closes
// sequences of one of them.
//
// The scene is the daemon's, without its sockets and its text side: two sessions in a list, and a
// verify thread that serves both. The neighbour's round is submitted before the engine's. The
// verify thread therefore asks for the neighbour's lock before it comes to the engine's round.
// One thread calls RunRound.
//
//   auto scene = OpeningScene::Create();
//   Openings openings((*scene)->neighbour(), 1 << 20);  // from now on, in a thread of its own
//   absl::StatusOr<double> round_us = (*scene)->RunRound();
#pragma once

#include <atomic>
#include <cstddef>
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

// An engine of the scene: its session, its end of the rings, and one greedy sequence.
struct SceneEngine {
  std::shared_ptr<Session> session;
  std::unique_ptr<Segment> segment;
  std::unique_ptr<EngineChannel> channel;
  SequenceHandle sequence = 0;
};

class OpeningScene {
 public:
  static absl::StatusOr<std::unique_ptr<OpeningScene>> Create();
  ~OpeningScene();
  OpeningScene(const OpeningScene&) = delete;
  OpeningScene& operator=(const OpeningScene&) = delete;

  // Submits a round of the neighbour and one of the engine, and waits for both. Returns the time of
  // the engine's round in us. A wrong answer is an error.
  absl::StatusOr<double> RunRound();

  Session* neighbour() { return neighbour_.session.get(); }

 private:
  OpeningScene();
  absl::StatusOr<SceneEngine> Attach(uint64_t session_id);
  absl::Status Submit(SceneEngine* engine, int64_t now_ns);
  absl::Status Wait(SceneEngine* engine);

  ModelProfile profile_;
  SharedNames names_;
  SessionList sessions_;
  VerifyLoop loop_;
  SceneEngine engine_;
  SceneEngine neighbour_;
  uint64_t round_id_ = 0;
  std::thread verify_;
};

// Opens a sequence with a prompt, closes it and begins again, in a thread, until it is destroyed.
class Openings {
 public:
  // The session must outlive it.
  Openings(Session* session, size_t num_prompt_ids);
  ~Openings();
  Openings(const Openings&) = delete;
  Openings& operator=(const Openings&) = delete;

  // Openings that have begun, and those that were closed again.
  int64_t num_begun() const { return num_begun_.load(std::memory_order_relaxed); }
  int64_t num_done() const { return num_done_.load(std::memory_order_relaxed); }

  // Ends the thread. Returns the time of each opening in us, without its closing.
  absl::StatusOr<std::vector<double>> Stop();

 private:
  void Run(size_t num_prompt_ids);

  Session* const session_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> num_begun_{0};
  std::atomic<int64_t> num_done_{0};
  // Written by the thread, and read when it has ended.
  absl::Status status_;
  std::vector<double> times_us_;
  std::thread thread_;
};

}  // namespace specd::bench
