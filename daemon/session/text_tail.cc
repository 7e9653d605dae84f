#include "daemon/session/text_tail.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "detokenizer/utf8_stream.h"
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
    const size_t wanted_bytes = std::max(kPendingBytesMax, NumStripped());
    std::vector<TokenId> found;
    size_t found_bytes = 0;
    for (size_t i = ids.size();
         i > 0 && found.size() < kPromptTailMax && found_bytes < wanted_bytes; --i) {
      const size_t size_bytes = SizeBytes(ids[i - 1]);
      if (size_bytes > 0) found.push_back(ids[i - 1]);
      found_bytes += size_bytes;
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

  // True if these ids do not have the bytes that surely end the front of a text.
  bool MayBeFront(std::span<const TokenId> ids) const {
    size_t size_bytes = 0;
    for (const TokenId id : ids) size_bytes += SizeBytes(id);
    return size_bytes < NumStripped();
  }

  // True if the ids may end in the middle of a code point.
  bool MayEndInside(std::span<const TokenId> ids) const {
    if (vocabulary_ == nullptr) return !ids.empty();
    Utf8Stream utf8;
    std::string text;
    for (const TokenId id : ids) utf8.Push(IsSkipped(id) ? "" : vocabulary_->Bytes(id), &text);
    return utf8.HasPending();
  }

 private:
  bool IsSkipped(TokenId id) const { return skip_special_tokens_ && vocabulary_->IsSpecial(id); }
  size_t SizeBytes(TokenId id) const {
    if (vocabulary_ == nullptr) return 1;
    return IsSkipped(id) ? 0 : vocabulary_->Bytes(id).size();
  }

  const Vocabulary* vocabulary_;
  bool skip_special_tokens_;
};

// All but the last byte of the longest stop string, behind the end of a code point that was cut at
// the front, and before the beginning of one at the end.
size_t OutputBytes(const std::vector<std::string>& stop_strings) {
  size_t longest = 1;
  for (const std::string& stop : stop_strings) longest = std::max(longest, stop.size());
  return kPendingBytesMax + (longest - 1) + (stop_strings.empty() ? 0 : kPendingBytesMax);
}

}  // namespace

TextTail MakeTextTail(const ModelProfile& profile, const SequenceParams& params,
                      const SequenceHistory& history) {
  const TailPicker picker(profile, params.skip_special_tokens);
  const size_t output_bytes = std::max(OutputBytes(params.stop_strings), picker.NumStripped());
  std::span<const TokenId> outputs = picker.Last(history.outputs, output_bytes, kOutputTailMax);
  std::vector<TokenId> prompt;
  // A code point of the prompt goes on in the first outputs, and these go along with it.
  const bool has_all_outputs = outputs.size() == history.outputs.size();
  if (has_all_outputs && params.text_of == DecodedIds::kPromptAndOutputs) {
    prompt = picker.LastOfPrompt(history.prompt);
    if (picker.NumStripped() == 0 && !picker.MayEndInside(prompt)) prompt.clear();
  }
  if (params.stop_strings.empty() && prompt.empty() && !picker.MayEndInside(outputs) &&
      !picker.MayBeFront(outputs)) {
    outputs = {};
  }
  return {std::move(prompt), {outputs.begin(), outputs.end()}};
}

}  // namespace specd
