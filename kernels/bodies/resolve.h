// RunResolve: what was not known of a round's tasks when they were made, filled in by the processor
// that runs them: the draft tokens, where somebody else leaves them; the position and the counts,
// where rounds of the sequence were under way.
//
// It makes a copy of every task, which reads like one whose maker knew it all, and leaves the tasks
// that were given as they are. A warp, or a lane alone, does a task by itself, so any number of
// blocks gives the same copies. Thread is that of fused_round.h. docs/ALGORITHMS.md, "Resolving".
#pragma once

#include "kernels/bodies/row.h"
#include "kernels/bodies/tiles.h"
#include "kernels/core/fused_round.h"
#include "kernels/core/round.h"

namespace specd {

// What a resolved task points to, and what it is made with. CountedMax ids in each of the lists.
struct ResolveScratch {
  TokenId* tokens = nullptr;       // the draft
  PlaceEdits* places = nullptr;    // one more than draft tokens
  TokenId* counted = nullptr;      // what penalties count: recent tokens, then the draft
  TokenId* distinct = nullptr;     // the same, each id only where it stands first
  TokenEdit* overrides = nullptr;  // CountedMax for each place
  int32_t counted_max = 0;
};

// The most tokens that a place may count.
SPECD_INLINE constexpr int32_t CountedMax(int32_t max_draft, int32_t recent_room) {
  return recent_room + max_draft;
}

namespace internal {

SPECD_INLINE ResolveScratch CarveScratch(Carver* carver, int32_t max_draft, int32_t recent_room) {
  ResolveScratch scratch;
  scratch.counted_max = CountedMax(max_draft, recent_room);
  scratch.tokens = carver->Take<TokenId>(max_draft);
  scratch.places = carver->Take<PlaceEdits>(max_draft + 1);
  scratch.counted = carver->Take<TokenId>(scratch.counted_max);
  scratch.distinct = carver->Take<TokenId>(scratch.counted_max);
  scratch.overrides = carver->Take<TokenEdit>(int64_t{max_draft + 1} * scratch.counted_max);
  return scratch;
}

}  // namespace internal

// The bytes of a task's scratch, and its layout over memory aligned to 16.
SPECD_INLINE int64_t ResolveBytes(int32_t max_draft, int32_t recent_room) {
  internal::Carver carver(nullptr);
  internal::CarveScratch(&carver, max_draft, recent_room);
  return carver.used();
}
SPECD_INLINE ResolveScratch ResolveScratchAt(char* memory, int32_t max_draft, int32_t recent_room) {
  internal::Carver carver(memory);
  return internal::CarveScratch(&carver, max_draft, recent_room);
}

// One task, by the kWarpSize lanes of a warp.
template <int32_t kWarpSize, typename Thread>
class TaskResolver {
 public:
  SPECD_HD TaskResolver(const Thread& thread, const RoundBatch& batch, const ChainTask& given,
                        const ResolveScratch& scratch)
      : thread_(thread), batch_(batch), given_(given), scratch_(scratch) {}

  // Writes the copy. Returns the number of its draft tokens.
  SPECD_HD int32_t Run(ChainTask* resolved) {
    num_drafts_ = given_.chain.num_drafts;
    tokens_ = given_.chain.tokens;
    position_ = given_.first_position;
    if (given_.drafts_by_slot) CopyDrafts();
    if (given_.continues) position_ = batch_.slots.kept[given_.slot];
    const bool counts = Counts(given_.edits.penalties);
    const bool needs_places = NeedsResolve(given_) && (counts || IsBelowMinTokens(0));
    if (needs_places) MakePlaces(counts);
    if (thread_.lane() != 0) return num_drafts_;
    *resolved = given_;
    resolved->drafts_by_slot = false;
    resolved->continues = false;
    resolved->chain.num_drafts = num_drafts_;
    resolved->chain.tokens = tokens_;
    if (needs_places) resolved->places = scratch_.places;
    if (given_.continues) resolved->first_position = resolved->round_base = position_;
    return num_drafts_;
  }

 private:
  // Each id is read once, because whoever drew it may write there again: what is judged, counted
  // and handed out is what is in the scratch.
  SPECD_HD void CopyDrafts() {
    const TokenRows& rows = batch_.draft_tokens;
    const volatile TokenId* const source = given_.chain.tokens != nullptr
                                               ? given_.chain.tokens
                                               : rows.ids + given_.slot * rows.row_stride;
    int32_t missing = 0;  // from the first kNoToken on
    for (int32_t i = thread_.lane(); i < num_drafts_; i += kWarpSize) {
      const TokenId id = source[i];
      scratch_.tokens[i] = id;
      if (id == kNoToken && num_drafts_ - i > missing) missing = num_drafts_ - i;
    }
    num_drafts_ -= thread_.LargestOfWarp(missing);
    tokens_ = scratch_.tokens;
    thread_.SyncWarp();
  }

  SPECD_HD bool IsBelowMinTokens(int32_t place) const {
    return int64_t{position_} + place < int64_t{given_.min_tokens};
  }

  SPECD_HD void MakePlaces(bool counts) {
    if (counts) {
      ListCounted();
      MakeOverrides();
    }
    for (int32_t i = thread_.lane(); i <= num_drafts_; i += kWarpSize) {
      PlaceEdits place;
      if (given_.places != nullptr) place.mask_row = given_.places[i].mask_row;
      place.below_min_tokens = IsBelowMinTokens(i);
      for (int32_t j = 0; counts && j < num_recent_ + i; ++j) {
        if (scratch_.distinct[j] != kNone) ++place.num_overrides;
      }
      if (place.num_overrides > 0) place.overrides = OverridesOf(i);
      scratch_.places[i] = place;
    }
    thread_.SyncWarp();
  }

