#include "tools/engines/llama_cpp/drafters.h"

#include <algorithm>

#include "specd/trees.h"
#include "tools/engines/llama_cpp/answers.h"

namespace specd::llama_cpp {

absl::Status NgramDrafter::Propose(std::span<const int32_t> tokens, size_t room,
                                   Draft* draft) const {
  if (room == 0 || num_nodes == 0) return absl::OkStatus();
  specd_ngrams ngrams;
  specd_ngrams_init(&ngrams);
  ngrams.min_ngram = 1;
  ngrams.max_ngram = longest;
  ngrams.max_depth = static_cast<uint32_t>(std::min<size_t>(max_depth, room));
  ngrams.num_nodes = width > 1 ? num_nodes : std::min(num_nodes, ngrams.max_depth);
  ngrams.width = width;
  ngrams.text = {tokens.data(), tokens.size()};
  draft->tokens.resize(num_nodes);
  draft->parents.resize(num_nodes);
  uint32_t found = 0;
  const int code = specd_draft_ngram(&ngrams, draft->tokens.data(), draft->parents.data(), &found);
  draft->tokens.resize(found);
  draft->parents.resize(width > 1 ? found : 0);
  return StatusOf(code);
}

int AssistantDrafter::Attach(specd_engine* engine) {
  engine_ = engine;
  const uint64_t num_rows = model_->max_rows() * max_draft_;  // a forward has one row of each slot
  specd_region region;
  const uint64_t row_size = uint64_t{model_->vocab_size()} * sizeof(float);
  if (const int code = specd_alloc(engine, num_rows * row_size, &region); code != SPECD_OK) {
    return code;
  }
  rows_ = static_cast<float*>(region.data);
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = num_rows;
  return specd_bind(engine, SPECD_DRAFT_ROWS, &tensor);
}

absl::Status AssistantDrafter::Open(const LiveSequence& sequence) {
  return model_->Feed(sequence.slot, std::span(sequence.tokens).first(sequence.tokens.size() - 1));
}

absl::Status AssistantDrafter::Propose(std::span<LiveSequence* const> sequences) {
  std::vector<LiveSequence*> drafting(sequences.begin(), sequences.end());
  for (size_t place = 0;; ++place) {
    // A sequence leaves when its draft is full, or when it got no token in the place before.
    std::erase_if(drafting, [place](const LiveSequence* sequence) {
      return sequence->draft.tokens.size() < place || place == sequence->room;
    });
    if (drafting.empty()) return absl::OkStatus();
    absl::Status status = ForwardDrafts(drafting);
    if (status.ok()) status = Draw(drafting);
    if (!status.ok()) return status;
  }
}

// Feeds what the cache lacks: in the first place kept tokens, then the last draft token.
absl::Status AssistantDrafter::ForwardDrafts(std::span<LiveSequence* const> sequences) {
  std::vector<ForwardInput> inputs;
  for (const LiveSequence* sequence : sequences) {
    const std::span<const int32_t> kept(sequence->tokens);
    const std::span<const int32_t> drafted(sequence->draft.tokens);
    inputs.push_back(
        {.slot = sequence->slot,
         .tokens = drafted.empty() ? kept.subspan(model_->length(sequence->slot)) : drafted.last(1),
         .num_rows = 1});
  }
  return model_->Forward(inputs);
}

absl::Status AssistantDrafter::Draw(std::span<LiveSequence* const> sequences) {
  const size_t vocab_size = model_->vocab_size();
  std::vector<specd_draft_request> requests;
  std::vector<specd_draft_children> drawn(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    const LiveSequence& sequence = *sequences[i];
    const size_t place = sequence.draft.tokens.size();
    const size_t row = sequence.slot * max_draft_ + place;
    std::copy_n(model_->rows() + i * vocab_size, vocab_size, rows_ + row * vocab_size);
    specd_draft_request request = {};
    request.struct_size = sizeof(request);
    request.sequence = sequence.sequence;
    request.row = static_cast<uint32_t>(row);
    request.mask_row = -1;
    request.prefix = sequence.draft.tokens.data();
    request.num_prefix = static_cast<uint32_t>(place);
    request.sampling = is_sampled_ ? SPECD_WITH_REPLACEMENT : SPECD_TOP_K_CHILDREN;
    request.num_children = 1;
    requests.push_back(request);
    drawn[i].struct_size = sizeof(drawn[i]);
  }
  const int code = specd_sample_draft(engine_, requests.data(),
                                      static_cast<uint32_t>(requests.size()), drawn.data());
  if (code != SPECD_OK) return StatusOf(code);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (drawn[i].status == SPECD_STATUS_FINISHED) continue;  // the text side has ended it
    if (drawn[i].status != SPECD_STATUS_OK) return BadRound(drawn[i].status, drawn[i].detail);
    const specd_draft_child& child = drawn[i].children[0];
    Draft& draft = sequences[i]->draft;
    draft.tokens.push_back(child.id);
    if (!is_sampled_) continue;
    draft.rows.push_back(requests[i].row);
    draft.weights.push_back(child.weight);
    draft.masses.push_back(child.mass);
  }
  return absl::OkStatus();
}

absl::Status AssistantDrafter::Settle(const LiveSequence& sequence, size_t num_accepted) {
  return model_->Cut(sequence.slot, sequence.tokens.size() + num_accepted);
}

}  // namespace specd::llama_cpp
