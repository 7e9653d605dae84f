#include "daemon/session/text_tail.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "detokenizer/reasoning_end.h"
#include "detokenizer/text_stream.h"
#include "ipc/events/token_event.h"

namespace specd {
namespace {

// A code point has at most four bytes, so at most three are there without the last.
constexpr size_t kPendingBytesMax = 3;

class TailPicker {
 public:
  TailPicker(const ModelProfile& profile, bool skip_special_tokens)
      : vocabulary_(profile.vocabulary.has_value() ? &*profile.vocabulary : nullptr),
        skip_special_tokens_(skip_special_tokens) {}

  // True if a text depends on whether text precedes it.
  bool HasFront() const { return vocabulary_ != nullptr && vocabulary_->HasFront(); }
  // The spaces that the decoder may strip from the front of a text.
  size_t NumStripped() const {
    return vocabulary_ == nullptr ? 0 : vocabulary_->text_rules().stripped_spaces;
  }

  // The last ids that have `size_bytes` bytes of text, or all of them, but at most `size_max`.
  std::span<const TokenId> Last(std::span<const TokenId> ids, size_t size_bytes,
                                size_t size_max) const {
    size_t count = 0;
    size_t found_bytes = 0;
    while (count < std::min(ids.size(), size_max) && found_bytes < size_bytes) {
      ++count;
      found_bytes += SizeBytes(ids[ids.size() - count]);
    }
    return ids.last(count);
  }

  // The same of the prompt, without the ids that have no text. Many special tokens may follow its
  // text.
  std::vector<TokenId> LastOfPrompt(std::span<const TokenId> ids) const {
    if (vocabulary_ == nullptr) {
      ids = ids.last(std::min(ids.size(), kPromptTailMax));
      return {ids.begin(), ids.end()};
    }
    std::vector<TokenId> found;
    size_t found_bytes = 0;
    bool is_enough = false;
    for (size_t i = ids.size(); i > 0 && found.size() < kPromptTailMax && !is_enough; --i) {
      const size_t size_bytes = SizeBytes(ids[i - 1]);
      if (size_bytes == 0) continue;
      found.insert(found.begin(), ids[i - 1]);
      found_bytes += size_bytes;
      is_enough = found_bytes >= kPendingBytesMax && !MayBeFront(found);
    }
    return found;
  }

  // True if these ids do not surely end the front of a text.
  bool MayBeFront(std::span<const TokenId> ids) const {
    return HasFront() && StreamAfter(ids).AtFront();
  }

  // True if the ids may end in the middle of a code point.
  bool MayEndInside(std::span<const TokenId> ids) const {
    return vocabulary_ == nullptr ? !ids.empty() : StreamAfter(ids).HasPending();
  }

 private:
  TextStream StreamAfter(std::span<const TokenId> ids) const {
    TextStream stream(vocabulary_, nullptr, {.skip_special_tokens = skip_special_tokens_});
    stream.Prime(ids, {});
    return stream;
  }
  size_t SizeBytes(TokenId id) const {
    if (vocabulary_ == nullptr) return 1;
    if (skip_special_tokens_ && vocabulary_->IsSpecial(id)) return 0;
    return vocabulary_->Bytes(id).size();
  }

  const Vocabulary* vocabulary_;
  bool skip_special_tokens_;
};

// All but the last byte of the longest stop, behind the end of a code point that was cut at
// the front, and before the beginning of one at the end.
size_t OutputBytes(const SequenceParams& params) {
  size_t longest = params.stop_regex.empty() ? 1 : StopPattern::kMatchSizeBytesMax;
  for (const std::string& stop : params.stop_strings) longest = std::max(longest, stop.size());
  return kPendingBytesMax + (longest - 1) + (params.HasStops() ? kPendingBytesMax : 0);
}

TextTail::Thought ThoughtAfter(const ModelProfile& profile, const SequenceHistory& history) {
  TextTail::Thought thought;
  if (!profile.vocabulary.has_value() || profile.reasoning.end.empty()) return thought;
  const ReasoningEnd end(profile.reasoning.start, profile.reasoning.end);
  uint32_t progress = end.AfterPrompt(history.prompt, *profile.vocabulary);
  while (progress != ReasoningEnd::kOver && thought.num_tokens < history.outputs.size()) {
    const TokenId id = history.outputs[thought.num_tokens++];
    progress = end.After(progress, profile.vocabulary->Bytes(id)).progress;
  }
  thought.is_open = progress != ReasoningEnd::kOver;
  if (thought.is_open) thought.progress = progress;
  return thought;
}

}  // namespace

TextTail MakeTextTail(const ModelProfile& profile, const SequenceParams& params,
                      const SequenceHistory& history) {
  const TailPicker picker(profile, params.skip_special_tokens);
  const size_t output_bytes = std::max(OutputBytes(params), picker.NumStripped());
  std::span<const TokenId> outputs = picker.Last(history.outputs, output_bytes, kOutputTailMax);
  // Ids behind the last of them tell whether the front is over.
  while (outputs.size() < std::min(history.outputs.size(), kOutputTailMax) &&
         picker.MayBeFront(outputs)) {
    const size_t count = std::max<size_t>(2 * outputs.size(), 1);
    outputs = history.outputs.last(std::min({count, history.outputs.size(), kOutputTailMax}));
  }
  std::vector<TokenId> prompt;
  // A code point of the prompt goes on in the first outputs, and these go along with it.
  const bool has_all_outputs = outputs.size() == history.outputs.size();
  if (has_all_outputs && params.text_of == DecodedIds::kPromptAndOutputs) {
    prompt = picker.LastOfPrompt(history.prompt);
    if (!picker.HasFront() && !picker.MayEndInside(prompt)) prompt.clear();
  }
  if (!params.HasStops() && prompt.empty() && !picker.MayEndInside(outputs) &&
      !picker.MayBeFront(outputs)) {
    outputs = {};
  }
  return {std::move(prompt), {outputs.begin(), outputs.end()}, ThoughtAfter(profile, history)};
}

}  // namespace specd
