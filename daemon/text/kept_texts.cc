#include "daemon/text/kept_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace specd {
namespace {

// An upper bound of an event's keys and numbers on the wire.
constexpr size_t kEventBytes = 256;

}  // namespace

void KeptTexts::Take(const TextEvent& event, int64_t now_ns) {
  if (event.kind == TextEventKind::kOpen) {
    newest_ = std::max(newest_, event.stream);
    table_.Erase(event.stream);
    const Mark begin = {.tokens = event.token_offset};
    *table_.Add(event.stream, event.request_id) = {
        .opening = event, .marks = {begin}, .last = begin};
    return Fit(event.stream);
  }
  Kept* const kept = table_.Find(event.stream);
  if (kept == nullptr || kept->has_ended) return;
  kept->last = {.tokens = event.tokens, .bytes = event.byte_offset + event.text.size()};
  if (kept->is_whole) {
    kept->text += event.text;
    uint64_t end = event.byte_offset;
    for (const WireSpan& span : event.spans) {
      end += span.size_bytes;
      if (!kept->spans.empty() && kept->spans.back().accepted == span.accepted &&
          kept->spans.back().reasoning == span.reasoning) {
        kept->spans.back().end = end;
      } else {
        kept->spans.push_back({.end = end, .accepted = span.accepted, .reasoning = span.reasoning});
      }
    }
    kept->marks.push_back(kept->last);
  }
  if (event.kind == TextEventKind::kEnd) {
    kept->has_ended = true;
    kept->end = event;
    kept->end.token_offset = event.tokens;
    kept->end.byte_offset = kept->last.bytes;
    kept->end.text.clear();
    kept->end.spans.clear();
    kept->end.scores.clear();
    kept->end.score_bytes.clear();
    table_.End(event.stream, now_ns);
  }
  Fit(event.stream);
}

void KeptTexts::Fit(uint64_t stream) {
  Kept* const kept = table_.Find(stream);
  const auto size_bytes = [kept] {
    return kept->opening.request_id.size() + kept->end.request_id.size() +
           kept->end.stop_string.size() + kept->text.capacity() +
           kept->spans.capacity() * sizeof(Span) + kept->marks.capacity() * sizeof(Mark);
  };
  if (table_.Resize(stream, size_bytes())) return;
  kept->is_whole = false;
  // An assignment could keep the memory.
  std::string().swap(kept->text);
  std::vector<Span>().swap(kept->spans);
  std::vector<Mark>().swap(kept->marks);
  if (!table_.Resize(stream, size_bytes())) table_.Erase(stream);
}

absl::StatusOr<TextAnswer> KeptTexts::Answer(const Ask& ask) const {
  TextAnswer answer = {.newest = newest_};
  size_t bytes = 0;
  const Kept* const kept = table_.Find(ask.stream);
  uint64_t offset = 0;
  if (ask.kind == AskKind::kFrom || ask.offset > 0) {
    const absl::StatusOr<uint64_t> valid = ByteOffset(kept, ask);
    if (!valid.ok()) return valid.status();
    offset = *valid;
  }
  if (ask.kind == AskKind::kFrom) {
    AppendEvents(*kept, offset, &bytes, &answer);
    return answer;
  }
  table_.VisitFrom(ask.stream, ask.kind == AskKind::kEnded, ask.request_id,
                   [&](uint64_t stream, const Kept& each) {
                     if (bytes >= kAnswerBytes) {
                       answer.next = {.stream = stream, .offset = 0};
                       return false;
                     }
                     return AppendEvents(each, stream == ask.stream ? offset : 0, &bytes, &answer);
                   });
  return answer;
}

