// SlotRounds makes rounds of the same sequences in two forms, which must have the same answers, for
// tests of incomplete tasks.
//
// In the first form the host knows all, with places computed here. In the second form it leaves
// draft tokens, positions and counts to the processor. That host knows only the state before some
// of the last rounds.
//
//   SlotRounds rounds({.vocab_size = 300, .batch = 24, .max_draft = 3, .seed = 7});
//   SlotMemory memory(rounds.options());
//   rounds.Next();
//   run(rounds.Known());                  // the answers are in rounds.round()
//   rounds.Commit();                      // so that the next round follows them
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

// The facts that a host knows of a sequence between two rounds.
struct KnownSequence {
  std::map<TokenId, TokenEdit> edits;
  Penalties penalties;
  uint32_t min_tokens = 0;
  uint32_t position = 0;

  void Commit(TokenId token);
  // The overrides of the place after this prefix of a draft: one for each of its valid ids.
  std::vector<TokenEdit> Overrides(const std::vector<TokenId>& prefix, int32_t vocab_size) const;
  std::vector<TokenEdit> Edits() const;
};

// The arrays by slot of one processor. Poison, until a round writes it.
struct SlotMemory {
  static int32_t RecentRoom(const RoundCase::Options& options);
  explicit SlotMemory(const RoundCase::Options& options);

  bool Holds(const void* address) const;
  TreeRows tree_rows() const;

  std::vector<uint32_t> kept;
  std::vector<TokenId> recent;
  std::vector<TokenId> drafts;
  // The trees, by seed in one of two forms: parents, or lists of children.
  std::vector<int32_t> parents;
  std::vector<int64_t> next_child;
  std::vector<int64_t> next_sibling;
  int32_t recent_room;
  int32_t row_stride;
  MemorySpace drafts_space = MemorySpace::kHost;
};

class SlotRounds {
 public:
  // The most rounds that a task may lag behind: all others that may be staged.
  static constexpr int32_t kRoundsBehindMax = kStagedRoundsMax - 1;

  // With verify_only all tasks are kVerify.
  explicit SlotRounds(const RoundCase::Options& options, bool verify_only = false);
  SlotRounds(const SlotRounds&) = delete;
  SlotRounds& operator=(const SlotRounds&) = delete;

  const RoundCase::Options& options() const { return options_; }
  RoundCase& round() { return *round_; }
  // Gives the round away; it then outlives the next one.
  std::unique_ptr<RoundCase> TakeRound() { return std::move(round_); }

  void Next();
  RoundBatch Known();
  void Commit();
  // The same round, with incomplete tasks. The memory of its slots holds its draft tokens.
  RoundBatch Open(SlotMemory* memory);

  // The number of tasks so far that left each of the two open.
  int32_t num_by_slot() const { return num_by_slot_; }
  // Trees that the processor took from slots, and those that were none.
  int32_t num_trees() const { return num_trees_; }
  int32_t num_refused() const { return num_refused_; }
  int32_t num_continued() const { return num_continued_; }

 private:
  // One given task with the memory that it points to.
  struct Given {
    std::vector<TokenEdit> edits;
    std::vector<std::vector<TokenEdit>> overrides;
    std::vector<PlaceEdits> places;
    Task task;
  };
  struct Sequence {
    std::vector<KnownSequence> states;  // before each round, and after the last one
    bool is_in_slot = false;            // a round has left the state there
    // The draft of this round, with rows after its end that must not matter.
    std::vector<TokenId> drafts;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> target_rows;
    std::vector<uint32_t> draft_rows;
    std::vector<float> draft_weights;
    std::vector<double> draft_masses;
    std::vector<TokenId> target_argmax;
    std::vector<int32_t> parents;      // empty: a chain
    std::vector<uint32_t> place_rows;  // the draft rows of places 0 .. nodes - 1
    std::vector<int32_t> numbers;      // of its slot, if it is no tree
    Given known;
    Given open;
  };

  void Begin(const Task& task, KnownSequence* sequence);
  void DrawChain(const Task& task, Sequence* sequence);
  void DrawTree(Sequence* sequence);
  // Numbers that are no parents.
  void DrawHostile(Sequence* sequence);
  static void WriteTree(const Sequence& sequence, SlotMemory* memory);
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
  int32_t num_trees_ = 0;
  int32_t num_refused_ = 0;
};

}  // namespace specd
