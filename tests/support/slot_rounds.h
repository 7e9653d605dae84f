// SlotRounds: rounds of the same sequences, one after another, each given twice: by a host that
// knows all of it, with places worked out here, and by one that leaves draft tokens, positions and
// counts to the processor and knows of the sequences only what was before some of the last rounds.
// Both must be answered alike.
//
//   SlotRounds rounds({.vocab_size = 300, .batch = 24, .max_draft = 3, .seed = 7});
//   SlotMemory memory(rounds.options());
//   rounds.Next();
//   run(rounds.Known());                  // the answers are in rounds.round()
//   rounds.Commit();                      // so that the next round comes behind them
//   run(rounds.Open(&memory));            // and here again
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/round.h"
#include "tests/support/round_case.h"

namespace specd {

// What a host knows of a sequence between two rounds.
struct KnownSequence {
  std::map<TokenId, TokenEdit> edits;
  Penalties penalties;
  uint32_t min_tokens = 0;
  uint32_t position = 0;

  void Commit(TokenId token);
  // The place behind this prefix of a draft: an override for each id of it that is one.
  std::vector<TokenEdit> Overrides(const std::vector<TokenId>& prefix, int32_t vocab_size) const;
  std::vector<TokenEdit> Edits() const;
};

// What one processor has by slot. Poison, until a round writes it.
struct SlotMemory {
  static int32_t RecentRoom(const RoundCase::Options& options);
  explicit SlotMemory(const RoundCase::Options& options);

  bool Holds(const void* address) const;

  std::vector<uint32_t> kept;
  std::vector<TokenId> recent;
  std::vector<TokenId> drafts;
  int32_t recent_room;
  int32_t row_stride;
  MemorySpace drafts_space = MemorySpace::kHost;
};

class SlotRounds {
 public:
  // Rounds that a task may be behind: all others that may be staged.
  static constexpr int32_t kRoundsBehindMax = kStagedRoundsMax - 1;

  // With verify_only all tasks are kVerify.
  explicit SlotRounds(const RoundCase::Options& options, bool verify_only = false);
  SlotRounds(const SlotRounds&) = delete;
  SlotRounds& operator=(const SlotRounds&) = delete;

  const RoundCase::Options& options() const { return options_; }
  RoundCase& round() { return *round_; }
  // The same, which then outlives the next one.
  std::unique_ptr<RoundCase> TakeRound() { return std::move(round_); }

  void Next();
  RoundBatch Known();
  void Commit();
  // The same round; what lies in memory of its slots is the draft tokens of this one.
  RoundBatch Open(SlotMemory* memory);

  // How many tasks left which of the two open, since the beginning.
  int32_t num_by_slot() const { return num_by_slot_; }
  int32_t num_continued() const { return num_continued_; }

 private:
  // One task as it is given, with what it points to.
  struct Given {
    std::vector<TokenEdit> edits;
    std::vector<std::vector<TokenEdit>> overrides;
    std::vector<PlaceEdits> places;
    Task task;
  };
  struct Sequence {
    std::vector<KnownSequence> states;  // before each round, and behind the last one
    bool is_in_slot = false;            // a round has left its state there
    // Of this round, with rows and all behind the end of the draft that must not matter.
    std::vector<TokenId> drafts;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> target_rows;
    std::vector<uint32_t> draft_rows;
    std::vector<float> draft_weights;
    std::vector<double> draft_masses;
    std::vector<TokenId> target_argmax;
    Given known;
    Given open;
  };

  void Begin(const Task& task, KnownSequence* sequence);
  void DrawChain(const Task& task, Sequence* sequence);
  void MakeKnown(const Task& task, Sequence* sequence);
  void MakeOpen(Sequence* sequence);
  bool Chance(uint64_t one_in) { return random_() % one_in == 0; }

  const RoundCase::Options options_;
  const bool verify_only_;
  std::mt19937_64 random_;
  std::unique_ptr<RoundCase> round_;
  std::vector<Sequence> sequences_;
  uint64_t num_rounds_ = 0;
  int32_t num_by_slot_ = 0;
  int32_t num_continued_ = 0;
};

}  // namespace specd