  // Those that were confirmed since the task was made.
  SPECD_HD int32_t NumRecent() const {
    if (!given_.continues || position_ <= given_.first_position) return 0;
    const uint32_t confirmed = position_ - given_.first_position;
    const auto room = static_cast<uint32_t>(batch_.slots.recent_room);
    return static_cast<int32_t>(confirmed < room ? confirmed : room);
  }

  SPECD_HD TokenId CountedAt(int32_t j) const {
    if (j >= num_recent_) return tokens_[j - num_recent_];
    const SlotStates& slots = batch_.slots;
    const uint32_t position = position_ - static_cast<uint32_t>(num_recent_ - j);
    return slots.recent[int64_t{given_.slot} * slots.recent_room +
                        position % static_cast<uint32_t>(slots.recent_room)];
  }

  // What is no id is not counted: behind it no token is ever drawn.
  SPECD_HD void ListCounted() {
    num_recent_ = NumRecent();
    const int32_t num_counted = num_recent_ + num_drafts_;
    for (int32_t j = thread_.lane(); j < num_counted; j += kWarpSize) {
      const TokenId id = CountedAt(j);
      scratch_.counted[j] = id >= 0 && id < batch_.target.vocab_size ? id : kNone;
    }
    thread_.SyncWarp();
    for (int32_t j = thread_.lane(); j < num_counted; j += kWarpSize) {
      const TokenId id = scratch_.counted[j];
      bool is_first = true;
      for (int32_t k = 0; k < j; ++k) is_first = is_first && scratch_.counted[k] != id;
      scratch_.distinct[j] = is_first ? id : kNone;
    }
    thread_.SyncWarp();
  }

  // An id has one override in each place behind its first token. Its rank among those of the place,
  // and its count, only rise from place to place, so one walk over the tokens gives them for all.
  SPECD_HD void MakeOverrides() {
    const int32_t num_counted = num_recent_ + num_drafts_;
    for (int32_t j = thread_.lane(); j < num_counted; j += kWarpSize) {
      const TokenId id = scratch_.distinct[j];
      if (id == kNone) continue;
      TokenEdit edit = OwnEdit(id);
      edit.flags |= kEditSeen;
      int32_t rank = 0;
      for (int32_t k = 0;; ++k) {
        if (k > j && k >= num_recent_) OverridesOf(k - num_recent_)[rank] = edit;
        if (k == num_counted) break;
        if (scratch_.distinct[k] < id) ++rank;
        if (scratch_.counted[k] == id) ++edit.count;
      }
    }
  }

  SPECD_HD TokenEdit OwnEdit(TokenId id) const {
    const SequenceEdits& sequence = given_.edits;
    const int32_t e = LowerBound(sequence.edits, sequence.num_edits, id);
    TokenEdit edit;
    edit.id = id;
    if (e == sequence.num_edits || sequence.edits[e].id != id) return edit;
    edit.flags = sequence.edits[e].flags;
    edit.bias += sequence.edits[e].bias;
    edit.count = sequence.edits[e].count;
    return edit;
  }

  SPECD_HD TokenEdit* OverridesOf(int32_t place) const {
    return scratch_.overrides + int64_t{place} * scratch_.counted_max;
  }

  // In the lists, behind every id: what is not counted.
  static constexpr TokenId kNone = kVocabSizeMax;

  const Thread& thread_;
  const RoundBatch& batch_;
  const ChainTask& given_;
  const ResolveScratch scratch_;
  int32_t num_drafts_ = 0;
  const TokenId* tokens_ = nullptr;
  uint32_t position_ = 0;
  int32_t num_recent_ = 0;
};

// REQUIRES: something is given; tasks that leave something open are kVerify, their slots and drafts
// inside what the batch has for them, and no more was confirmed since they were made than
// recent_room. `progress`, one for each task, is told where a draft ends before its last place that
// is read ahead; null where nothing is.
template <int32_t kWarpSize = 32, typename Thread>
SPECD_HD void RunResolve(const Thread& thread, const RoundBatch& batch, const ResolvePlan& plan,
                         TaskProgress* progress) {
  const int64_t scratch_bytes = ResolveBytes(plan.max_draft, batch.slots.recent_room);
  const int64_t num_warps = int64_t{thread.num_blocks()} * thread.num_warps();
  for (int64_t i = int64_t{thread.block()} * thread.num_warps() + thread.warp();
       i < batch.num_tasks; i += num_warps) {
    const ChainTask& given = plan.given[i];
    const ResolveScratch scratch =
        ResolveScratchAt(plan.scratch + i * scratch_bytes, plan.max_draft, batch.slots.recent_room);
    TaskResolver<kWarpSize, Thread> resolver(thread, batch, given, scratch);
    const int32_t num_drafts = resolver.Run(&plan.tasks[i]);
    // Rows behind the end are dead from the start. Where none is read ahead, nobody would make the
    // word 0 again.
    const bool is_shorter = num_drafts < given.chain.num_drafts;
    if (progress != nullptr && is_shorter && progress[i].num_rows > 0) {
      thread.Note(kPlacesMax - num_drafts, &progress[i].end_seen);
    }
  }
}

// Before RunFusedRound begins anywhere. Does nothing where FusedRound::resolve has nothing given.
template <typename Thread>
SPECD_INLINE void RunResolve(const Thread& thread, const FusedRound& round) {
  if (round.resolve.given == nullptr) return;
  RunResolve(thread, round.batch, round.resolve, round.progress);
}

}  // namespace specd
