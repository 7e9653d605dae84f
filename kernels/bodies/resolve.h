// RunResolve completes the tasks of a round for the processor that runs them.
//
// A host may make a task before it knows everything about it. If the drafter leaves the draft
// tokens on the device, the host does not know the tokens. If rounds of the sequence are still
// running, the host does not know the position and the counts. RunResolve makes a complete copy of
// every task and leaves the given tasks as they are. One warp, or one lane, does a task by itself,
// so any number of blocks gives the same copies. Thread is the class of fused_round.h.
// docs/ALGORITHMS.md, "Resolving".
#pragma once

#include "kernels/bodies/row.h"
#include "kernels/bodies/tiles.h"
#include "kernels/core/fused_round.h"
#include "kernels/core/round.h"
#include "kernels/core/slot_tree.h"

namespace specd {

// One id that penalties count: its edit with the added count of recent tokens, and the nodes that
// hold it.
struct CountedId {
  TokenEdit edit;
  bool is_recent = false;
  NodeSet nodes = 0;
};

// The memory of a resolved task and of its making. The lists have room for CountedMax ids.
struct ResolveScratch {
  TokenId* tokens = nullptr;       // the draft
  int32_t* parents = nullptr;      // of a tree by slot
  uint32_t* draft_rows = nullptr;  // by node
  int32_t* numbers = nullptr;      // of its slot
  SlotTree* tree = nullptr;
  PlaceEdits* places = nullptr;    // one for each place
  TokenId* counted = nullptr;      // the tokens that penalties count: recent tokens, then the draft
  TokenId* distinct = nullptr;     // the same tokens, with each id only at its first place
  CountedId* by_id = nullptr;      // one for each distinct id, in ascending order of ids
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
  scratch.parents = carver->Take<int32_t>(max_draft);
  scratch.draft_rows = carver->Take<uint32_t>(max_draft);
  scratch.numbers = carver->Take<int32_t>(TreeNumbersMax(max_draft));
  scratch.tree = carver->Take<SlotTree>(1);
  scratch.places = carver->Take<PlaceEdits>(max_draft + 1);
  scratch.counted = carver->Take<TokenId>(scratch.counted_max);
  scratch.distinct = carver->Take<TokenId>(scratch.counted_max);
  scratch.by_id = carver->Take<CountedId>(scratch.counted_max);
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

// Resolves one task with the kWarpSize lanes of a warp.
template <int32_t kWarpSize, typename Thread>
class TaskResolver {
 public:
  SPECD_HD TaskResolver(const Thread& thread, const RoundBatch& batch, const Task& given,
                        const ResolveScratch& scratch)
      : thread_(thread), batch_(batch), given_(given), scratch_(scratch) {}

  // Writes the copy. Returns the nodes whose path leaves the vocabulary.
  SPECD_HD NodeSet Run(Task* resolved) {
    draft_ = given_.draft;
    position_ = given_.continues ? batch_.slots.kept[given_.slot] : given_.first_position;
    if (given_.parents_by_slot) {
      MakeTree();
      if (scratch_.tree->fault != TreeFault::kNone) return Refuse(resolved);
    }
    const NodeSet undrawn = given_.drafts_by_slot ? CopyDrafts() : 0;
    const bool counts = Counts(given_.edits.penalties);
    const bool needs_places = NeedsResolve(given_) && (counts || IsBelowMinTokens(0));
    if (needs_places) MakePlaces(counts);
    if (thread_.lane() != 0) return undrawn;
    *resolved = given_;
    resolved->drafts_by_slot = false;
    resolved->continues = false;
    resolved->draft = draft_;
    if (needs_places) resolved->places = scratch_.places;
    if (given_.continues) resolved->first_position = resolved->round_base = position_;
    return undrawn;
  }

 private:
  // Reads each number of the slot once, and makes the parents and the draft rows of nodes.
  SPECD_HD void MakeTree() {
    const bool has_lists = batch_.draft_tree.has_lists();
    const int32_t num_nodes = draft_.num_nodes;
    for (int32_t i = thread_.lane(); i < NumTreeNumbers(has_lists, num_nodes); i += kWarpSize) {
      scratch_.numbers[i] = ReadTreeNumber(batch_.draft_tree, given_.slot, num_nodes, i);
    }
    thread_.SyncWarp();
    if (thread_.lane() == 0) {
      *scratch_.tree = MakeSlotTree(draft_, has_lists, batch_.tokens_stride - 1, scratch_.numbers,
                                    scratch_.parents);
    }
    thread_.SyncWarp();
    draft_.parents = scratch_.parents;
    if (scratch_.tree->fault != TreeFault::kNone || draft_.draft_rows == nullptr) return;
    for (int32_t i = thread_.lane(); i < num_nodes; i += kWarpSize) {
      scratch_.draft_rows[i] = given_.draft.draft_rows[PlaceAfter(scratch_.parents[i])];
    }
    draft_.draft_rows = scratch_.draft_rows;
  }

