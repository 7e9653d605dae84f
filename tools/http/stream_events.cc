#include "tools/http/stream_events.h"

#include <set>
#include <string>
#include <vector>

namespace specd::http {
namespace {

// A page that shows all streams looks at them this often at most.
constexpr int64_t kLookNs = 50'000'000;
constexpr size_t kPieceBytes = 256 * 1024;

}  // namespace

StreamState StreamCursor::Next(std::string* out) {
  const absl::StatusOr<TextPart> part = hub_->From(stream_, offset_);
  if (!part.ok()) return Lose(std::string(part.status().message()), out);
  for (const TextEvent& event : part->events) {
    if (event.kind == TextEventKind::kOpen) {
      if (!is_open_) format_->open(facts_, out);
      is_open_ = true;
    } else if (event.byte_offset > offset_) {
      return Lose("the text found no room and was not kept; raise --memory_mib of specd-http", out);
    } else if (event.kind == TextEventKind::kEnd) {
      return End(event, out);
    } else if (!event.text.empty()) {
      format_->text(facts_, event, out);
      offset_ += event.text.size();
    }
  }
  if (!part->lost.empty()) return Lose(part->lost, out);
  return part->has_more ? StreamState::kMore : StreamState::kWait;
}

StreamState StreamCursor::End(const TextEvent& end, std::string* out) {
  std::string text;
  if (format_->repeats_text) {
    absl::StatusOr<std::string> whole = hub_->TextOf(stream_);
    if (!whole.ok()) return Lose(std::string(whole.status().message()), out);
    if (whole->size() != end.byte_offset) {
      return Lose("the text was not kept up to its end; raise --memory_mib of specd-http", out);
    }
    text = *std::move(whole);
  }
  format_->end(facts_, end, text, out);
  return StreamState::kEnd;
}

StreamState StreamCursor::Lose(const std::string& why, std::string* out) {
  format_->lost(facts_, offset_, why, out);
  return StreamState::kEnd;
}

StreamState AllStreams::Next(int64_t now_ns, std::string* out) {
  if (now_ns - looked_ns_ < kLookNs) return StreamState::kWait;
  const std::vector<TextHub::Named> streams = hub_->Streams();
  std::set<uint64_t> kept;
  std::vector<Place*> turns;
  for (const TextHub::Named& each : streams) {
    kept.insert(each.stream);
    const auto [at, is_new] = places_.try_emplace(
        each.stream, Place{.cursor = StreamCursor(hub_, each.stream, &kSpecdFormat,
                                                  {.request_id = each.request_id}, 0)});
    turns.push_back(&at->second);
  }
  // One that has not ended gets its rest, or is told that it is lost.
  std::erase_if(places_, [&kept](const auto& place) {
    return place.second.has_ended && !kept.contains(place.first);
  });
  for (auto& [stream, place] : places_) {
    if (!kept.contains(stream)) turns.push_back(&place);
  }
  for (Place* const place : turns) {
    if (out->size() >= kPieceBytes) return StreamState::kMore;
    while (!place->has_ended && out->size() < kPieceBytes) {
      const StreamState state = place->cursor.Next(out);
      place->has_ended = state == StreamState::kEnd;
      if (state != StreamState::kMore) break;
    }
  }
  looked_ns_ = now_ns;
  return StreamState::kWait;
}

}  // namespace specd::http
