// BatchEngine is the C side that `specd-bench python` compares with: rounds, openings and draws of
// many sequences, or of one, through the C interface. tools/bench/python_rounds.py has the same
// rows, drafts and openings.
//
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/c_engine.h"
#include "tools/bench/timing.h"

namespace specd::bench {

// How much work a call has.
struct BatchShape {
  uint32_t vocab_size = 0;
  uint32_t batch = 0;  // sequences
  uint32_t draft = 0;  // draft tokens of each
  // Before each call so many bytes are read, as a forward reads its weights; 0: none.
  uint64_t forward_bytes = 0;
};

class BatchEngine {
 public:
  absl::Status Start(const std::string& uri, const BatchShape& shape);

  // Does the work of this name `count` times, and appends the time of each in us: round_batch,
  // open_batch and draw_batch in one call, round_each, open_each and draw_each in the calls for
  // single sequences.
  absl::Status Run(std::string_view work, int count, Times* times_us);

  // The checksum of the kept tokens of all rounds, and of all drawn tokens.
  uint32_t digest() const { return digest_; }

 private:
  absl::Status BindRows();
  void MakeOpenings();
  void RunForward();
  absl::Status OpenForRounds();
  absl::StatusOr<double> RoundBatch();
  absl::StatusOr<double> RoundEach();
  absl::StatusOr<double> OpenBatch();
  absl::StatusOr<double> OpenEach();
  // Draws for all sequences, `count` in a call.
  absl::StatusOr<double> Draw(uint32_t count);
  absl::StatusOr<double> CloseAll(double time_us);
  void AddToDigest(const std::vector<int32_t>& ids);

  BatchShape shape_;
  std::vector<uint64_t> weights_;  // what a forward reads
  uint64_t forward_sum_ = 0;
  CEngine engine_;
  uint32_t digest_ = 0;
  std::vector<specd_sequence> sequences_;
  std::vector<int32_t> drafts_;
  std::vector<uint32_t> offsets_;
  std::vector<uint32_t> rows_;
  std::vector<int32_t> tokens_;  // kept tokens of a round
  std::vector<int32_t> drawn_;
  std::vector<specd_draft_request> requests_;
  std::vector<specd_draft_children> children_;
  std::vector<uint32_t> status_;
  std::vector<uint32_t> num_kept_;
  std::vector<int32_t> prompts_;
  std::vector<std::string> names_;
  std::vector<const char*> name_pointers_;
  std::vector<specd_params> params_;
  std::vector<specd_sequence_info> infos_;
};

}  // namespace specd::bench
