// TextSides knows which text sides hear the daemon, for Publisher.
//
// There is one, or one for each shard of the streams (text_shard.h). The publisher thread says what
// it hears of them; any thread may call AreAlive.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/base/awake_time.h"
#include "daemon/base/mutex.h"
#include "ipc/events/text_shard.h"
#include "ipc/events/token_event.h"

namespace specd {

class TextSides {
 public:
  // A text side counts as gone after this time, in which the publisher looked. A loaded machine may
  // miss several signs and must not look like a dead process.
  static constexpr int64_t kSilenceNs = 3'000'000'000;

  // If a text side does not come back within the grace, it is gone for good. The clock must outlive
  // this object.
  TextSides(const AwakeTime* clock, int64_t grace_ns) : clock_(clock), grace_ns_(grace_ns) {}

  // A text side says that it lives. `is_another` is set if it is not the one that its shard had. An
  // error if text sides with another number of shards are alive.
  absl::Status Hear(const SignOfLife& alive, bool* is_another);

  // The shards whose text side is gone for good; each is named once.
  std::vector<TextShard> TakeGone();

  // False if no text side of the request was ever there, or if it is gone for good.
  bool Has(std::string_view request_id) const;

  // True if the text sides of all shards have said lately that they live.
  bool AreAlive() const;

 private:
  struct Side {
    bool is_there = false;  // false: it never was, or it is gone for good
    int64_t seen_ns = 0;    // of the clock
    uint64_t instance = 0;
  };

  bool IsAlive(const Side& side) const {
    return side.is_there && clock_->now_ns() - side.seen_ns < kSilenceNs;
  }

  const AwakeTime* const clock_;
  const int64_t grace_ns_;
  mutable Mutex mutex_;
  std::vector<Side> sides_ ABSL_GUARDED_BY(mutex_) = {Side()};  // by the shard's index
};

}  // namespace specd