absl::StatusOr<uint64_t> KeptTexts::ByteOffset(const Kept* kept, const Ask& ask) {
  if (kept == nullptr) {
    return absl::NotFoundError(
        fmt::format("stream = {} is not kept: its text ended longer ago than --keep_ended, found "
                    "no room in --memory_mib, or is of another daemon; ask sooner",
                    ask.stream));
  }
  const uint64_t max = ask.by_tokens ? kept->last.tokens : kept->last.bytes;
  // A stop string may have ended the text before tokens that the reader has.
  const bool is_void = ask.by_tokens && kept->has_ended;
  if (ask.offset > max && !is_void) {
    return absl::NotFoundError(fmt::format("offset = {} is outside 0 .. {}, the {} of stream {}",
                                           ask.offset, max,
                                           ask.by_tokens ? "tokens" : "bytes of text", ask.stream));
  }
  if (ask.offset >= max) return kept->last.bytes;
  if (!kept->is_whole) {
    return absl::NotFoundError(
        fmt::format("offset = {}: the text of stream {} found no room and was not kept; raise "
                    "--memory_mib",
                    ask.offset, ask.stream));
  }
  if (ask.by_tokens) {
    // The text that became certain with the first tokens up to the offset.
    const uint64_t tokens = std::max(ask.offset, kept->marks.front().tokens);
    const auto behind =
        std::upper_bound(kept->marks.begin(), kept->marks.end(), tokens,
                         [](uint64_t number, const Mark& mark) { return number < mark.tokens; });
    return (behind - 1)->bytes;
  }
  if ((static_cast<uint8_t>(kept->text[ask.offset]) & 0xc0) != 0x80) return ask.offset;
  return absl::NotFoundError(fmt::format(
      "offset = {} is inside a code point of the text of stream {}; ask from the end of "
      "an event",
      ask.offset, ask.stream));
}

std::vector<WireSpan> KeptTexts::SpansOf(const Kept& kept, uint64_t offset, uint64_t size_bytes) {
  std::vector<WireSpan> found;
  const uint64_t end = offset + size_bytes;
  for (auto at = std::upper_bound(kept.spans.begin(), kept.spans.end(), offset,
                                  [](uint64_t bytes, const Span&span) { return bytes < span.end; });
       at != kept.spans.end() && offset < end; ++at) {
    const uint64_t taken = std::min<uint64_t>(at->end, end) - offset;
    found.push_back({static_cast<uint32_t>(taken), at->accepted != 0, at->reasoning != 0});
    offset += taken;
  }
  return found;
}

bool KeptTexts::AppendEvents(const Kept& kept, uint64_t offset, size_t* bytes, TextAnswer* answer) {
  if (offset == 0) {
    answer->events.push_back(kept.opening);
    *bytes += kEventBytes + kept.opening.request_id.size();
  }
  if (!kept.is_whole && !kept.has_ended && kept.last.bytes > offset) {
    TextEvent gap = kept.opening;
    gap.kind = TextEventKind::kText;
    gap.token_offset = gap.tokens = kept.last.tokens;
    gap.byte_offset = kept.last.bytes;
    answer->events.push_back(std::move(gap));
  }
  // Whole events up to the size of an answer, at least one: the marks are where events ended.
  const auto behind = [&kept](uint64_t at) {
    return std::upper_bound(kept.marks.begin(), kept.marks.end(), at,
                            [](uint64_t number, const Mark& mark) { return number < mark.bytes; });
  };
  const auto first = behind(offset);
  if (first != kept.marks.end()) {
    const auto last = std::max(first, behind(offset + kAnswerBytes) - 1);
    TextEvent event = kept.opening;
    event.kind = TextEventKind::kText;
    event.token_offset = (first - 1)->tokens;
    event.tokens = last->tokens;
    event.byte_offset = offset;
    event.text = kept.text.substr(offset, last->bytes - offset);
    event.spans = SpansOf(kept, offset, event.text.size());
    *bytes += kEventBytes + event.text.size() + 6 * event.spans.size();
    answer->events.push_back(std::move(event));
    if (last->bytes < kept.text.size()) {
      answer->next = {.stream = kept.opening.stream, .offset = last->bytes};
      return false;
    }
  }
  if (kept.has_ended) answer->events.push_back(kept.end);
  *bytes += kEventBytes;
  return true;
}

}  // namespace specd
