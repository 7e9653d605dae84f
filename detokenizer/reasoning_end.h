// ReasoningEnd finds where a model's thought ends, in the bytes of its tokens.
//
// A model may think before it answers, and closes the thought with a text such as </think>. That
// text may be one token or several, begin in a prompt and end inside a token. It is found in the
// tokens' bytes, so a special token that is not shown counts too. A text has one thought at most,
// at its front. Constant after construction; safe from any thread.
//
//   ReasoningEnd end("<think>", "</think>");
//   uint32_t progress = end.AfterPrompt(prompt, vocabulary);
//   progress = end.After(progress, vocabulary.Bytes(id)).progress;   // kOver: the answer begins
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "kernels/core/types.h"

namespace specd {

class ReasoningEnd {
 public:
  static constexpr size_t kMarkerBytesMax = 64;
  static constexpr uint32_t kOver = ~uint32_t{0};

  // `start` may be empty: then a thought is open unless the prompt closes it. REQUIRES: `end` is
  // not empty.
  ReasoningEnd(std::string start, std::string end);

  // The number of the end marker's bytes that the last bytes of the prompt spell; kOver if the last
  // thought was closed. A prompt without a marker says nothing about this answer, so its thought is
  // open.
  uint32_t AfterPrompt(std::span<const TokenId> prompt, const Vocabulary& vocabulary) const;

  // The progress after a token, and how many of its bytes follow the marker if it completes there.
  struct Advance {
    uint32_t progress = 0;
    size_t rest_bytes = 0;
  };
  // REQUIRES: progress is not kOver.
  Advance After(uint32_t progress, std::string_view bytes) const;

  const std::string& end() const { return end_; }

 private:
  const std::string start_;
  const std::string end_;
  std::vector<uint32_t> fail_;  // of the end marker, by progress
};

}  // namespace specd
