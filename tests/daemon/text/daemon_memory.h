// DaemonMemory is what a daemon has published, which a thread gives to those who ask at
// inproc://ask.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
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
          if (!is_mute_) asks_.Step([this](std::string_view ask) { return AnswerTo(ask); });
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
  // Nobody is answered after Mute(true).
  void Mute(bool is_mute) {
    const std::lock_guard lock(mutex_);
    is_mute_ = is_mute;
  }

 private:
  std::string AnswerTo(std::string_view payload) {
    std::string reply;
    const auto ask = DecodeAsk(payload);
    auto answer = ask.ok() ? kept_.Answer(*ask) : ask.status();
    if (!answer.ok()) {
      AppendRefusal(answer.status(), &reply);
      return reply;
    }
    answer->epoch = epoch_;
    answer->seq = seq_;
    AppendAnswer(*answer, &reply);
    return reply;
  }

  std::mutex mutex_;  // guards the rest, and orders Mute with answers
  bool is_mute_ = false;
  KeptStreams kept_{{}};
  uint64_t epoch_ = 0;
  uint64_t seq_ = 0;
  ReplySocket asks_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace specd
