// RoundCase owns a whole round for tests of teams and backends: tensors, masks, tasks and room for
// answers. The RoundBatch it gives points into it and is valid while it lives.
//
//   RoundCase round({.vocab_size = 300, .batch = 64, .max_draft = 4, .seed = 7});
//   backend->Run(round.All());
//   CHECK(round.answer(3) == other.answer(3));
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/core/round.h"
#include "tests/support/rows.h"

namespace specd {

// Random sequences with all content of a round. They have every kind of task, method and draft
// token, and chains of 0..max_draft. They also have edits, masks, filters, scores, the side
// channel, and degenerate rows. The content need not make sense as a model; it serves to compare
// processors.
class RoundCase {
 public:
  struct Options {
    int32_t vocab_size = 0;
    int32_t batch = 0;
    int32_t max_draft = 0;
    DType dtype = DType::kFloat32;          // kFloat32 if rows are probabilities
    std::optional<DType> draft_dtype = {};  // of draft rows; none: dtype
    uint64_t seed = 0;
    // Final probabilities allow no parameters, so their tasks have none.
    RowKind target_kind = RowKind::kLogits;
    RowKind draft_kind = RowKind::kLogits;
    bool scaled = false;       // logits have a scale and a cap
    bool renormalise = false;  // probabilities need not sum to 1, and their rows do not
    // About half of the masks come as rows of specd's own grammar.
    bool grammar_masks = false;
    bool plain = false;  // tasks only verify, and their rows have no edits
    // Tasks only verify, by method token, drafts of sampled tokens only: many tokens fall.
    bool sampled = false;
    int32_t num_edits = 12;  // at most, of a sequence that has some
    // Logits are whole numbers, so that many weights are powers of two, from 1 down to nothing.
    bool whole = false;
    // Row r has most of its mass in tile r, or in tile r modulo the number of tiles.
    bool by_tile = false;
    // Draft rows have this many columns, in any order of ids, and q is 0 elsewhere. 0: V columns.
    int32_t num_columns = 0;
    bool trees = false;       // SlotRounds: drafts are trees
    float cap = 20;           // of scaled logits
    float repetition = 1.3f;  // the penalty of half of the sequences with edits
  };

  explicit RoundCase(const Options& options);
  RoundCase(const RoundCase&) = delete;
  RoundCase& operator=(const RoundCase&) = delete;

  // With num_columns: the draft rows of later batches have V columns all the same.
  void WidenDrafts() { is_wide_ = true; }
  TensorView draft_view() const;
  // The column of each id, and where the backend of the next batches has kept them.
  const std::vector<int32_t>& columns() const { return columns_; }
  void KeepColumnsAt(const int32_t* kept) { kept_columns_ = kept; }

  // The round, or the part with the tasks at `places`, in that order.
  RoundBatch All();
  RoundBatch Some(const std::vector<int32_t>& places);

  // The task of sequence i of the whole round. A test may change it before it asks for a batch.
  Task& task(int32_t i) { return sequences_[i].task; }
  // Makes any task a kVerify task. A scored task may have no row after its last token.
  void MakeVerify(int32_t i) {
    task(i).kind = TaskKind::kVerify;
    const auto num_rows = static_cast<int32_t>(sequences_[i].target_rows.size());
    task(i).draft.num_nodes = std::min(task(i).draft.num_nodes, num_rows - 1);
  }
  // A target row, and a draft row, with only NaN.
  static constexpr uint32_t kNanRow = 9;

  // Slots are in another order than the sequences, with unused slots in between.
  uint32_t slot(int32_t i) const { return sequences_[i].task.slot; }
  // A round has two replicas of every slot output. The first two outputs are the next tokens. The
  // other replicas have int32 elements without gaps, and int64 elements with gaps.
  static constexpr int32_t kNumSlotOutputs = 2 * kNumSlotFields;
  // The memory of slot output i; kUnwritten where nothing was written.
  static constexpr TokenId kUnwritten = -9;
  const std::vector<TokenId>& slot_memory(int32_t i) const { return slot_memory_[i]; }
  const std::vector<TokenId>& next_tokens(int32_t replica) const { return slot_memory_[replica]; }

  const TaskOutcome& outcome(int32_t i) const { return outcomes_[i]; }
  // The tokens of answer i without the rest of its array.
  std::vector<TokenId> tokens(int32_t i) const;
  // The whole of answer i, to the bit: outcome, tokens, scores, samples, slot outputs. Equal
  // answers give equal texts.
  std::string answer(int32_t i) const;

 private:
  struct Sequence {
    std::vector<TokenId> draft;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> target_rows;
    std::vector<uint32_t> draft_rows;
    std::vector<float> draft_weights;
    std::vector<double> draft_masses;
    std::vector<TokenId> target_argmax;
    std::vector<TokenEdit> edits;
    std::vector<std::vector<TokenEdit>> overrides;
    std::vector<PlaceEdits> places;
    std::vector<TokenId> chosen;
    std::vector<InjectedCoin> coins;
    Task task;
  };

  void FillColumns();
  void FillRows();
  void FillMasks();
  void FillChain(Sequence* sequence);
  void FillTask(Sequence* sequence);
  void FillCoins(Sequence* sequence);
  void FillEdits(Sequence* sequence);
  std::vector<TokenEdit> RandomEdits(int32_t count);
  Filters RandomFilters();
  void ClearSlotOutputs();
  bool Chance(uint64_t one_in) { return random_() % one_in == 0; }
  TokenId AnyId() { return static_cast<TokenId>(random_() % uint64_t(options_.vocab_size)); }
  TokenId LikelyId() { return likely_[random_() % likely_.size()]; }

  const Options options_;
  std::mt19937_64 random_;
  RowMatrix target_;
  RowMatrix draft_;
  RowMatrix narrow_;                       // with num_columns, the same rows
  std::vector<int32_t> columns_;           // by id, -1: none
  const int32_t* kept_columns_ = nullptr;  // null: columns_
  bool is_wide_ = false;
  std::vector<TokenId> likely_;
  std::vector<uint32_t> mask_words_;
  std::vector<Sequence> sequences_;

  std::vector<Task> tasks_;
  std::vector<TaskOutcome> outcomes_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> path_;
  std::vector<TokenScore> scores_;
  std::vector<DraftSample> samples_;
  std::vector<TokenId> slot_memory_[kNumSlotOutputs];
  SlotOutput slot_outputs_[kNumSlotOutputs];
};

// The first places of a round, for Some.
inline std::vector<int32_t> InOrder(int32_t count) {
  std::vector<int32_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  return places;
}

}  // namespace specd
