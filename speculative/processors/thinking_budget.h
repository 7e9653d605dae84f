// ThinkingBudget: step 6 of CONTRACT §3. A thought is closed once it has taken its tokens.
//
// Tokens after the last start marker are counted, prompt and draft prefix included, while the end
// sequence has not followed. Once there are `budget` of them the place is forced: to the newline,
// unless it was the token just emitted, and then to the end sequence id by id. An end sequence that
// the model has begun itself is completed and not begun anew. So a thought exceeds its budget by
// the newline and the end sequence only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "speculative/processor.h"

namespace specd {

// The markers of a model family, with the budget off: "glm-4.5", "qwen3", "deepseek-r1".
std::optional<ThinkingParams> FindThinkingPreset(std::string_view name);

class ThinkingBudget : public Processor {
 public:
  // REQUIRES: params.budget >= 0 and end_ids is not empty.
  explicit ThinkingBudget(const ThinkingParams& params);

  size_t max_edits() const override { return 0; }
  void Advance(const TokenHistory& history, size_t num_new) override;
  void Apply(const TokenHistory& history, PlaceEditor* place) const override;
  std::unique_ptr<Processor> Clone() const override {
    return std::make_unique<ThinkingBudget>(*this);
  }

 private:
  // Where the tokens so far have led: Knuth-Morris-Pratt over the end sequence.
  struct Thought {
    bool open = false;
    int64_t num_tokens = 0;  // since the start marker
    size_t num_ended = 0;    // ids of the end sequence that were just seen
  };
  void Step(TokenId id, Thought* thought) const;

  const ThinkingParams params_;
  std::vector<size_t> fallback_;  // of each prefix of the end sequence: its longest proper border
  Thought kept_;
};

}  // namespace specd
