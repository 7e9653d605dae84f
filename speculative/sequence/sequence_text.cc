#include "speculative/sequence/sequence_text.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace specd {

SequenceText::SequenceText(TextStream begin, const Options& options)
    : state_(std::make_unique<State>(State{.stream = std::move(begin), .options = options})) {
  state_->num_tokens = options.num_outputs;
  state_->unread.token_offset = options.num_outputs;
}

SequenceText::SequenceText(const SequenceText& other) {
  if (other.empty()) return;
  Options options = other.state_->options;
  options.num_outputs = other.state_->num_tokens;
  *this = SequenceText(other.state_->stream.Fork(), options);
}

SequenceText& SequenceText::operator=(SequenceText other) noexcept {
  state_ = std::move(other.state_);
  return *this;
}

void SequenceText::DropRead() {
  if (!state_->is_read) return;
  state_->is_read = false;
  state_->unread.text.clear();
  state_->unread.ends.clear();
  state_->unread.reasoning_bytes = 0;
  state_->unread.byte_offset = state_->stream.text_offset();
  state_->unread.token_offset = state_->num_tokens;
}

std::optional<int32_t> SequenceText::Push(const Kept& kept) {
  DropRead();
  TextStream& stream = state_->stream;
  std::vector<uint64_t>& ends = state_->unread.ends;
  const int32_t num_ids = kept.ids.size();
  std::optional<int> stop;
  state_->num_pushed = 0;
  for (int32_t i = 0; i < num_ids && !stop.has_value(); ++i) {
    const bool is_withheld =
        kept.ends_with_stop && i + 1 == num_ids && !state_->options.include_stop;
    const TokenId id = kept.ids[i];
    const bool is_accepted = i < kept.num_accepted;
    state_->options.num_reasoning += stream.IsReasoning() ? 1 : 0;
    stop = is_withheld ? stream.PushWithheld(id, is_accepted, &state_->chunk)
                       : stream.Push(id, is_accepted, &state_->chunk);
    if (state_->options.is_kept) ends.push_back(stream.decoded_offset());
    ++state_->num_tokens;
    ++state_->num_pushed;
  }
  Keep();
  if (!stop.has_value()) return std::nullopt;
  state_->stop_index = *stop;
  for (uint64_t& end : ends) end = std::min(end, stream.text_offset());
  return state_->num_pushed;
}

void SequenceText::Finish() {
  if (state_->stream.ended()) return;
  DropRead();
  state_->stream.Finish(is_kept() ? TextEnd::kFlush : TextEnd::kDiscard, &state_->chunk);
  Keep();
}

void SequenceText::Keep() {
  if (is_kept()) {
    state_->unread.text += state_->chunk.text;
    for (const TextSpan& span : state_->chunk.spans) {
      if (span.is_reasoning) state_->unread.reasoning_bytes += span.size_bytes;
    }
  }
  state_->chunk.Clear();
}

const std::string& SequenceText::stop_string() const {
  SPECD_CHECK(state_->stop_index >= 0);
  return state_->stream.stops()->TextOf(state_->stop_index);
}

}  // namespace specd
