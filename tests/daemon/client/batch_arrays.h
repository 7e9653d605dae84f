// Arrays has room for the results of a batch of an EmbeddedEngine, for tests of the C interface.
//
// The memory is the test's own; each test makes its own Arrays.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/client/embedded_engine.h"

namespace specd::test {

inline constexpr uint32_t kWidth = EmbeddedEngine::kMaxDraft + 1;
inline constexpr uint32_t kScores = EmbeddedEngine::kMaxScores;

// Arrays for the results of a round of up to four sequences.
struct Arrays {
  Arrays() {
    specd_batch_results_init(&results);
    results.max_results = 4;
    results.tokens_stride = kWidth;
    results.scores_stride = kScores;
    results.status = status;
    results.finish_reason = finish_reason;
    results.num_accepted = num_accepted;
    results.num_kept = num_kept;
    results.total_kept = total_kept;
    results.stop_token = stop_token;
    results.detail = detail;
    results.bad_row = bad_row;
    results.verify = verify;
    results.scores_per_token = scores_per_token;
    results.cumulative_logprob = cumulative_logprob;
    results.tokens = tokens;
    results.path = path;
    results.scores = scores;
    std::memset(tokens, 0x55, sizeof(tokens));
    std::memset(path, 0x55, sizeof(path));
    std::memset(scores, 0x55, sizeof(scores));
  }

  std::vector<int32_t> RowOf(const int32_t* rows, uint32_t i) const {
    return {rows + i * kWidth, rows + (i + 1) * kWidth};
  }
  std::vector<int32_t> Kept(uint32_t i) const {
    return {tokens + i * kWidth, tokens + i * kWidth + num_kept[i]};
  }

  specd_batch_results results;
  uint32_t status[4], finish_reason[4], num_accepted[4], num_kept[4], total_kept[4], detail[4];
  uint32_t bad_row[4], verify[4], scores_per_token[4];
  int32_t stop_token[4];
  double cumulative_logprob[4];
  int32_t tokens[4 * kWidth], path[4 * kWidth];
  specd_token_score scores[4 * kWidth * kScores];
};

inline specd_batch BatchOf(const std::vector<specd_sequence>& sequences) {
  specd_batch batch;
  specd_batch_init(&batch);
  batch.num_sequences = static_cast<uint32_t>(sequences.size());
  batch.sequences = sequences.data();
  return batch;
}

}  // namespace specd::test
