#include "detokenizer/text_stream.h"

#include <algorithm>
#include <utility>

namespace specd {

void TextChunk::Append(std::string_view piece, const TextSpan& like) {
  if (piece.empty()) return;
  text.append(piece);
  if (!spans.empty() && spans.back().accepted_draft == like.accepted_draft &&
      spans.back().is_reasoning == like.is_reasoning) {
    spans.back().size_bytes += piece.size();
  } else {
    spans.push_back(like);
    spans.back().size_bytes = piece.size();
  }
}

void TextChunk::Clear() {
  text.clear();
  spans.clear();
}

void TextStream::HeldText::Release(size_t size_bytes, TextChunk* chunk) {
  while (size_bytes > 0) {
    TextSpan& span = kept_.spans[span_begin_];
    const size_t part_size_bytes = std::min(size_bytes, span.size_bytes);
    chunk->Append(std::string_view(kept_.text).substr(text_begin_, part_size_bytes), span);
    text_begin_ += part_size_bytes;
    span.size_bytes -= part_size_bytes;
    size_bytes -= part_size_bytes;
    if (span.size_bytes == 0) ++span_begin_;
  }
  Compact();
}

void TextStream::HeldText::Clear() {
  kept_.Clear();
  text_begin_ = 0;
  span_begin_ = 0;
}

// Moves the rest to the front only when more than half was released. A byte is thus moved at most
// once for every byte that goes. When all is released nothing is left, so Append never finds a
// released span to lengthen.
void TextStream::HeldText::Compact() {
  if (text_begin_ > kept_.text.size() / 2) {
    kept_.text.erase(0, text_begin_);
    text_begin_ = 0;
  }
  if (span_begin_ > kept_.spans.size() / 2) {
    kept_.spans.erase(kept_.spans.begin(),
                      kept_.spans.begin() + static_cast<std::ptrdiff_t>(span_begin_));
    span_begin_ = 0;
  }
}

TextStream::TextStream(const Vocabulary* vocabulary, std::shared_ptr<const StopSet> stops,
                       TextOptions options)
    : vocabulary_(vocabulary), stops_(std::move(stops)), options_(options) {
  SPECD_CHECK(vocabulary != nullptr);
  const TextRules& rules = vocabulary->text_rules();
  utf8_ = Utf8Stream(rules.replacement);
  stripped_spaces_ = options.continues ? 0 : rules.stripped_spaces;
  is_front_ = !options.continues && vocabulary->HasFront();
}

void TextStream::Prime(std::span<const TokenId> prompt_ids, std::span<const TokenId> output_ids) {
  SPECD_CHECK(num_tokens_ == 0);
  PrimedText(prompt_ids);
  const std::string text = PrimedText(output_ids);
  if (stops_ != nullptr) stops_->Pass(&stop_state_, text);
  std::string replacement;
  Utf8Stream(utf8_).Finish(&replacement);
  given_size_bytes_ = replacement.size();
}

TextStream TextStream::After(const Begin& begin, const Vocabulary* vocabulary,
                             std::shared_ptr<const StopSet> stops, TextOptions options) {
  options.min_tokens -= std::min(options.min_tokens, begin.num_outputs);
  options.continues = begin.num_outputs > begin.output_tail.size();
  TextStream stream(vocabulary, std::move(stops), options);
  stream.Prime(begin.prompt_tail, begin.output_tail);
  return stream;
}

std::string TextStream::PrimedText(std::span<const TokenId> ids) {
  std::string bytes = holds_space_ ? " " : "";
  for (const TokenId id : ids) bytes += TakeBytes(id);
  std::string text;
  utf8_.Push(bytes, &text);
  if (stripped_spaces_ > 0) Strip(&text, &stripped_spaces_);
  holds_space_ = TakeLastSpace(utf8_, &text);
  return text;
}

TextStream TextStream::Fork() const {
  TextStream copy = *this;
  copy.text_offset_ = 0;
  return copy;
}

// The bytes before and after a skipped token may belong to one code point.
std::string_view TextStream::TakeBytes(TokenId id) {
  if (options_.skip_special_tokens && vocabulary_->IsSpecial(id)) return {};
  const std::string_view bytes = vocabulary_->Bytes(id);
  if (!is_front_) return bytes;
  const std::string_view front = vocabulary_->FrontBytes(id);
  const bool ends_at_token = vocabulary_->text_rules().front_end == FrontEnd::kToken;
  is_front_ = front.empty() && (bytes.empty() || !ends_at_token);
  return front;
}

// Pending bytes follow the space.
bool TextStream::TakeLastSpace(const Utf8Stream& utf8, std::string* text) const {
  if (!vocabulary_->text_rules().holds_last_space || utf8.HasPending() || text->empty() ||
      text->back() != ' ') {
    return false;
  }
  text->pop_back();
  return true;
}

std::string_view TextStream::Step::NewText(size_t end) const {
  const size_t begin = std::min(given_size_bytes, end);
  return std::string_view(text).substr(begin, end - begin);
}

size_t TextStream::TakeThought(TokenId id) {
  constexpr size_t kAll = ~size_t{0};
  if (!IsReasoning()) return kAll;
  const ReasoningEnd::Advance after =
      options_.reasoning->After(options_.reasoning_progress, vocabulary_->Bytes(id));
  options_.reasoning_progress = after.progress;
  if (after.progress == ReasoningEnd::kOver) options_.reasoning = nullptr;
  return after.rest_bytes;
}

template <class To>
void TextStream::AppendText(const Step& step, size_t end, bool accepted_draft, To* to) {
  const std::string_view text = step.NewText(end);
  // Text that was given before is at the front.
  const size_t begin = end - text.size();
  const size_t thought = std::clamp(step.reasoning_size_bytes, begin, end) - begin;
  to->Append(text.substr(0, thought), {.accepted_draft = accepted_draft, .is_reasoning = true});
  to->Append(text.substr(thought), {.accepted_draft = accepted_draft});
}

// A kept added token is text of its own. Its content is valid UTF-8 and cannot continue pending
// bytes, so the decoder itself ends the pending bytes before it.
TextStream::Step TextStream::Decode(std::string_view bytes, size_t num_answer_bytes) const {
  Step step{.utf8 = utf8_, .stop_state = stop_state_, .stripped_spaces = stripped_spaces_};
  if (given_size_bytes_ > 0 && !utf8_.Continues(bytes)) step.given_size_bytes = given_size_bytes_;
  if (holds_space_) step.text = " ";
  step.utf8.Push(bytes, &step.text);
  step.holds_space = TakeLastSpace(step.utf8, &step.text);
  if (step.stripped_spaces > 0) Strip(&step.text, &step.stripped_spaces);
  if (num_answer_bytes == 0) {
    step.reasoning_size_bytes = step.text.size();
  } else if (num_answer_bytes < bytes.size()) {
    // The marker ends a code point, so the text behind it is that of its bytes alone.
    std::string answer;
    Utf8Stream(vocabulary_->text_rules().replacement)
        .Push(bytes.substr(bytes.size() - num_answer_bytes), &answer);
    const size_t size_bytes = answer.size() - (step.holds_space && !answer.empty() ? 1 : 0);
    step.reasoning_size_bytes = step.text.size() - std::min(size_bytes, step.text.size());
  }
  if (stops_ == nullptr) return step;
  if (num_tokens_ > options_.min_tokens) {
    step.match = stops_->Advance(&step.stop_state, step.text);
  } else {
    stops_->Pass(&step.stop_state, step.text);
  }
  return step;
}

// The first character that is no space ends the front of the text.
void TextStream::Strip(std::string* text, uint32_t* stripped_spaces) {
  size_t count = 0;
  while (count < *stripped_spaces && count < text->size() && (*text)[count] == ' ') ++count;
  const bool is_front = count == text->size();
  *stripped_spaces = is_front ? *stripped_spaces - static_cast<uint32_t>(count) : 0;
  text->erase(0, count);
}

std::optional<int> TextStream::Push(TokenId id, bool accepted_draft, TextChunk* chunk) {
  if (ended_) return std::nullopt;
  ++num_tokens_;
  const size_t num_answer_bytes = TakeThought(id);
  const std::string_view bytes = TakeBytes(id);
  if (bytes.empty()) return std::nullopt;

  Step step = Decode(bytes, num_answer_bytes);
  if (step.match) return StopAt(step, accepted_draft, chunk);
  utf8_ = step.utf8;
  stop_state_ = std::move(step.stop_state);
  stripped_spaces_ = step.stripped_spaces;
  holds_space_ = step.holds_space;
  if (!step.text.empty()) given_size_bytes_ = 0;
  pending_accepted_draft_ = accepted_draft;
  const size_t held_size_bytes = stops_ == nullptr ? 0 : stops_->HeldSizeBytes(stop_state_);
  if (held_size_bytes == 0 && held_.size_bytes() == 0) {
    AppendText(step, step.text.size(), accepted_draft, chunk);
    text_offset_ += step.NewText(step.text.size()).size();
    return std::nullopt;
  }
  AppendText(step, step.text.size(), accepted_draft, &held_);
  // A stop string may have begun in text that was given before the stream.
  Release(held_.size_bytes() - std::min(held_size_bytes, held_.size_bytes()), chunk);
  return std::nullopt;
}

std::optional<int> TextStream::PushWithheld(TokenId id, bool accepted_draft, TextChunk* chunk) {
  if (ended_) return std::nullopt;
  ++num_tokens_;
  const size_t num_answer_bytes = TakeThought(id);
  const std::string_view bytes = TakeBytes(id);
  if (bytes.empty()) return std::nullopt;
  const Step step = Decode(bytes, num_answer_bytes);
  if (!step.match) return std::nullopt;
  return StopAt(step, accepted_draft, chunk);
}

int TextStream::StopAt(const Step& step, bool accepted_draft, TextChunk* chunk) {
  const StopMatch& match = *step.match;
  AppendText(step, match.end, accepted_draft, &held_);
  const size_t cut_size_bytes =
      options_.include_stop ? 0 : std::min(match.size_bytes, held_.size_bytes());
  const size_t kept_size_bytes = held_.size_bytes() - cut_size_bytes;
  Release(kept_size_bytes, chunk);
  Finish(TextEnd::kDiscard, chunk);
  return match.index;
}

void TextStream::Finish(TextEnd how, TextChunk* chunk) {
  if (ended_) return;
  ended_ = true;
  if (how == TextEnd::kFlush) {
    std::string replacement;
    utf8_.Finish(&replacement);
    held_.Append(std::string_view(replacement).substr(given_size_bytes_),
                 {.accepted_draft = pending_accepted_draft_, .is_reasoning = IsReasoning()});
    Release(held_.size_bytes(), chunk);
  }
  utf8_.Discard();
  held_.Clear();
}

void TextStream::Release(size_t size_bytes, TextChunk* chunk) {
  held_.Release(size_bytes, chunk);
  text_offset_ += size_bytes;
}

}  // namespace specd
