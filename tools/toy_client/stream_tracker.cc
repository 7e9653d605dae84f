#include "tools/toy_client/stream_tracker.h"

#include <fmt/format.h>

#include <algorithm>

namespace specd::toy {
namespace {

// Drops the first `size` bytes of the event's text, and the spans that described them.
void CutFront(uint64_t size, TextEvent* event) {
  event->text.erase(0, size);
  event->byte_offset += size;
  for (WireSpan& span : event->spans) {
    const uint32_t cut = static_cast<uint32_t>(std::min<uint64_t>(size, span.size_bytes));
    span.size_bytes -= cut;
    size -= cut;
  }
  std::erase_if(event->spans, [](const WireSpan& span) { return span.size_bytes == 0; });
}

}  // namespace

absl::Status StreamTracker::CheckEpoch(uint64_t epoch) {
  // A publisher that has not heard from its daemon yet says 0.
  if (epoch == 0) return absl::OkStatus();
  if (epoch_.has_value() && *epoch_ != epoch) {
    return absl::AbortedError(
        "the daemon was started anew; streams of its former run are gone, subscribe again");
  }
  epoch_ = epoch;
  return absl::OkStatus();
}

absl::Status StreamTracker::CheckSequence(uint64_t seq) {
  if (sees_all_ && last_seq_.has_value() && seq > *last_seq_ + 1) {
    return absl::DataLossError(
        fmt::format("{} text events before number {} were lost; a slower subscriber needs a "
                    "larger queue, or fewer streams",
                    seq - *last_seq_ - 1, seq));
  }
  last_seq_ = std::max(seq, last_seq_.value_or(0));
  return absl::OkStatus();
}

absl::StatusOr<Novelty> StreamTracker::Take(TextEvent* event) {
  absl::Status status = CheckEpoch(event->epoch);
  if (status.ok()) status = CheckSequence(event->seq);
  if (!status.ok()) return status;
  if (event->kind == TextEventKind::kOpen) {
    const Received opened{.tokens = event->tokens};
    return streams_.try_emplace(event->stream, opened).second ? Novelty::kNew : Novelty::kNothing;
  }
  const Received before{event->byte_offset, event->token_offset};
  const auto [stream, unseen] = streams_.try_emplace(event->stream, before);
  Received& received = stream->second;
  if (event->byte_offset > received.bytes) {
    return absl::DataLossError(fmt::format("{} bytes of \"{}\" are missing from byte {} on",
                                           event->byte_offset - received.bytes, event->request_id,
                                           received.bytes));
  }
  CutFront(std::min<uint64_t>(received.bytes - event->byte_offset, event->text.size()), event);
  received.bytes += event->text.size();
  const bool has_scores = !event->scores.empty() && event->tokens > received.tokens;
  received.tokens = std::max(received.tokens, event->tokens);
  const bool ended = event->kind == TextEventKind::kEnd;
  if (ended) {
    streams_.erase(stream);
    ++num_ended_;
  }
  if (unseen) return Novelty::kJoinedLate;
  return ended || has_scores || !event->text.empty() ? Novelty::kNew : Novelty::kNothing;
}

absl::Status StreamTracker::Take(const Heartbeat& heartbeat) {
  if (absl::Status status = CheckEpoch(heartbeat.epoch); !status.ok()) return status;
  // A heartbeat repeats the number of the last event, so its next number is the one after that.
  const uint64_t next = heartbeat.seq + 1;
  if (sees_all_ && last_seq_.has_value() && next > *last_seq_ + 1) return CheckSequence(next);
  last_seq_ = std::max(heartbeat.seq, last_seq_.value_or(0));
  return absl::OkStatus();
}

}  // namespace specd::toy
