// RowRules holds all that steps 1 to 6 of CONTRACT §3 need of one sequence, except the grammar.
// These are its edits, its history and its processors.
//
// It is built when a sequence is opened, and kept tokens are committed to it. It builds the places
// of a draft with the draft prefix added, and nothing of a draft remains. Create takes all memory.
// A copy is independent (FORK). Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "speculative/params/params.h"
#include "speculative/processors/processor.h"
#include "speculative/processors/token_edits.h"
#include "speculative/processors/token_history.h"

namespace specd {

// The longest history, prompt and output together, that a parameter can look back at. Its ids take
// 64 MiB of address space, and only the used part is ever touched.
inline constexpr int64_t kHistoryTokensMax = int64_t{1} << 24;

class RowRules {
 public:
  RowRules() = default;
  // REQUIRES: params passed ValidateParams; ids of the history are inside the vocabulary; there are
  // fewer outputs than max_tokens. INVALID_ARGUMENT and RESOURCE_EXHAUSTED name the field.
  static absl::StatusOr<RowRules> Create(const SequenceParams& params,
                                         std::span<const TokenId> eos_token_ids,
                                         const SequenceHistory& history,
                                         const BackendLimits& limits);
  RowRules(const RowRules& other);
  RowRules(RowRules&&) = default;
  RowRules& operator=(RowRules other) noexcept;

  // The memory that Create took, touched or not.
  size_t size_bytes() const;

  // Tells whether no row of this sequence is ever changed.
  bool empty() const { return edits_.empty() && processors_.empty(); }
  // Tells whether a processor looks at the tokens before a place. Penalties count tokens and are no
  // processors.
  bool has_processors() const { return !processors_.empty(); }
  SequenceEdits sequence_edits() const { return edits_.view(); }

  // Tells whether places differ from PlaceEdits{} in a round after num_kept output tokens.
  bool NeedsPlaces(int64_t num_kept) const {
    return edits_.counts() || !processors_.empty() || num_kept < min_tokens_;
  }

  // Allows the overrides of earlier places to be overwritten. Call it before the first Build of a
  // round.
  void BeginRound() { pool_.truncate(0); }
  // Tells whether another Build of `num_places` places fits into the rest of this round's pool. The
  // places of one whole draft always fit after BeginRound.
  bool HasRoom(size_t num_places) const {
    return pool_.capacity() - pool_.size() >= num_places * room_;
  }

  // Fills places[j] with the edits of place `first_place + j` of the draft, up to its last place.
  // The tokens from the root to a place are its draft prefix. Ids outside the vocabulary are
  // skipped: after such an id no token is ever drawn. Mask rows keep their default. The places are
  // valid until Commit or BeginRound. REQUIRES: draft.num_nodes <= limits.max_draft; HasRoom.
  void Build(const Draft& draft, int32_t first_place, int64_t num_kept, PlaceEdits* places);

  // Says that the tokens were kept.
  void Commit(std::span<const TokenId> tokens);

 private:
  absl::Status AddProcessors(const SequenceParams& params, const SequenceHistory& history,
                             const BackendLimits& limits);
  void AdvanceProcessors(size_t num_new);
  absl::Status ReservePool(const BackendLimits& limits);
  // Puts the draft prefix of `place` after the kept tokens in the history, where the draft prefix
  // of `before` is now.
  void SetPrefix(const Draft& draft, int32_t place, int32_t before, size_t num_kept_tokens);
  PlaceEdits BuildPlace(size_t num_kept_tokens);

  TokenEdits edits_;
  // In the order of CONTRACT §3; a later force replaces an earlier one.
  std::vector<std::unique_ptr<Processor>> processors_;
  int64_t min_tokens_ = 0;
  int32_t vocab_size_ = 0;

  // Prompt and output if a processor looks back at them, otherwise empty. While places are built,
  // the draft prefix follows.
  FixedList<TokenId> history_;
  size_t num_prompt_ = 0;

  FixedList<TokenEdit> pool_;  // the overrides of this round's places
  size_t room_ = 0;            // the most entries of one place
};

}  // namespace specd
