// SessionLimits: the largest round and the largest population of one session, as an engine states
// them when it attaches. All memory of a session is sized from these numbers.
//
// Plain data. ValidateLimits (ipc/segment/layout.h) checks the numbers once.
#pragma once

#include <cstdint>

namespace specd {

struct SessionLimits {
  // The ranges, the same as in specd/specd.h. A vocabulary has at most kVocabSizeMax ids.
  static constexpr uint32_t kBatchMax = 4096;
  static constexpr uint32_t kSequencesMax = 65536;
  static constexpr uint32_t kDraftMax = 64;
  static constexpr uint32_t kRingDepthMax = 64;
  // The token itself, the best 64 and 64 chosen ones (speculative/params.h).
  static constexpr uint32_t kScoresMax = 129;

  uint32_t vocab_size = 0;
  uint32_t max_batch = 0;
  uint32_t max_sequences = 0;
  uint32_t max_draft = 0;  // nodes of one draft
  uint32_t ring_depth = 0;
  uint32_t max_scores = 0;  // of one kept token
  uint32_t max_path = 0;    // nodes from the root to the end of a draft; 0: max_draft

  constexpr uint32_t path_max() const { return max_path == 0 ? max_draft : max_path; }
  // The most tokens that one sequence gains in a round: a path and one more.
  constexpr uint32_t max_output() const { return path_max() + 1; }

  friend bool operator==(const SessionLimits&, const SessionLimits&) = default;
};

}  // namespace specd