  // A task that decides nothing. The next round of the sequence continues where this one began.
  SPECD_HD NodeSet Refuse(Task* resolved) const {
    if (thread_.lane() == 0) {
      *resolved = given_;
      resolved->drafts_by_slot = false;
      resolved->continues = false;
      resolved->draft.num_nodes = 0;
      resolved->tree_status = StatusOf(scratch_.tree->fault);
      resolved->first_position = resolved->round_base = position_;
    }
    return NodesBehind(given_.draft, 0);
  }

  // Reads each id once, because its writer may write there again. The ids in the scratch are
  // judged, counted and answered. A chain ends before the first kNoToken, and after the first other
  // id outside the vocabulary, which the judge counts.
  SPECD_HD NodeSet CopyDrafts() {
    const TokenRows& rows = batch_.draft_tokens;
    const volatile TokenId* const source = given_.draft.tokens != nullptr
                                               ? given_.draft.tokens
                                               : rows.ids + given_.slot * rows.row_stride;
    for (int32_t i = thread_.lane(); i < draft_.num_nodes; i += kWarpSize) {
      const bool is_listed = !given_.parents_by_slot || !Holds(scratch_.tree->unlisted, i);
      scratch_.tokens[i] = is_listed ? source[i] : kNoToken;
    }
    draft_.tokens = scratch_.tokens;
    thread_.SyncWarp();
    NodeSet undrawn = 0;
    int32_t num_drawn = 0;
    for (int32_t i = 0; i < draft_.num_nodes; ++i) {
      const int32_t parent = ParentOf(draft_, i);
      const bool is_drawn = IsInVocabulary(draft_.tokens[i], batch_.target.vocab_size);
      if (is_drawn && (parent == kRoot || !Holds(undrawn, parent))) {
        ++num_drawn;
      } else {
        undrawn |= NodeSet{1} << i;
      }
    }
    if (draft_.parents == nullptr) {
      const bool ends_at_id = undrawn != 0 && draft_.tokens[num_drawn] != kNoToken;
      draft_.num_nodes = num_drawn + (ends_at_id ? 1 : 0);
    }
    return undrawn;
  }

  SPECD_HD bool IsBelowMinTokens(int32_t place) const {
    return int64_t{position_} + DepthOf(draft_, place) < int64_t{given_.min_tokens};
  }

  SPECD_HD void MakePlaces(bool counts) {
    if (counts) {
      ListCounted();
      SortCounted();
    }
    for (int32_t i = thread_.lane(); i <= draft_.num_nodes; i += kWarpSize) {
      PlaceEdits place;
      if (given_.places != nullptr) {
        place.mask_row = given_.places[i].mask_row;
        place.grammar_mask = given_.places[i].grammar_mask;
      }
      place.below_min_tokens = IsBelowMinTokens(i);
      if (counts) place.num_overrides = MakeOverrides(i);
      if (place.num_overrides > 0) place.overrides = OverridesOf(i);
      scratch_.places[i] = place;
    }
    thread_.SyncWarp();
  }

  // The tokens that were confirmed since the task was made.
  SPECD_HD int32_t NumRecent() const {
    if (!given_.continues || position_ <= given_.first_position) return 0;
    const uint32_t confirmed = position_ - given_.first_position;
    const auto room = static_cast<uint32_t>(batch_.slots.recent_room);
    return static_cast<int32_t>(confirmed < room ? confirmed : room);
  }

  SPECD_HD TokenId CountedAt(int32_t j) const {
    if (j >= num_recent_) return draft_.tokens[j - num_recent_];
    const SlotStates& slots = batch_.slots;
    const uint32_t position = position_ - static_cast<uint32_t>(num_recent_ - j);
    return slots.recent[int64_t{given_.slot} * slots.recent_room +
                        position % static_cast<uint32_t>(slots.recent_room)];
  }

