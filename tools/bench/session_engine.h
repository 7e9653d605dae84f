// SessionEngine is an engine in this process, at its end of a session, and LoopScene serves such
// engines as the daemon does, without its sockets and its text side: sessions in a list, and a
// verify thread for all of them.
//
// One thread at a time uses an engine, and one thread a scene.
//
//   auto scene = LoopScene::Create();
//   auto engine = (*scene)->Attach({.limits = {.vocab_size = 32000, ...}});
//   absl::Status status = (*engine)->Open("a", params);
//   status = (*engine)->RunRound().status();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/server/verify_loop.h"
#include "daemon/session/session.h"
#include "daemon/session/session_list.h"
#include "ipc/segment/engine_channel.h"

namespace specd::bench {

inline constexpr uint32_t kSmallVocabSize = 32000;
inline constexpr TokenId kBest = 7;  // the id with the highest logit, and every draft token

SequenceParams Greedy();
// Of an engine whose rounds have all of its sequences.
SessionLimits LimitsOf(uint32_t num_sequences, uint32_t max_draft,
                       uint32_t vocab_size = kSmallVocabSize);

class SessionEngine {
 public:
  // A session over the CPU backend. Clock, profile and names need not be set.
  static absl::StatusOr<std::unique_ptr<SessionEngine>> Create(SessionOptions options);
  ~SessionEngine() { session_->EndAll(); }

  const std::shared_ptr<Session>& session() const { return session_; }

  // All rows of later rounds are one row, which every coin draws `best` from. So are draft tokens:
  // as many as the limits of the session allow, or none.
  absl::Status BindOneRow(TokenId best, bool has_drafts);
  // A copy of these fp32 rows.
  absl::Status Bind(TensorRole role, const TensorView& rows);
  // Opens another sequence of the next rounds.
  absl::Status Open(const std::string& name, const SequenceParams& params);
  // The same, for rows and drafts that the caller has bound; `draft` points at its memory.
  absl::Status Open(const std::string& name, const SequenceParams& params, const Draft& draft);
  absl::Status CloseAll();

  absl::Status Submit();
  // Takes the answer to the last round, if it is there. Each sequence must be verified. Over one
  // row all drafts must be accepted, and `best` must follow.
  absl::StatusOr<bool> Poll();
  // Submits a round and waits for its answer. When it was confirmed, by Clock::Real.
  absl::StatusOr<int64_t> RunRound();

 private:
  SessionEngine() = default;

  // Of this engine alone, where the options name none.
  ModelProfile profile_;
  SharedNames names_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<EngineChannel> channel_;
  std::vector<TokenId> drafts_;
  std::vector<uint32_t> rows_;
  TokenId best_ = kNoToken;  // no one row
  std::vector<SequenceInput> inputs_;
  uint64_t round_id_ = 0;
  int64_t done_ns_ = 0;  // of the last answer
};

class LoopScene {
 public:
  // `on_events` is VerifyLoop's.
  explicit LoopScene(std::function<void()> on_events = nullptr);
  ~LoopScene();
  LoopScene(const LoopScene&) = delete;
  LoopScene& operator=(const LoopScene&) = delete;

  // Ends the verify thread, and so the calls of `on_events`; the sessions stay.
  void Stop();

  // The engine is detached before it ends.
  absl::StatusOr<std::unique_ptr<SessionEngine>> Attach(SessionOptions options, TokenId best,
                                                        bool has_drafts);
  void Detach(const SessionEngine& engine);
  SessionList* sessions() { return &sessions_; }

 private:
  ModelProfile profile_;
  SharedNames names_;
  SessionList sessions_;
  VerifyLoop loop_;
  uint64_t num_attached_ = 0;
  std::thread verify_;
};

}  // namespace specd::bench
