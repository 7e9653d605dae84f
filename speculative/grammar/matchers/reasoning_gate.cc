#include "speculative/grammar/matchers/reasoning_gate.h"

#include <algorithm>
#include <new>
#include <utility>

#include "fmt/format.h"
#include "kernels/core/check.h"

namespace specd::grammar {
// ---- markers ------------------------------------------------------------------------------------

absl::StatusOr<std::shared_ptr<const ReasoningMarkers>> ReasoningMarkers::Create(
    const ReasoningTexts& texts, const Vocabulary* vocabulary, int32_t vocab_size) {
  for (const auto& [name, text] :
       {std::pair{"reasoning_start", &texts.start}, std::pair{"reasoning_end", &texts.end}}) {
    if (text->size() <= kMarkerBytesMax) continue;
    return absl::InvalidArgumentError(fmt::format("{} has {} bytes, at most {} are allowed", name,
                                                  text->size(), kMarkerBytesMax));
  }
  if (texts.end.empty()) {
    return absl::InvalidArgumentError(
        "reasoning_end is empty; name the text that closes a thought, as </think>");
  }
  return std::shared_ptr<const ReasoningMarkers>(
      new ReasoningMarkers(texts, vocabulary, vocab_size));
}

ReasoningMarkers::ReasoningMarkers(const ReasoningTexts& texts, const Vocabulary* vocabulary,
                                   int32_t vocab_size)
    : texts_(texts),
      vocabulary_(*vocabulary),
      vocab_size_(vocab_size),
      end_(texts.start, texts.end),
      crossing_(texts.end.size()),
      no_ids_(std::make_shared<const MaskWords>((static_cast<size_t>(vocab_size) + 31) / 32)) {
  const int32_t num_ids = std::min(vocab_size, vocabulary_.size());
  for (TokenId id = 0; id < num_ids; ++id) {
    // A token without the marker's last byte completes nothing.
    if (Bytes(id).find(texts.end.back()) == std::string_view::npos) continue;
    for (uint32_t progress = 0; progress < crossing_.size(); ++progress) {
      const Advance after = After(progress, id);
      if (after.progress == kOver && after.rest_bytes > 0) crossing_[progress].push_back(id);
    }
  }
}

bool ReasoningMarkers::AreEnd(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) text += Bytes(id);
  return text.find(texts_.end) != std::string::npos;
}

// ---- the gate -----------------------------------------------------------------------------------

ReasoningGate::ReasoningGate(std::shared_ptr<const ReasoningMarkers> markers,
                             std::unique_ptr<GrammarMatcher> inside,
                             std::span<const TokenId> prompt)
    : markers_(std::move(markers)), inside_(std::move(inside)) {
  progress_.push_back(markers_->AfterPrompt(prompt));
}

std::optional<MaskRow> ReasoningGate::TryMask(WorkSlice* slice) {
  fault_ = MatcherFault::kNone;
  if (is_open()) {
    std::optional<MaskRow> row = inside_->TryMask(slice);
    fault_ = inside_->fault();
    return row;
  }
  const uint32_t progress = progress_.back();
  if (markers_->Crossing(progress).empty()) return MaskRow();
  // The constraint stands at its start, so its answers are the same each time.
  for (const auto& [known, row] : rows_) {
    if (known == progress) return row;
  }
  try {
    MaskRow row = BuildRow(progress);
    if (fault_ == MatcherFault::kNone) rows_.emplace_back(progress, row);
    return row;
  } catch (const std::bad_alloc&) {
    fault_ = MatcherFault::kNoMemory;
    return markers_->no_ids();
  }
}

MaskRow ReasoningGate::BuildRow(uint32_t progress) {
  // Every id except those whose bytes after the marker the constraint forbids.
  const size_t num_ids = markers_->vocab_size();
  MaskWords words((num_ids + 31) / 32, ~uint32_t{0});
  if (num_ids % 32 != 0) words.back() = (uint32_t{1} << num_ids % 32) - 1;
  for (const TokenId id : markers_->Crossing(progress)) {
    if (Keep(inside_->AcceptText(RestOf(id, markers_->After(progress, id))))) {
      inside_->Rollback(1);
      continue;
    }
    if (fault_ != MatcherFault::kNone) return markers_->no_ids();
    words[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (static_cast<uint32_t>(id) % 32));
  }
  return MaskRow(std::make_shared<const MaskWords>(std::move(words)));
}

std::string_view ReasoningGate::RestOf(TokenId id, const ReasoningMarkers::Advance& after) const {
  const std::string_view bytes = markers_->Bytes(id);
  return bytes.substr(bytes.size() - after.rest_bytes);
}

bool ReasoningGate::Accept(TokenId id) {
  if (is_open()) return Keep(inside_->Accept(id));
  fault_ = MatcherFault::kNone;
  if (id < 0 || id >= markers_->vocab_size()) return false;
  const ReasoningMarkers::Advance after = markers_->After(progress_.back(), id);
  if (after.rest_bytes > 0) {
    if (!Keep(inside_->AcceptText(RestOf(id, after)))) return false;
    has_rest_ = true;
  }
  progress_.push_back(after.progress);
  return true;
}

bool ReasoningGate::AcceptText(std::string_view text) {
  // Only a matcher inside a gate is given text.
  SPECD_CHECK(is_open());
  return Keep(inside_->AcceptText(text));
}

bool ReasoningGate::IsFinished() { return is_open() && Keep(inside_->IsFinished()); }

size_t ReasoningGate::num_accepted() const {
  return progress_.size() - 1 + inside_->num_accepted() - (has_rest_ ? 1 : 0);
}

void ReasoningGate::Rollback(size_t num_tokens) {
  SPECD_CHECK(num_tokens <= num_accepted());
  fault_ = MatcherFault::kNone;
  const size_t num_inside = inside_->num_accepted() - (has_rest_ ? 1 : 0);
  const size_t num_before = num_tokens - std::min(num_tokens, num_inside);
  // The token that opened the gate takes its rest with it.
  const bool takes_rest = has_rest_ && num_before > 0;
  inside_->Rollback(num_tokens - num_before + (takes_rest ? 1 : 0));
  if (takes_rest) has_rest_ = false;
  progress_.resize(progress_.size() - num_before);
}

std::unique_ptr<GrammarMatcher> ReasoningGate::Fork() const {
  auto fork =
      std::make_unique<ReasoningGate>(markers_, inside_->Fork(), std::span<const TokenId>());
  fork->progress_ = progress_;
  fork->has_rest_ = has_rest_;
  fork->rows_ = rows_;
  return fork;
}

}  // namespace specd::grammar
