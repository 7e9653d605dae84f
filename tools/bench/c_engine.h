// CEngine is an engine over the C interface whose rounds have one right answer each, for the suites
// `ipc`, `python`, `trace`, `stall`, `restart` and `egress`.
//
// Each of its rows has a best id, so far above all others that every coin draws it: row r has the
// id first_best + 7 r modulo the vocabulary's size. A draft token is the best id of its row. Each
// round has all open sequences, and its answer is checked. One thread.
//
//   CEngine engine;
//   absl::Status status = engine.Start("embedded:cpu", CEngine::Options(2048, 1, 5), {});
//   status = engine.Open("a", 1, CEngine::Params(0));
//   status = engine.RunRound(5).status();
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

struct KnownRows {
  uint32_t num_rows = 0;  // of the target, which the places take in turn; 0: one for each place
  uint32_t first_best = 3;
  bool has_draft_rows = false;  // one for each draft token, with its id as the best one
  bool has_wrong = false;       // the third draft token of every second sequence is another id
  // Rows of RowPool for both, as a model's are, in place of known ones. A draft token counts as
  // drawn from its draft row, whose best id it is, and most are rejected. The answers are not
  // known: `digest` compares engines.
  bool are_drawn = false;
};

class CEngine {
 public:
  static constexpr int kTimeoutMs = 20'000;

  static specd_options Options(uint32_t vocab_size, uint32_t batch, uint32_t draft);
  // Seeded, with any number of tokens.
  static specd_params Params(double temperature);

  CEngine() = default;
  ~CEngine() { specd_close(engine_); }
  CEngine(const CEngine&) = delete;
  CEngine& operator=(const CEngine&) = delete;

  absl::Status Start(const std::string& uri, const specd_options& options, const KnownRows& rows);
  // Opens further sequences, whose names begin with the prefix.
  absl::Status Open(const std::string& prefix, uint32_t count, specd_params params);
  absl::Status CloseAll();

  // A round with so many draft tokens for each sequence. Returns its time in us.
  absl::StatusOr<double> RunRound(uint32_t num_nodes);
  // The same in two steps: whether the round that was submitted last has been answered.
  absl::Status Submit(uint32_t num_nodes);
  absl::StatusOr<bool> Poll();

  specd_engine* get() const { return engine_; }
  const std::vector<specd_sequence>& sequences() const { return sequences_; }
  // Of a draft row: that of a draft token, in the order of a full round.
  int32_t BestOfDraft(uint32_t row) const {
    const uint32_t place = row / options_.max_draft * (options_.max_draft + 1);
    return static_cast<int32_t>(BestOf((place + row % options_.max_draft) % rows_.num_rows));
  }
  // A number that the kept ids of all rounds determine.
  uint64_t digest() const { return digest_; }
  // When the last round was confirmed, by the clock of SteadyClock.
  int64_t confirmed_ns() const { return confirmed_ns_; }

 private:
  absl::StatusOr<float*> Bind(int role, uint32_t num_rows);
  uint32_t BestOf(uint32_t row) const { return (rows_.first_best + 7 * row) % options_.vocab_size; }
  bool IsWrong(size_t sequence, uint32_t node) const {
    return rows_.has_wrong && sequence % 2 == 1 && node == 2;
  }
  // The batch, and its right answer.
  void Prepare(uint32_t num_nodes);
  absl::Status CheckAnswer();

  specd_options options_ = {};
  KnownRows rows_;
  specd_engine* engine_ = nullptr;
  std::vector<specd_sequence> sequences_;
  uint64_t num_rounds_ = 0;
  int64_t confirmed_ns_ = 0;
  uint64_t digest_ = 0;
  std::vector<int32_t> drawn_drafts_;  // of are_drawn

  // What `batch_` and `results_` point at.
  std::vector<uint32_t> offsets_;
  std::vector<int32_t> drafts_;
  std::vector<uint8_t> kinds_;
  std::vector<uint32_t> target_rows_;
  std::vector<int32_t> tokens_;
  std::vector<uint32_t> status_;
  std::vector<int32_t> expected_;  // of tokens_
  specd_batch batch_ = {};
  specd_batch_results results_ = {};
};

}  // namespace specd::bench
