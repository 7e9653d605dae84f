// DaemonMemory is what a daemon has published, which a thread gives to those who ask at
// inproc://ask.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/text/kept_streams.h"
#include "ipc/events/ask.h"
#include "ipc/sockets/reply_socket.h"

namespace specd {

class DaemonMemory {
 public:
  explicit DaemonMemory(ZmqContext* context) : asks_(*ReplySocket::Make(context, {})) {
    REQUIRE(asks_.Bind("inproc://ask").ok());
    thread_ = std::thread([this] {
      while (!stop_) {
        {
          const std::lock_guard lock(mutex_);
          if (!is_mute_)
            asks_.Step([this](std::string_view ask, uint32_t) { return AnswerTo(ask); });
        }
        std::this_thread::yield();
      }
    });
  }
  ~DaemonMemory() {
    stop_ = true;
    thread_.join();
  }
  void Keep(uint64_t epoch, uint64_t seq, std::vector<TokenEvent> events) {
    const std::lock_guard lock(mutex_);
    if (epoch != epoch_) kept_ = KeptStreams({});
    epoch_ = epoch;
    seq_ = seq;
    for (TokenEvent& event : events) kept_.Take(&event, 0);
  }
  // Its model has this hash of its tokenizer.
  void SetTokenizer(uint64_t hash) {
    const std::lock_guard lock(mutex_);
    tokenizer_ = hash;
  }
  void Forget() {
    const std::lock_guard lock(mutex_);
    kept_ = KeptStreams({});
  }
  // The events come right after so many further answers.
  void KeepAfter(int num_answers, std::vector<TokenEvent> events) {
    const std::lock_guard lock(mutex_);
    keep_after_ = num_answers;
    later_ = std::move(events);
  }
  // No ask is answered after Mute(true).
  void Mute(bool is_mute) {
    const std::lock_guard lock(mutex_);
    is_mute_ = is_mute;
  }
  // So many further asks are answered; those behind them are to be repeated.
  void AnswerOnly(int num_answers) {
    const std::lock_guard lock(mutex_);
    answers_left_ = num_answers;
  }

 private:
  std::string AnswerTo(std::string_view payload) {
    std::string reply = Answer(payload);
    if (--keep_after_ == 0) {
      for (TokenEvent& event : later_) kept_.Take(&event, 0);
    }
    return reply;
  }
  std::string Answer(std::string_view payload) {
    std::string reply;
    const auto ask = DecodeAsk(payload);
    auto answer = ask.ok() ? kept_.Answer(*ask) : ask.status();
    if (answers_left_-- <= 0) answer = absl::UnavailableError("busy");
    if (!answer.ok()) {
      AppendRefusal(answer.status(), &reply);
      return reply;
    }
    answer->epoch = epoch_;
    answer->seq = seq_;
    answer->profiles = {""};
    answer->tokenizers = {tokenizer_};
    AppendAnswer(*answer, &reply);
    return reply;
  }

  std::mutex mutex_;  // guards the rest, and orders Mute with answers
  bool is_mute_ = false;
  uint64_t tokenizer_ = 0;
  int keep_after_ = 0;
  int answers_left_ = INT_MAX;
  std::vector<TokenEvent> later_;
  KeptStreams kept_{{}};
  uint64_t epoch_ = 0;
  uint64_t seq_ = 0;
  ReplySocket asks_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace specd
