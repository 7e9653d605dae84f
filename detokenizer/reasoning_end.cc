#include "detokenizer/reasoning_end.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace specd {
namespace {

// The prompt is read from its end in blocks, because its last marker decides.
constexpr size_t kBlockIds = 512;

// Knuth, Morris and Pratt: fail[i] is the longest proper prefix of the first i bytes that ends
// them.
std::vector<uint32_t> FailuresOf(std::string_view text) {
  std::vector<uint32_t> fail(text.size() + 1, 0);
  uint32_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = fail[length];
    if (text[i] == text[length]) ++length;
    fail[i + 1] = length;
  }
  return fail;
}

}  // namespace

ReasoningEnd::ReasoningEnd(std::string start, std::string end)
    : start_(std::move(start)), end_(std::move(end)), fail_(FailuresOf(end_)) {
  SPECD_CHECK(!end_.empty());
}

ReasoningEnd::Advance ReasoningEnd::After(uint32_t progress, std::string_view bytes) const {
  for (size_t i = 0; i < bytes.size(); ++i) {
    while (progress > 0 && bytes[i] != end_[progress]) progress = fail_[progress];
    if (bytes[i] == end_[progress]) ++progress;
    if (progress == end_.size()) return {kOver, bytes.size() - i - 1};
  }
  return {progress, 0};
}

uint32_t ReasoningEnd::AfterPrompt(std::span<const TokenId> prompt,
                                   const Vocabulary& vocabulary) const {
  const size_t overlap = std::max(start_.size(), end_.size()) - 1;
  std::string text;  // of a block, and what follows it of a marker that may begin there
  std::string tail;  // of the prompt: an end marker that the answer completes may begin there
  size_t end = std::string::npos;
  size_t start = std::string::npos;
  while (!prompt.empty() && end == std::string::npos && start == std::string::npos) {
    const auto block = prompt.last(std::min(prompt.size(), kBlockIds));
    prompt = prompt.first(prompt.size() - block.size());
    std::string before;
    for (const TokenId id : block) before += vocabulary.Bytes(id);
    text = before + text.substr(0, overlap);
    if (tail.size() < end_.size() - 1) tail.insert(0, before);
    // A prompt that shows no start marker has nothing to say about this answer, except by its end.
    end = text.rfind(end_);
    if (!start_.empty()) start = text.rfind(start_);
  }
  if (end != std::string::npos && (start == std::string::npos || start < end)) return kOver;
  const size_t size = std::min(tail.size(), end_.size() - 1);
  return After(0, std::string_view(tail).substr(tail.size() - size)).progress;
}

}  // namespace specd
