// ThinkingBudget closes a thought once it has used its tokens: step 6 of CONTRACT §3.
//
// It counts tokens after the last start marker, prompt and draft prefix included, until the end
// sequence follows. Once there are `budget` of them, it forces the place. The newline comes first,
// unless it was the token just emitted; then the end sequence follows id by id. If the model has
// begun an end sequence itself, the processor completes that one. A thought therefore exceeds its
// budget only by the newline and the end sequence. One sequence owns it, like every Processor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "speculative/processors/processor.h"

namespace specd {

// Returns the markers of a model family, with the budget off: "glm-4.5", "qwen3", "deepseek-r1".
std::optional<ThinkingParams> FindThinkingPreset(std::string_view name);

class ThinkingBudget : public Processor {
 public:
  // With a budget below 0 nothing is forced, and places only know that a thought is open. REQUIRES:
  // end_ids is not empty.
  explicit ThinkingBudget(const ThinkingParams& params);

  size_t max_edits() const override { return 0; }
  void Advance(const TokenHistory& history, size_t num_new) override;
  void Apply(const TokenHistory& history, PlaceEditor* place) const override;
  std::unique_ptr<Processor> Clone() const override {
    return std::make_unique<ThinkingBudget>(*this);
  }

 private:
  // The state after the tokens so far: Knuth-Morris-Pratt over the end sequence.
  struct Thought {
    bool open = false;
    int64_t num_tokens = 0;  // since the start marker
    size_t num_ended = 0;    // ids of the end sequence that were just seen
  };
  void Step(TokenId id, Thought* thought) const;

  const ThinkingParams params_;
  std::vector<size_t> fallback_;  // for each prefix of the end sequence: its longest proper border
  Thought kept_;
};

}  // namespace specd
