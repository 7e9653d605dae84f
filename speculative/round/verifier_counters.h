// VerifierCounters sums events over the rounds of one session; each degenerate case of CONTRACT §6
// has its own counter. Plain data; the session's lock guards it.
#pragma once

#include <cstdint>

namespace specd {

struct VerifierCounters {
  uint64_t rounds = 0;
  uint64_t sequence_rounds = 0;
  uint64_t drafted = 0;
  uint64_t accepted = 0;
  uint64_t kept = 0;
  uint64_t bad_target_rows = 0;
  uint64_t bad_draft_rows = 0;
  uint64_t empty_residuals = 0;
  uint64_t invalid_drafts = 0;
  uint64_t point_masses = 0;
  uint64_t invalid_records = 0;
  uint64_t bad_tokens = 0;  // ids that a kernel refused to emit: a fault in specd
  uint64_t discarded = 0;
};

}  // namespace specd
