// SessionLimits states the largest round of one session and the most sequences that it may have
// open, as its engine declares them when it attaches. All memory of a session is sized from these
// numbers.
//
// Plain data. ValidateLimits (ipc/segment/layout.h) checks the numbers once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace specd {

struct SessionLimits {
  // The ranges of specd/specd.h. A vocabulary has at most kVocabSizeMax ids.
  static constexpr uint32_t kBatchMax = 4096;
  static constexpr uint32_t kSequencesMax = 65536;
  static constexpr uint32_t kDraftMax = 64;
  static constexpr uint32_t kRingDepthMax = 64;
  // The token itself, the best 64 and 64 chosen ids (speculative/params/params.h).
  static constexpr uint32_t kScoresMax = 129;

  uint32_t vocab_size = 0;
  uint32_t max_batch = 0;
  uint32_t max_sequences = 0;
  uint32_t max_draft = 0;  // nodes of one draft
  uint32_t ring_depth = 0;
  uint32_t max_scores = 0;  // scores of one kept token
  uint32_t max_path = 0;    // nodes from the root to the end of a draft; 0: max_draft

  constexpr uint32_t path_max() const { return max_path == 0 ? max_draft : max_path; }
  // The most tokens that one sequence gains in a round: one path and one more token.
  constexpr uint32_t max_output() const { return path_max() + 1; }
  // The most scores of these tokens.
  constexpr size_t max_output_scores() const { return size_t{max_output()} * max_scores; }

  friend bool operator==(const SessionLimits&, const SessionLimits&) = default;
};

}  // namespace specd
