#include "tools/replay/step_digest.h"

#include "tools/replay/record_hash.h"
#include "tools/replay/step_facts.h"

namespace specd::replay {
namespace {

using Digest = std::optional<uint64_t>;

Digest DigestOf(const Facts& facts) {
  return facts.empty() ? std::nullopt : Digest(ValueHash(facts));
}

bool AreComparable(const Digest& a, const Digest& b) { return a.has_value() && b.has_value(); }
bool MayBeEqual(const Digest& a, const Digest& b) { return !AreComparable(a, b) || a == b; }
// The hashes, and where one of the two has none, the shares that came of the rows.
bool SameRows(const Digest& a_hash, const Digest& b_hash, const Digest& a_share,
              const Digest& b_share) {
  return AreComparable(a_hash, b_hash) ? a_hash == b_hash : MayBeEqual(a_share, b_share);
}

}  // namespace

bool StepDigest::MayEqual(const StepDigest& other) const {
  return parameters == other.parameters && MayBeEqual(edits, other.edits) &&
         MayBeEqual(overrides, other.overrides) && coins == other.coins && draft == other.draft &&
         forced == other.forced &&
         SameRows(target_hashes, other.target_hashes, shares_p, other.shares_p) &&
         SameRows(draft_hashes, other.draft_hashes, shares_q, other.shares_q) &&
         MayBeEqual(argmax, other.argmax) && MayBeEqual(masks, other.masks) &&
         outcome == other.outcome && MayBeEqual(path, other.path) &&
         MayBeEqual(scores, other.scores);
}

bool StepDigest::LacksMasks(const StepDigest& other) const {
  return (has_masks || other.has_masks) && !AreComparable(masks, other.masks);
}

bool StepDigest::LacksRows(const StepDigest& other) const {
  const bool has_target =
      AreComparable(target_hashes, other.target_hashes) || AreComparable(argmax, other.argmax);
  return !has_target || draft_hashes.has_value() != other.draft_hashes.has_value();
}

bool StepDigest::LacksEdits(const StepDigest& other) const {
  if (!AreComparable(edits, other.edits)) return true;
  if (is_by_slot && other.is_by_slot) return false;
  // If the host made overrides for one of the two alone, they may come of a parameter that draft
  // tokens by slot exclude, such as a bad word.
  if (is_by_slot) return other.overrides != Digest(0);
  if (other.is_by_slot) return overrides != Digest(0);
  return !AreComparable(overrides, other.overrides);
}

bool StepDigest::LacksDraft(const StepDigest& other) const {
  return lacks_draft || other.lacks_draft;
}

StepDigest DigestOf(const TraceRound& round, const TraceTask& task) {
  StepDigest digest;
  digest.round = round.number;
  Hash parameters;
  VisitParameters(false,
                  [&](const char*, auto member) { parameters.Put(ValueHash(task.*member)); });
  if (UsesTarget(task)) parameters.Value(round.target.rules);
  if (UsesDraft(task)) parameters.Value(round.draft.rules);
  digest.parameters = parameters.value();
  digest.edits = EditsOf(round, task);
  digest.overrides = OverridesOf(round, task);
  digest.coins = Hash().Put(task.seed).List(task.coins).value();
  digest.draft = Hash()
                     .List(task.tokens)
                     .List(task.kinds)
                     .List(task.draft_weights)
                     .List(task.draft_masses)
                     .value();
  digest.target_hashes = DigestOf(TargetHashes(round, task));
  digest.draft_hashes = DigestOf(DraftHashes(round, task));
  digest.shares_p = DigestOf(SharesP(task));
  digest.shares_q = DigestOf(SharesQ(task));
  digest.argmax = DigestOf(ArgmaxIds(task));
  digest.masks = DigestOf(MaskHashes(round, task));
  digest.has_masks = HasMasks(task);
  digest.is_by_slot = task.drafts_by_slot;
  digest.lacks_draft = LacksDraftTokens(task);
  digest.forced = ValueHash(ForcedIds(task));
  digest.outcome = OutcomeHash(round, task);
  digest.path = PathHash(task);
  digest.scores = ScoresHash(task);
  return digest;
}

}  // namespace specd::replay
