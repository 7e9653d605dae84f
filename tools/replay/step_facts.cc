#include "tools/replay/step_facts.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "daemon/trace/parameter_hash.h"
#include "tools/replay/draft_tree.h"
#include "tools/replay/record_hash.h"
#include "tools/replay/sequence_book.h"

namespace specd::replay {
namespace {

using RowHashes = std::unordered_map<uint64_t, uint64_t>;

uint64_t KeyOf(TraceTensor tensor, uint32_t index) {
  return uint64_t{static_cast<uint32_t>(tensor)} << 32 | index;
}

RowHashes HashesOf(const TraceRound& round) {
  RowHashes hashes;
  for (const TraceRow& row : round.rows) {
    if (row.hash != 0) hashes[KeyOf(row.tensor, row.index)] = row.hash;
  }
  return hashes;
}

uint64_t HashOf(const RowHashes& hashes, TraceTensor tensor, int64_t index) {
  if (index < 0) return 0;
  const auto found = hashes.find(KeyOf(tensor, static_cast<uint32_t>(index)));
  return found == hashes.end() ? 0 : found->second;
}

// The places that the round judged; `block` looks at the whole draft. In a tree places are in no
// such order, so all of them count.
size_t NumJudged(const TraceTask& task) {
  if (DraftTree::IsTree(task)) return task.tokens.size() + 1;
  const int32_t last =
      task.method == VerifyMethod::kBlock ? task.outcome.num_drafts : task.outcome.num_accepted;
  const int32_t num_nodes = static_cast<int32_t>(task.tokens.size());
  return static_cast<size_t>(std::clamp(last, 0, num_nodes)) + 1;
}

const TracePlace& PlaceAt(const TraceTask& task, size_t i) {
  static const TracePlace kNone;
  return i < task.places.size() ? task.places[i] : kNone;
}

// If the task has min_tokens, a processor decides this and not the packer. Those drafts are chains.
bool IsBelowMinTokens(const TraceTask& task, size_t place) {
  return PlaceAt(task, place).below_min_tokens ||
         uint64_t{task.first_position} + place < task.min_tokens;
}

}  // namespace

Facts TargetHashes(const TraceRound& round, const TraceTask& task) {
  const RowHashes hashes = HashesOf(round);
  Facts facts;
  for (size_t i = 0; i < NumJudged(task) && i < task.target_rows.size(); ++i) {
    facts.push_back(HashOf(hashes, TraceTensor::kTarget, task.target_rows[i]));
    if (facts.back() == 0) return {};
  }
  return facts;
}

Facts DraftHashes(const TraceRound& round, const TraceTask& task) {
  const RowHashes hashes = HashesOf(round);
  Facts facts;
  bool has_hash = false;
  for (size_t i = 0; i < NumJudged(task) && i < task.tokens.size(); ++i) {
    const bool is_sampled = i < task.kinds.size() && task.kinds[i] != DraftKind::kOneHot;
    const bool has_row = is_sampled && i < task.draft_rows.size() && task.tokens[i] != kNoToken;
    facts.push_back(has_row ? HashOf(hashes, TraceTensor::kDraft, task.draft_rows[i]) : 0);
    if (has_row && facts.back() == 0) return {};
    has_hash = has_hash || has_row;
  }
  return has_hash ? facts : Facts();
}

Facts SharesP(const TraceTask& task) {
  Facts facts;
  bool has_share = false;
  for (size_t i = 0; i < NumJudged(task) && i < task.decisions.size(); ++i) {
    const PlaceDecision& d = task.decisions[i];
    has_share = has_share || d.p_mass > 0;
    facts.push_back(Hash().Value(d.p_weight).Value(d.p_mass).value());
  }
  return has_share ? facts : Facts();
}

Facts SharesQ(const TraceTask& task) {
  Facts facts;
  bool has_share = false;
  for (size_t i = 0; i < NumJudged(task) && i < task.decisions.size(); ++i) {
    const PlaceDecision& d = task.decisions[i];
    has_share = has_share || d.q_mass > 0;
    facts.push_back(Hash().Value(d.q_weight).Value(d.q_mass).value());
  }
  return has_share ? facts : Facts();
}

Facts ArgmaxIds(const TraceTask& task) {
  Facts facts;
  for (size_t i = 0; i < NumJudged(task) && i < task.target_argmax.size(); ++i) {
    facts.push_back(ValueHash(task.target_argmax[i]));
  }
  return facts;
}

Facts MaskHashes(const TraceRound& round, const TraceTask& task) {
  if (round.level < TraceLevel::kHashes) return {};
  const RowHashes hashes = HashesOf(round);
  Facts facts;
  for (size_t i = 0; i < NumJudged(task); ++i) {
    const TracePlace& place = PlaceAt(task, i);
    const bool is_own = place.mask_row >= 0;
    const TraceTensor tensor = is_own ? TraceTensor::kMask : TraceTensor::kGrammarMask;
    const int64_t row = is_own ? place.mask_row : place.grammar_mask;
    facts.push_back(HashOf(hashes, tensor, row));
    if (row >= 0 && facts.back() == 0) return {};
  }
  return facts;
}

std::optional<uint64_t> EditsOf(const TraceRound& round, const TraceTask& task) {
  if (task.edits_hash != 0) return task.edits_hash;
  return HasLists(round) ? std::optional(RecordedEditsHash(task)) : std::nullopt;
}

std::optional<uint64_t> OverridesOf(const TraceRound& round, const TraceTask& task) {
  // They follow from the token edits, the penalties and the draft. A task whose other parameters
  // edit single places gets its draft tokens from the host.
  if (task.drafts_by_slot) return std::nullopt;
  if (task.edits_hash != 0) return task.overrides_hash;
  constexpr int32_t kAnyId = std::numeric_limits<int32_t>::max();
  return HasLists(round) ? std::optional(RecordedOverridesHash(task, kAnyId)) : std::nullopt;
}

bool LacksDraftTokens(const TraceTask& task) {
  return task.outcome.num_drafts > static_cast<int64_t>(task.tokens.size());
}

bool UsesDraft(const TraceTask& task) {
  return std::any_of(task.kinds.begin(), task.kinds.end(),
                     [](DraftKind kind) { return kind != DraftKind::kOneHot; });
}

bool HasMasks(const TraceTask& task) {
  for (size_t i = 0; i < NumJudged(task); ++i) {
    const TracePlace& place = PlaceAt(task, i);
    if (place.grammar_state != 0 || place.mask_row >= 0 || place.grammar_mask >= 0) return true;
  }
  return false;
}

Facts ForcedIds(const TraceTask& task) {
  Facts facts;
  for (size_t i = 0; i < NumJudged(task); ++i) {
    const TracePlace& place = PlaceAt(task, i);
    facts.push_back(Hash().Value(place.forced).Value(IsBelowMinTokens(task, i)).value());
  }
  return facts;
}

uint64_t OutcomeHash(const TraceRound& round, const TraceTask& task) {
  Hash hash;
  hash.Value(task.outcome.status).Value(task.outcome.num_accepted).List(task.confirmed);
  if (const TraceAnswer* const answer = AnswerOf(round, task)) {
    VisitAnswer([&](const char*, auto member) { hash.Value(answer->*member); });
  }
  return hash.value();
}

std::optional<uint64_t> PathHash(const TraceTask& task) {
  if (task.path.empty() && task.outcome.num_accepted > 0) return std::nullopt;
  return ValueHash(task.path);
}

std::optional<uint64_t> ScoresHash(const TraceTask& task) {
  if (task.token_scores.empty()) return std::nullopt;
  return ValueHash(task.token_scores);
}

}  // namespace specd::replay
