#include "daemon/reader/text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// A stream is lost if its engine has not opened it again after so many heartbeats of the next
// daemon, which are 10 s.
constexpr int kPatienceHeartbeats = 50;
constexpr std::string_view kGone = "the daemon has ended, and its streams with it";
// No stream has this number, so the answer has no events. It tells the epoch.
constexpr uint64_t kNoStream = std::numeric_limits<uint64_t>::max();

// Takes away bytes that have come before.
void CutFront(uint64_t size_bytes, TextEvent* event) {
  event->text.erase(0, size_bytes);
  event->byte_offset += size_bytes;
  auto span = event->spans.begin();
  for (; span != event->spans.end() && size_bytes >= span->size_bytes; ++span) {
    size_bytes -= span->size_bytes;
  }
  if (span != event->spans.end()) span->size_bytes -= static_cast<uint32_t>(size_bytes);
  event->spans.erase(event->spans.begin(), span);
}

}  // namespace

void TextReader::Hear(const Heartbeat& heartbeat, std::vector<ReadEvent>* out) {
  if (heartbeat.epoch == 0) return;  // a text side that has not heard its daemon
  if (heartbeat.epoch != epoch_) {
    instance_ = heartbeat.instance;
    return Begin(heartbeat.epoch, heartbeat.seq, out);
  }
  if (!waiting_.empty() && --patience_heartbeats_ <= 0) {
    // An engine that opens one of them later begins it anew for the reader.
    for (const auto& [name, stream] : waiting_) SayLost(stream, kGone, out);
    waiting_.clear();
  }
  if (Follow(heartbeat.seq, seq_, heartbeat.instance)) AskAll();
}

void TextReader::Hear(TextEvent event, std::vector<ReadEvent>* out) {
  if (event.epoch != epoch_) {
    instance_.reset();
    return Begin(event.epoch, event.seq, out);
  }
  // The answers have this event as well.
  if (Follow(event.seq, seq_ + 1, instance_)) return AskAll();
  Take(std::move(event), false, out);
}

bool TextReader::Follow(uint64_t seq, uint64_t expected, std::optional<uint64_t> instance) {
  const bool is_replaced = seq < seq_ || (instance_.has_value() && instance_ != instance);
  instance_ = instance;
  seq_ = seq;
  return is_replaced || seq > expected;
}

void TextReader::Begin(uint64_t epoch, uint64_t seq, std::vector<ReadEvent>* out) {
  for (auto& [number, stream] : live_) {
    const auto [at, is_new] = waiting_.try_emplace(stream.name, stream);
    if (!is_new) EndLost(stream, kGone, out);
  }
  live_.clear();
  over_.Clear();
  asks_.clear();
  refusal_.reset();
  patience_heartbeats_ = kPatienceHeartbeats;
  epoch_ = epoch;
  seq_ = seq;
  AskAll();
}

void TextReader::AskAll() {
  for (const auto& [number, stream] : live_) AskFrom(number, stream.have);
  asks_.push_back({.kind = AskKind::kEnded});
  asks_.push_back({.kind = AskKind::kStreams});
}

void TextReader::AskFrom(uint64_t stream, uint64_t offset) {
  asks_.push_back({.kind = AskKind::kFrom, .stream = stream, .offset = offset});
}

absl::Status TextReader::Answered(const absl::StatusOr<TextAnswer>& answer,
                                  std::vector<ReadEvent>* out) {
  const Ask ask = asks_.front();
  if (!answer.ok()) {
    const bool is_page = ask.kind == AskKind::kFrom || ask.offset > 0;
    if (!is_page) return answer.status();
    // The daemon may be another one already, which does not know the stream.
    refusal_ = {.ask = ask, .why = std::string(answer.status().message())};
    asks_.front() = {.kind = AskKind::kStreams, .stream = kNoStream};
    return absl::OkStatus();
  }
  asks_.pop_front();
  const std::optional<Refusal> refusal = std::exchange(refusal_, std::nullopt);
  if (answer->epoch != epoch_) return absl::OkStatus();  // the publisher tells of that daemon
  if (refusal.has_value()) {
    // The stream has gone since the page before. Those behind it are there.
    if (refusal->ask.kind != AskKind::kFrom) {
      asks_.push_front({.kind = refusal->ask.kind, .stream = refusal->ask.stream + 1});
    }
    Lose(refusal->ask.stream, refusal->why, out);
    return absl::OkStatus();
  }
  if (answer->next.has_value()) {
    asks_.push_front(
        {.kind = ask.kind, .stream = answer->next->stream, .offset = answer->next->offset});
  }
  for (const TextEvent& event : answer->events) Take(event, true, out);
  return absl::OkStatus();
}

