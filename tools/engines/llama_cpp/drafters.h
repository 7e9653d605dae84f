// Drafters propose the next tokens of sequences: a smaller model, or the n-grams of the sequence.
//
// A drafter writes LiveSequence::draft. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "specd/specd.h"
#include "tools/engines/llama_cpp/cached_model.h"

namespace specd::llama_cpp {

// rows, weights and masses are those of sampled tokens; without them tokens count as one-hot.
struct Draft {
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;  // of a tree: an earlier token, or -1
  std::vector<uint32_t> rows;
  std::vector<float> weights;
  std::vector<double> masses;
};

struct LiveSequence {
  size_t prompt_index = 0;
  uint32_t slot = 0;
  specd_sequence sequence = 0;
  size_t num_prompt = 0;
  std::vector<int32_t> tokens;  // prompt and kept tokens
  size_t room = 0;              // draft tokens of the next round, at most
  Draft draft;
};

// Proposes the tokens that followed the end of the text where it stood before (specd_draft_ngram).
struct NgramDrafter {
  uint32_t longest = 3;     // ids of the n-gram, at most
  uint32_t num_nodes = 5;   // draft tokens, at most
  uint32_t width = 1;       // children of a place, at most; 1: a chain
  uint32_t max_depth = 64;  // tokens of a path, at most

  // room: tokens of a path for which there is room.
  absl::Status Propose(std::span<const int32_t> tokens, size_t room, Draft* draft) const;
};

// Draws from the rows of a smaller model, through specd_sample_draft.
class AssistantDrafter {
 public:
  // is_sampled: tokens are drawn, and carry their q. Otherwise each is the best id of its row.
  AssistantDrafter(std::unique_ptr<CachedModel> model, size_t max_draft, bool is_sampled)
      : model_(std::move(model)), max_draft_(max_draft), is_sampled_(is_sampled) {}

  // Binds the memory of the draft rows, which stay until the round has judged them.
  int Attach(specd_engine* engine);
  absl::Status Open(const LiveSequence& sequence);
  absl::Status Propose(std::span<LiveSequence* const> sequences);
  // Forgets rejected draft tokens, before the kept ones are added to sequence.tokens.
  absl::Status Settle(const LiveSequence& sequence, size_t num_accepted);
  absl::Status Close(uint32_t slot) { return model_->Cut(slot, 0); }

  const CachedModel& model() const { return *model_; }

 private:
  absl::Status ForwardDrafts(std::span<LiveSequence* const> sequences);
  absl::Status Draw(std::span<LiveSequence* const> sequences);

  const std::unique_ptr<CachedModel> model_;
  const size_t max_draft_;
  const bool is_sampled_;
  specd_engine* engine_ = nullptr;
  float* rows_ = nullptr;  // max_draft rows for each slot
};

}  // namespace specd::llama_cpp
