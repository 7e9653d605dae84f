// MeasureAccepted counts the draft tokens that a method keeps, for `specd-bench accept`.
//
// Every sequence draws its draft from its draft rows and brings one round. Single-threaded.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "tools/bench/rows.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

struct Accepted {
  double tokens = 0;     // of a round: the accepted ones and one more
  double error = 0;      // the standard error of `tokens`
  double rows_read = 0;  // of a sequence
  int32_t rows_given = 0;
  int64_t num_checked = 0;  // tokens that the oracle computed too
};

// Rounds of `batch` sequences each, over the same rows and with other seeds. REQUIRES: a case of
// DraftPlan::kDrawn; pools with a row for each place of the batch.
absl::StatusOr<Accepted> MeasureAccepted(const VerifyCase& verify_case, int32_t batch,
                                         int32_t num_rounds, const RowPool& target,
                                         const RowPool& draft, Backend* backend);

}  // namespace specd::bench
