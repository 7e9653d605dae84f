#include "daemon/text/kept_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace specd {
namespace {

// What containers take for a stream beside what it holds, and an upper bound of an event's keys and
// numbers on the wire.
constexpr size_t kEntryBytes = 1024;
constexpr size_t kEventBytes = 256;

// The spans of `size_bytes` bytes from the offset on.
std::vector<WireSpan> SpansOf(const std::vector<WireSpan>& spans, uint64_t offset,
                              uint64_t size_bytes) {
  std::vector<WireSpan> found;
  for (const WireSpan& span : spans) {
    if (size_bytes == 0) break;
    const uint64_t skipped = std::min<uint64_t>(offset, span.size_bytes);
    offset -= skipped;
    const uint64_t taken = std::min<uint64_t>(span.size_bytes - skipped, size_bytes);
    size_bytes -= taken;
    if (taken > 0) found.push_back({static_cast<uint32_t>(taken), span.accepted});
  }
  return found;
}

}  // namespace

void KeptTexts::Take(const TextEvent& event, int64_t now_ns) {
  if (event.kind == TextEventKind::kOpen) {
    newest_ = std::max(newest_, event.stream);
    table_.Erase(event.stream);
    *table_.Add(event.stream) = {.opening = event, .marks = {{.tokens = event.token_offset}}};
    return Fit(event.stream);
  }
  Kept* const kept = table_.Find(event.stream);
  if (kept == nullptr || kept->has_ended) return;
  if (kept->is_whole) {
    kept->text += event.text;
    for (const WireSpan& span : event.spans) {
      if (!kept->spans.empty() && kept->spans.back().accepted == span.accepted) {
        kept->spans.back().size_bytes += span.size_bytes;
      } else {
        kept->spans.push_back(span);
      }
    }
    kept->marks.push_back({.tokens = event.tokens, .bytes = event.byte_offset + event.text.size()});
  }
  if (event.kind == TextEventKind::kEnd) {
    kept->has_ended = true;
    kept->end = event;
    kept->end.token_offset = event.tokens;
    kept->end.byte_offset += event.text.size();
    kept->end.text.clear();
    kept->end.spans.clear();
    kept->end.scores.clear();
    table_.End(event.stream, now_ns);
  }
  Fit(event.stream);
}

void KeptTexts::Fit(uint64_t stream) {
  Kept* const kept = table_.Find(stream);
  const auto size_bytes = [kept] {
    return kEntryBytes + kept->text.capacity() + kept->spans.capacity() * sizeof(WireSpan) +
           kept->marks.capacity() * sizeof(Mark);
  };
  if (table_.Resize(stream, size_bytes())) return;
  kept->is_whole = false;
  // An assignment could keep the memory.
  std::string().swap(kept->text);
  std::vector<WireSpan>().swap(kept->spans);
  std::vector<Mark>().swap(kept->marks);
  if (!table_.Resize(stream, size_bytes())) table_.Erase(stream);
}

absl::StatusOr<TextAnswer> KeptTexts::Answer(const Ask& ask) const {
  TextAnswer answer = {.newest = newest_};
  size_t bytes = 0;
  if (ask.kind != AskKind::kFrom) {
    const bool is_ended = ask.kind == AskKind::kEnded;
    table_.VisitFrom(ask.stream, [&](uint64_t stream, const Kept& kept) {
      if (kept.has_ended != is_ended || !kept.is_whole) return true;
      if (!ask.request_id.empty() && kept.opening.request_id != ask.request_id) return true;
      if (bytes >= kAnswerBytes) {
        answer.next = {.stream = stream, .offset = 0};
        return false;
      }
      const uint64_t offset = stream == ask.stream ? ask.offset : 0;
      return AppendEvents(kept, std::min<uint64_t>(offset, kept.text.size()), &bytes, &answer);
    });
    return answer;
  }
  const Kept* const kept = table_.Find(ask.stream);
  if (kept == nullptr || !kept->is_whole) {
    return absl::NotFoundError(
        fmt::format("stream = {} is not kept: its text ended longer ago than --keep_ended, found "
                    "no room in --memory_mib, or is of another daemon; ask sooner",
                    ask.stream));
  }
  const absl::StatusOr<uint64_t> offset = ByteOffset(*kept, ask);
  if (!offset.ok()) return offset.status();
  AppendEvents(*kept, *offset, &bytes, &answer);
  return answer;
}

absl::StatusOr<uint64_t> KeptTexts::ByteOffset(const Kept& kept, const Ask& ask) {
  const uint64_t begin = kept.marks.front().tokens;
  const uint64_t max = ask.by_tokens ? kept.marks.back().tokens : kept.text.size();
  if (ask.offset > max) {
    return absl::NotFoundError(fmt::format("offset = {} is outside 0 .. {}, the {} of stream {}",
                                           ask.offset, max,
                                           ask.by_tokens ? "tokens" : "bytes of text", ask.stream));
  }
  if (ask.by_tokens) {
    // The text that became certain with the first tokens up to the offset.
    uint64_t bytes = 0;
    for (const Mark& mark : kept.marks) {
      if (mark.tokens <= std::max(ask.offset, begin)) bytes = mark.bytes;
    }
    return bytes;
  }
  const bool is_inside =
      ask.offset < kept.text.size() && (static_cast<uint8_t>(kept.text[ask.offset]) & 0xc0) == 0x80;
  if (!is_inside) return ask.offset;
  return absl::NotFoundError(fmt::format(
      "offset = {} is inside a code point of the text of stream {}; ask from the end of "
      "an event",
      ask.offset, ask.stream));
}

bool KeptTexts::AppendEvents(const Kept& kept, uint64_t offset, size_t* bytes, TextAnswer* answer) {
  if (offset == 0) {
    answer->events.push_back(kept.opening);
    *bytes += kEventBytes + kept.opening.request_id.size();
  }
  // Whole events up to the size of an answer, at least one: the marks are where events ended.
  const Mark* before = &kept.marks.front();
  const Mark* last = nullptr;
  for (const Mark& mark : kept.marks) {
    if (mark.bytes <= offset) before = &mark;
    if (mark.bytes > offset && (last == nullptr || mark.bytes - offset <= kAnswerBytes)) {
      last = &mark;
    }
  }
  if (last != nullptr) {
    TextEvent event = kept.opening;
    event.kind = TextEventKind::kText;
    event.token_offset = before->tokens;
    event.tokens = last->tokens;
    event.byte_offset = offset;
    event.text = kept.text.substr(offset, last->bytes - offset);
    event.spans = SpansOf(kept.spans, offset, event.text.size());
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
