// CEngine is an engine over the C interface, for the suites `ipc`, `python` and `restart`. A
// RepeatingEngine runs one round again and again.
//
// One thread uses each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/include/specd/specd.h"

namespace specd::bench {

// The status of a call of the C interface that returned this code.
absl::Status Done(std::string_view call, int code);

class CEngine {
 public:
  static constexpr int kTimeoutMs = 20'000;

  CEngine() = default;
  ~CEngine();
  CEngine(const CEngine&) = delete;
  CEngine& operator=(const CEngine&) = delete;

  absl::Status Open(const std::string& uri, const specd_options& options);
  // Binds fp32 rows of zeros.
  absl::StatusOr<float*> Bind(uint32_t role, uint32_t num_rows, uint32_t vocab_size);
  absl::StatusOr<specd_sequence_info> OpenSequence(const std::string& name,
                                                   const specd_params& params);
  // Submits a round and waits for its answer. Returns the time of both in us. Every part must be
  // verified.
  absl::StatusOr<double> RunRound(const std::vector<specd_draft>& parts, specd_completion* done);

  specd_engine* get() const { return engine_; }
  uint64_t NextRound() { return ++num_rounds_; }

 private:
  specd_engine* engine_ = nullptr;
  uint64_t num_rounds_ = 0;
};

class RepeatingEngine {
 public:
  // Its rows are random ones, max_draft + 1, which all sequences share. The best id of each row but
  // the last is a draft token.
  absl::Status Start(const std::string& uri, const specd_options& options);
  // They are the sequences of every later round. The seed of each is its number.
  absl::Status OpenSequences(const std::string& prefix, uint32_t count, double temperature);
  // A round with so many draft tokens for each sequence. Returns its time in us. At temperature 0
  // the best ids must be kept.
  absl::StatusOr<double> RunRound(uint32_t num_nodes);

  // A number that the kept ids of all rounds determine.
  uint64_t digest() const { return digest_; }

 private:
  CEngine engine_;
  std::vector<int32_t> best_;  // of each row
  std::vector<uint32_t> rows_;
  std::vector<specd_draft> parts_;
  bool is_greedy_ = false;
  uint64_t digest_ = 0;
};

}  // namespace specd::bench
