// EgressReader reads the texts of a TextSide over a Unix socket, as readers outside do, for the
// suite `egress`.
//
// It asks for what it has missed. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tools/bench/egress_scene.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

namespace specd::bench {

inline constexpr auto kEgressWaitMax = std::chrono::seconds(30);

// Reads all texts until every stream has ended.
class EgressReader {
 public:
  explicit EgressReader(TextSide* side) : daemon_(&side->context, side->AskEndpoint()) {}

  // `beat` sends the daemon's heartbeat, if none comes by itself.
  absl::Status Subscribe(TextSide* side, const std::function<void()>& beat) {
    SPECD_TAKE(ZmqSocket made, ZmqSocket::Make(&side->context, ZmqKind::kSubscribe, {}));
    socket_ = std::make_unique<ZmqSocket>(std::move(made));
    SPECD_TRY(socket_->Subscribe(""));
    SPECD_TRY(socket_->Connect(side->TextEndpoint()));
    // A socket that hears a heartbeat of this daemon is subscribed, and the text side has begun.
    const SteadyClock::time_point start = SteadyClock::now();
    while (SteadyClock::now() - start < kEgressWaitMax) {
      beat();
      auto received = socket_->Receive(&frames_, absl::Milliseconds(20));
      if (!received.ok()) return received.status();
      if (!*received || frames_[0] != kHeartbeatTopic) continue;
      const absl::StatusOr<Heartbeat> heard = DecodeHeartbeat(frames_[1]);
      if (heard.ok() && heard->epoch == kEpoch) return absl::OkStatus();
    }
    return Broken("the text side was not heard");
  }

  // Called for each event, and for those of an answer; an event may come behind its answer.
  using Seen = std::function<void(const TextEvent& event)>;

  // Until so many streams have ended.
  absl::Status ReadAll(uint64_t num_streams, const Seen& seen) {
    SteadyClock::time_point last = SteadyClock::now();
    while (num_ended_ < num_streams) {
      auto received = socket_->Receive(&frames_, absl::Milliseconds(100));
      if (!received.ok()) return received.status();
      if (!*received || frames_[0] == kHeartbeatTopic) {
        if (SteadyClock::now() - last > kEgressWaitMax) return Broken("the texts have no end");
        continue;
      }
      last = SteadyClock::now();
      const absl::StatusOr<TextEvent> event = DecodeTextEvent(frames_[1]);
      if (!event.ok()) return event.status();
      SPECD_TRY(Take(*event, seen));
    }
    return absl::OkStatus();
  }

  uint64_t num_events() const { return num_events_; }
  uint64_t num_missed() const { return num_missed_; }
  uint64_t bytes() const { return bytes_; }

 private:
  absl::Status Take(const TextEvent& event, const Seen& seen) {
    uint64_t& have = have_[event.stream];
    if (event.kind != TextEventKind::kOpen && event.byte_offset > have) {
      ++num_missed_;
      SPECD_TRY(AskFor(event.stream, event.byte_offset, &have, seen));
    }
    ++num_events_;
    const uint64_t end = event.byte_offset + event.text.size();
    bytes_ += end - std::min(end, std::max(have, event.byte_offset));
    have = std::max(have, end);
    num_ended_ += event.kind == TextEventKind::kEnd ? 1 : 0;
    if (seen) seen(event);
    return absl::OkStatus();
  }
  absl::Status AskFor(uint64_t stream, uint64_t offset, uint64_t* have, const Seen& seen) {
    while (*have < offset) {
      const uint64_t before = *have;
      std::string ask;
      AppendAsk({.kind = AskKind::kFrom, .stream = stream, .offset = *have}, &ask);
      const absl::StatusOr<std::string> reply = daemon_.Ask(ask, absl::Seconds(10));
      if (!reply.ok()) return reply.status();
      const absl::StatusOr<TextAnswer> answer = DecodeTextAnswer(*reply);
      if (!answer.ok()) return answer.status();
      for (const TextEvent& event : answer->events) {
        const uint64_t end = event.byte_offset + event.text.size();
        bytes_ += end - std::min(end, *have);
        *have = std::max(*have, end);
        if (seen) seen(event);
      }
      if (*have == before) return Broken(fmt::format("an answer has no byte {}", before));
    }
    return absl::OkStatus();
  }

  RequestSocket daemon_;
  std::unique_ptr<ZmqSocket> socket_;
  std::vector<std::string> frames_;
  absl::flat_hash_map<uint64_t, uint64_t> have_;
  uint64_t num_ended_ = 0;
  uint64_t num_events_ = 0;
  uint64_t num_missed_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace specd::bench