void TextReader::Take(TextEvent event, bool is_answer, std::vector<ReadEvent>* out) {
  if (over_.Has(event.stream)) return;
  const auto found = live_.find(event.stream);
  if (found == live_.end()) {
    if (event.kind == TextEventKind::kOpen) return Open(std::move(event), out);
    // A stream that began before the subscription, or whose opening was lost.
    if (!is_answer) AskFrom(event.stream, 0);
    return;
  }
  if (event.kind == TextEventKind::kOpen) return;
  if (event.byte_offset <= found->second.have) return Continue(std::move(event), out);
  if (!is_answer) return AskFrom(event.stream, found->second.have);
  Lose(event.stream, "the text side has not kept what is missing", out);
}

void TextReader::Open(TextEvent event, std::vector<ReadEvent>* out) {
  const auto waiting = waiting_.find(event.request_id);
  const bool is_known = waiting != waiting_.end();
  if (is_known && event.resumed) {
    live_.emplace(event.stream, std::move(waiting->second));
    waiting_.erase(waiting);
    return;
  }
  if (is_known) {  // its name is another stream's
    EndLost(waiting->second, kGone, out);
    waiting_.erase(waiting);
  }
  if (event.resumed && ended_.Has(event.request_id)) return over_.Add(event.stream);
  live_[event.stream] = {.number = ++last_number_, .name = event.request_id};
  event.stream = last_number_;
  event.resumed = false;
  out->push_back({.event = std::move(event)});
}

void TextReader::Continue(TextEvent event, std::vector<ReadEvent>* out) {
  Stream& stream = live_.at(event.stream);
  const uint64_t wire_number = event.stream;
  const bool is_end = event.kind == TextEventKind::kEnd;
  // An aborted text may have come further than the next daemon knows, if the last round had no
  // answer. Then its checksum proves nothing.
  const bool is_shorter = is_end && event.finish_reason == SPECD_FINISH_ABORT &&
                          event.byte_offset + event.text.size() < stream.have;
  CutFront(std::min<uint64_t>(stream.have - event.byte_offset, event.text.size()), &event);
  if (!is_end && event.text.empty() && event.tokens <= stream.tokens) return;  // a repetition
  stream.tokens = std::max(stream.tokens, event.tokens);
  event.scores.clear();
  event.score_bytes.clear();
  event.byte_offset = stream.have;
  event.stream = stream.number;
  stream.have += event.text.size();
  stream.checksum.Add(std::string_view(event.text));
  if (!is_end) return out->push_back({.event = std::move(event)});
  if (!is_shorter && event.checksum != stream.checksum.value()) {
    return Lose(wire_number, "the checksum of the stream is another one", out);
  }
  ended_.Add(stream.name);
  live_.erase(wire_number);
  over_.Add(wire_number);
  out->push_back({.event = std::move(event)});
}

void TextReader::Lose(uint64_t stream, std::string_view why, std::vector<ReadEvent>* out) {
  const auto found = live_.find(stream);
  if (found != live_.end()) {
    EndLost(found->second, why, out);
    live_.erase(found);
  }
  over_.Add(stream);
}

void TextReader::EndLost(const Stream& stream, std::string_view why, std::vector<ReadEvent>* out) {
  ended_.Add(stream.name);
  SayLost(stream, why, out);
}

void TextReader::SayLost(const Stream& stream, std::string_view why, std::vector<ReadEvent>* out) {
  TextEvent event;
  event.stream = stream.number;
  event.request_id = stream.name;
  event.byte_offset = stream.have;
  out->push_back({.event = std::move(event), .lost = std::string(why)});
}

}  // namespace specd
