#include "tools/http/text_hub.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "ipc/include/specd/specd.h"

namespace specd::http {
namespace {

// Reasons why streams were lost, of which the newest are kept.
constexpr size_t kLostMax = 4096;

}  // namespace

TextHub::TextHub(const KeepLimits& limits, size_t num_readers, std::function<void()> on_news)
    : num_readers_(num_readers),
      on_news_(std::move(on_news)),
      texts_(limits),
      is_current_(num_readers) {}

void TextHub::Take(size_t reader, const std::vector<ReadEvent>& events, bool is_current,
                   int64_t now_ns) {
  {
    absl::MutexLock lock(&mutex_);
    for (const ReadEvent& read : events) {
      TakeOne(read, (read.event.stream - 1) * num_readers_ + reader + 1, now_ns);
    }
    texts_.Expire(now_ns);
    if (newest_.size() >= forget_at_) ForgetNames();
    is_current_[reader] = is_current;
  }
  if (!events.empty()) on_news_();
}

void TextHub::TakeOne(const ReadEvent& read, uint64_t stream, int64_t now_ns) {
  TextEvent event = read.event;
  event.stream = stream;
  if (!read.lost.empty()) {
    lost_[stream] = read.lost;
    if (lost_.size() > kLostMax) lost_.erase(lost_.begin());
    event.kind = TextEventKind::kEnd;
    event.finish_reason = SPECD_FINISH_ERROR;
  } else if (event.kind == TextEventKind::kOpen) {
    newest_[event.request_id] = stream;
  }
  texts_.Take(event, now_ns);
}

void TextHub::ForgetNames() {
  absl::erase_if(newest_, [this](const auto& entry) { return !texts_.Has(entry.second); });
  forget_at_ = std::max<size_t>(1024, 2 * newest_.size());
}

std::optional<uint64_t> TextHub::Find(const std::string& request_id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = newest_.find(request_id);
  if (found == newest_.end() || !texts_.Has(found->second)) return std::nullopt;
  return found->second;
}

std::optional<uint64_t> TextHub::Running(const std::string& request_id) const {
  const std::optional<uint64_t> stream = Find(request_id);
  absl::MutexLock lock(&mutex_);
  if (!stream.has_value() || !texts_.Has(*stream) || texts_.HasEnded(*stream)) return std::nullopt;
  return stream;
}

bool TextHub::is_current() const {
  absl::MutexLock lock(&mutex_);
  return std::all_of(is_current_.begin(), is_current_.end(), [](bool each) { return each; });
}

std::vector<TextHub::Named> TextHub::Streams() const {
  absl::MutexLock lock(&mutex_);
  std::vector<Named> streams;
  for (const auto& [name, stream] : newest_) {
    if (!texts_.Has(stream)) continue;
    streams.push_back({.has_ended = texts_.HasEnded(stream), .stream = stream, .request_id = name});
  }
  std::sort(streams.begin(), streams.end(), [](const Named& a, const Named& b) {
    return std::tie(a.has_ended, a.stream) < std::tie(b.has_ended, b.stream);
  });
  return streams;
}

absl::StatusOr<TextPart> TextHub::From(uint64_t stream, uint64_t offset) const {
  absl::MutexLock lock(&mutex_);
  // A client may know more than a reader that has just begun.
  const bool is_ahead = texts_.Has(stream) && !texts_.HasEnded(stream);
  if (is_ahead && offset > texts_.BytesOf(stream)) return TextPart();
  absl::StatusOr<TextAnswer> answer =
      texts_.Answer({.kind = AskKind::kFrom, .stream = stream, .offset = offset});
  if (!answer.ok()) return answer.status();
  TextPart part = {.events = std::move(answer->events), .has_more = answer->next.has_value()};
  const auto lost = lost_.find(stream);
  if (lost != lost_.end() && !part.has_more && !part.events.empty()) {
    part.events.pop_back();  // the end that stands for the loss
    part.lost = lost->second;
  }
  return part;
}

absl::StatusOr<std::string> TextHub::TextOf(uint64_t stream) const {
  std::string text;
  for (bool has_more = true; has_more;) {
    const absl::StatusOr<TextPart> part = From(stream, text.size());
    if (!part.ok()) return part.status();
    for (const TextEvent& event : part->events) text += event.text;
    has_more = part->has_more;
  }
  return text;
}

}  // namespace specd::http