  // Ids outside the vocabulary are not counted, because no token is ever drawn after them.
  SPECD_HD void ListCounted() {
    num_recent_ = NumRecent();
    const int32_t num_counted = num_recent_ + draft_.num_nodes;
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

  // Counts the smaller ids of each distinct id, and collects the places of the id.
  SPECD_HD void SortCounted() {
    const int32_t num_counted = num_recent_ + draft_.num_nodes;
    for (int32_t j = thread_.lane(); j < num_counted; j += kWarpSize) {
      const TokenId id = scratch_.distinct[j];
      if (id == kNone) continue;
      CountedId counted;
      counted.edit = OwnEdit(id);
      counted.edit.flags |= kEditSeen;
      int32_t num_smaller = 0;
      for (int32_t k = 0; k < num_counted; ++k) {
        if (scratch_.distinct[k] < id) ++num_smaller;
        if (scratch_.counted[k] != id) continue;
        if (k < num_recent_) {
          counted.is_recent = true;
          ++counted.edit.count;
        } else {
          counted.nodes |= NodeSet{1} << (k - num_recent_);
        }
      }
      scratch_.by_id[num_smaller] = counted;
    }
    thread_.SyncWarp();
    num_distinct_ = 0;
    for (int32_t j = 0; j < num_counted; ++j)
      num_distinct_ += scratch_.distinct[j] != kNone ? 1 : 0;
  }

  // The edits of the ids that are recent or on the path to the place. Returns their number.
  SPECD_HD int32_t MakeOverrides(int32_t place) const {
    const NodeSet path = AncestorsOf(draft_, place);
    TokenEdit* const overrides = OverridesOf(place);
    int32_t num_overrides = 0;
    for (int32_t j = 0; j < num_distinct_; ++j) {
      const CountedId& counted = scratch_.by_id[j];
      const NodeSet before = counted.nodes & path;
      if (!counted.is_recent && before == 0) continue;
      TokenEdit edit = counted.edit;
      edit.count += static_cast<uint32_t>(NumNodes(before));
      overrides[num_overrides++] = edit;
    }
    return num_overrides;
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

  // Marks an entry of the lists that is not counted. It is greater than every id.
  static constexpr TokenId kNone = kVocabSizeMax;

  const Thread& thread_;
  const RoundBatch& batch_;
  const Task& given_;
  const ResolveScratch scratch_;
  Draft draft_;
  uint32_t position_ = 0;
  int32_t num_recent_ = 0;
  int32_t num_distinct_ = 0;
};

// Resolves the tasks of a batch. If a draft ends before its last place that is read ahead,
// `progress` (one for each task) records it. If no rows are read ahead, `progress` is null.
// REQUIRES: plan.given is set; incomplete tasks are kVerify; their slots and drafts are inside the
// batch's arrays; at most recent_room tokens were confirmed since the tasks were made.
template <int32_t kWarpSize = 32, typename Thread>
SPECD_HD void RunResolve(const Thread& thread, const RoundBatch& batch, const ResolvePlan& plan,
                         TaskProgress* progress) {
  const int64_t scratch_bytes = ResolveBytes(plan.max_draft, batch.slots.recent_room);
  const int64_t num_warps = int64_t{thread.num_blocks()} * thread.num_warps();
  for (int64_t i = int64_t{thread.block()} * thread.num_warps() + thread.warp();
       i < batch.num_tasks; i += num_warps) {
    const Task& given = plan.given[i];
    const ResolveScratch scratch =
        ResolveScratchAt(plan.scratch + i * scratch_bytes, plan.max_draft, batch.slots.recent_room);
    TaskResolver<kWarpSize, Thread> resolver(thread, batch, given, scratch);
    const NodeSet undrawn = resolver.Run(&plan.tasks[i]);
    // Rows after an undrawn node are dead from the start. Only the warp that completes the task's
    // rows resets the word to 0. A task without rows that are read ahead therefore keeps 0.
    if (progress != nullptr && undrawn != 0 && progress[i].num_rows > 0) {
      thread.Note(undrawn, &progress[i].dead);
    }
  }
}

// Call before any RunFusedRound begins. If FusedRound::resolve has no given tasks, the call does
// nothing.
template <typename Thread>
SPECD_INLINE void RunResolve(const Thread& thread, const FusedRound& round) {
  if (round.resolve.given == nullptr) return;
  RunResolve(thread, round.batch, round.resolve, round.progress);
}

}  // namespace specd
