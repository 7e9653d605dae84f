#include "tests/support/slot_rounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace specd {

namespace {

// Ids that are none, but for kNoToken.
TokenId AnyInvalidId(std::mt19937_64* random, int32_t vocab_size) {
  const TokenId ids[] = {-2, vocab_size, vocab_size + 7, std::numeric_limits<TokenId>::min(),
                         std::numeric_limits<TokenId>::max()};
  return ids[(*random)() % std::size(ids)];
}

bool PenaltiesCount(const Penalties& penalties) {
  return penalties.repetition != 1.0f || penalties.frequency != 0.0f || penalties.presence != 0.0f;
}

// The array as it is, with `count` more of these.
template <typename T>
std::vector<T> Longer(const T* begin, size_t size, size_t count, T behind) {
  std::vector<T> values;
  if (begin == nullptr) return values;
  values.assign(begin, begin + size);
  values.resize(size + count, behind);
  return values;
}

template <typename T>
const T* DataOf(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

void KnownSequence::Commit(TokenId token) {
  ++position;
  if (!PenaltiesCount(penalties)) return;
  TokenEdit& edit = edits[token];
  edit.id = token;
  edit.flags |= kEditSeen;
  ++edit.count;
}

std::vector<TokenEdit> KnownSequence::Overrides(const std::vector<TokenId>& prefix,
                                                int32_t vocab_size) const {
  std::map<TokenId, uint32_t> counts;
  for (const TokenId id : prefix) {
    if (PenaltiesCount(penalties) && id >= 0 && id < vocab_size) ++counts[id];
  }
  std::vector<TokenEdit> overrides;
  for (const auto& [id, count] : counts) {
    TokenEdit edit{.id = id, .flags = kEditSeen, .count = count};
    if (const auto own = edits.find(id); own != edits.end()) {
      edit.flags |= own->second.flags;
      edit.bias = own->second.bias;
      edit.count += own->second.count;
    }
    overrides.push_back(edit);
  }
  return overrides;
}

std::vector<TokenEdit> KnownSequence::Edits() const {
  std::vector<TokenEdit> list;
  for (const auto& [id, edit] : edits) list.push_back(edit);
  return list;
}

// As little as there may be.
int32_t SlotMemory::RecentRoom(const RoundCase::Options& options) {
  return SlotRounds::kRoundsBehindMax * (options.max_draft + 1);
}

SlotMemory::SlotMemory(const RoundCase::Options& options)
    : kept(2 * static_cast<size_t>(options.batch), 0xDDDDDDDDu),
      recent_room(RecentRoom(options)),
      row_stride(options.max_draft + 2) {
  recent.assign(kept.size() * static_cast<size_t>(recent_room), std::numeric_limits<int>::min());
  drafts.assign(kept.size() * static_cast<size_t>(row_stride), -77);
  if (!options.trees) return;
  if (options.seed % 2 == 0) {
    parents.assign(drafts.size(), -77);
  } else {
    next_child.assign(drafts.size(), -77);
    next_sibling.assign(drafts.size(), -77);
  }
}

TreeRows SlotMemory::tree_rows() const {
  TreeRows rows;
  if (!parents.empty()) rows.parents = {parents.data(), false, row_stride, drafts_space};
  if (!next_child.empty()) {
    rows.next_child = {next_child.data(), true, row_stride, drafts_space};
    rows.next_sibling = {next_sibling.data(), true, row_stride, drafts_space};
  }
  return rows;
}

bool SlotMemory::Holds(const void* address) const {
  const auto holds = [address](const auto& values) {
    return address >= values.data() && address < values.data() + values.size();
  };
  return holds(kept) || holds(recent) || holds(drafts);
}

SlotRounds::SlotRounds(const RoundCase::Options& options, bool verify_only)
    : options_(options),
      verify_only_(verify_only),
      random_(options.seed + 5),
      sequences_(static_cast<size_t>(options.batch)) {}

void SlotRounds::Next() {
  RoundCase::Options options = options_;
  options.seed = options_.seed * 16 + num_rounds_++;
  round_ = std::make_unique<RoundCase>(options);
  for (int32_t i = 0; i < options_.batch; ++i) {
    Sequence& sequence = sequences_[static_cast<size_t>(i)];
    if (verify_only_) round_->MakeVerify(i);
    const Task task = round_->task(i);
    if (sequence.states.empty()) Begin(task, &sequence.states.emplace_back());
    sequence.known.task = sequence.open.task = task;
    if (task.kind != TaskKind::kVerify) continue;
    DrawChain(task, &sequence);
    if (options_.trees) DrawTree(&sequence);
    MakeKnown(task, &sequence);
    MakeOpen(&sequence);
  }
}

void SlotRounds::Begin(const Task& task, KnownSequence* sequence) {
  sequence->position = task.first_position;
  if (options_.plain || options_.target_kind == RowKind::kFinalProbabilities) return;
  if (!Chance(3)) {
    sequence->penalties = {.repetition = Chance(2) ? 1.0f : 1.4f,
                           .frequency = Chance(2) ? 0.0f : 0.9f,
                           .presence = Chance(2) ? 0.0f : -0.4f};
  }
  for (int32_t e = 0; e < task.edits.num_edits; ++e) {
    sequence->edits[task.edits.edits[e].id] = task.edits.edits[e];
  }
  const auto behind = static_cast<uint32_t>(random_() % uint64_t(3 * options_.max_draft + 3));
  if (Chance(2)) sequence->min_tokens = sequence->position + behind;
}

void SlotRounds::DrawChain(const Task& task, Sequence* sequence) {
  const Draft& draft = task.draft;
  const auto num_drafts = static_cast<size_t>(draft.num_nodes);
  const size_t room = static_cast<size_t>(options_.max_draft) - num_drafts;
  const size_t more = Chance(3) ? 0 : random_() % (room + 1);
  sequence->drafts = Longer(draft.tokens, num_drafts, more, kNoToken);
  for (size_t i = 0; i < sequence->drafts.size(); ++i) {
    if (i < num_drafts && Chance(20)) {
      sequence->drafts[i] = AnyInvalidId(&random_, options_.vocab_size);
    }
    if (i > num_drafts && Chance(2)) sequence->drafts[i] = 0;
  }
  const DraftKind kind = Chance(2) ? DraftKind::kSampled : DraftKind::kOneHot;
  const uint32_t nan = RoundCase::kNanRow;
  sequence->kinds = Longer(draft.kinds, num_drafts, more, kind);
  sequence->target_rows = Longer(draft.target_rows, num_drafts + 1, more, nan);
  sequence->draft_rows = Longer(draft.draft_rows, num_drafts, more, nan);
  sequence->draft_weights = Longer(draft.draft_weights, num_drafts, more, NAN);
  sequence->draft_masses = Longer(draft.draft_masses, num_drafts, more, double{NAN});
  sequence->target_argmax = Longer(draft.target_argmax, num_drafts + 1, more, kNoToken);
}

void SlotRounds::DrawTree(Sequence* sequence) {
  constexpr VerifyMethod kMethods[] = {VerifyMethod::kGreedy,     VerifyMethod::kExactMatch,
                                       VerifyMethod::kTree,       VerifyMethod::kTraversal,
                                       VerifyMethod::kTargetOnly, VerifyMethod::kTree};
  const size_t nodes = sequence->drafts.size();
  sequence->parents.resize(nodes);
  // Siblings are likely, and so are paths of several nodes.
  for (size_t node = 0; node < nodes; ++node) {
    const auto reach = static_cast<int32_t>(random_() % 3);
    sequence->parents[node] = std::max(static_cast<int32_t>(node) - 1 - reach, kRoot);
  }
  sequence->place_rows = sequence->draft_rows;
  sequence->kinds.resize(nodes);
  std::vector<DraftKind> drawn(nodes + 1);  // by place
  for (DraftKind& kind : drawn) kind = Chance(3) ? DraftKind::kSampled : DraftKind::kSampledRest;
  for (size_t node = 0; node < nodes; ++node) {
    const auto place = static_cast<size_t>(PlaceAfter(sequence->parents[node]));
    const bool has_rows = !sequence->place_rows.empty();
    sequence->kinds[node] = !has_rows || Chance(3) ? DraftKind::kOneHot : drawn[place];
    if (has_rows) sequence->draft_rows[node] = sequence->place_rows[place];
  }
  if (sequence->target_argmax.empty()) {
    sequence->known.task.method = kMethods[random_() % std::size(kMethods)];
  }
}

void SlotRounds::DrawHostile(Sequence* sequence) {
  const auto nodes = static_cast<int32_t>(sequence->parents.size());
  sequence->numbers = sequence->parents;
  const int32_t node = static_cast<int32_t>(random_() % static_cast<uint64_t>(nodes));
  const int32_t wrong[] = {
      node,    nodes, -2, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(),
      node + 1};
  sequence->numbers[static_cast<size_t>(node)] = wrong[random_() % std::size(wrong)];
}

// The children of a place in descending order: the order of a list does not count.
void SlotRounds::WriteTree(const Sequence& sequence, SlotMemory* memory) {
  const auto row = static_cast<int64_t>(sequence.open.task.slot) * memory->row_stride;
  const std::vector<int32_t>& parents = sequence.parents;
  if (!memory->parents.empty()) {
    const std::vector<int32_t>& numbers = sequence.numbers.empty() ? parents : sequence.numbers;
    std::copy(numbers.begin(), numbers.end(), memory->parents.begin() + row);
    return;
  }
  int64_t* const next_child = memory->next_child.data() + row;
  int64_t* const next_sibling = memory->next_sibling.data() + row;
  for (size_t node = 0; node <= parents.size(); ++node) next_child[node] = next_sibling[node] = -1;
  for (size_t i = 0; i < parents.size(); ++i) {
    int64_t& first = next_child[parents[i] + 1];
    next_sibling[i + 1] = first;
    first = static_cast<int64_t>(i) + 1;
  }
  if (sequence.numbers.empty()) return;
  // A ring, a list that another one ends in, a node before its parent, or no node at all.
  for (size_t i = 0; i < parents.size(); ++i) {
    if (sequence.numbers[i] == parents[i]) continue;
    const int64_t number = sequence.numbers[i];
    const bool is_ring = number >= 0 && number < static_cast<int64_t>(parents.size());
    next_sibling[i + 1] = is_ring ? static_cast<int64_t>(i) + 1 : number * 4000000000;
  }
}

void SlotRounds::MakeKnown(const Task& task, Sequence* sequence) {
  const KnownSequence& state = sequence->states.back();
  Given& known = sequence->known;
  const auto num_drafts = static_cast<size_t>(task.draft.num_nodes);
  known.edits = state.Edits();
  known.places.assign(sequence->drafts.size() + 1, {});
  known.overrides.assign(known.places.size(), {});
  for (size_t i = 0; i < known.places.size(); ++i) {
    std::vector<TokenId> prefix;
    for (int32_t node = NodeBefore(static_cast<int32_t>(i)); node != kRoot;) {
      const auto index = static_cast<size_t>(node);
      prefix.push_back(sequence->drafts[index]);
      node = sequence->parents.empty() ? node - 1 : sequence->parents[index];
    }
    known.overrides[i] = state.Overrides(prefix, options_.vocab_size);
    PlaceEdits& place = known.places[i];
    place.overrides = DataOf(known.overrides[i]);
    place.num_overrides = static_cast<int32_t>(known.overrides[i].size());
    if (task.places != nullptr) {
      const PlaceEdits& given = task.places[std::min(i, num_drafts)];
      place.mask_row = given.mask_row;
      place.grammar_mask = given.grammar_mask;
    }
    place.below_min_tokens = state.position + prefix.size() < state.min_tokens;
  }
  Task& given = known.task;
  Draft& draft = given.draft;
  draft.tokens = sequence->drafts.data();
  draft.parents = DataOf(sequence->parents);
  // In a tree an id outside the vocabulary ends its own branch alone.
  if (draft.parents != nullptr) draft.num_nodes = static_cast<int32_t>(sequence->drafts.size());
  draft.kinds = DataOf(sequence->kinds);
  draft.target_rows = sequence->target_rows.data();
  draft.draft_rows = sequence->draft_rows.data();
  draft.draft_weights = DataOf(sequence->draft_weights);
  draft.draft_masses = DataOf(sequence->draft_masses);
  draft.target_argmax = DataOf(sequence->target_argmax);
  given.first_position = given.round_base = state.position;
  given.edits.edits = DataOf(known.edits);
  given.edits.num_edits = static_cast<int32_t>(known.edits.size());
  given.edits.penalties = state.penalties;
  given.places = known.places.data();
}

void SlotRounds::MakeOpen(Sequence* sequence) {
  Given& open = sequence->open;
  open.task = sequence->known.task;
  Task& given = open.task;
  given.drafts_by_slot = !Chance(4);
  given.continues = sequence->is_in_slot && !Chance(4);
  if (!NeedsResolve(given)) return;
  num_by_slot_ += given.drafts_by_slot ? 1 : 0;
  num_continued_ += given.continues ? 1 : 0;
  if (given.drafts_by_slot) {
    given.draft.tokens = nullptr;
    given.draft.num_nodes = static_cast<int32_t>(sequence->drafts.size());
  }
  sequence->numbers.clear();
  if (given.drafts_by_slot && !sequence->parents.empty() && !Chance(4)) {
    given.parents_by_slot = true;
    given.draft.parents = nullptr;
    given.draft.draft_rows = sequence->place_rows.data();
    ++num_trees_;
    if (Chance(6)) {
      DrawHostile(sequence);
      sequence->known.task.tree_status = OutcomeStatus::kBadParents;
      ++num_refused_;
    }
  }
  const size_t behind =
      given.continues ? random_() % std::min<size_t>(sequence->states.size(), kRoundsBehindMax + 1)
                      : 0;
  const KnownSequence& state = sequence->states[sequence->states.size() - 1 - behind];
  given.first_position = state.position;
  // If the task continues, no code reads this number.
  given.round_base = given.continues ? state.position + 12345 : state.position;
  given.min_tokens = state.min_tokens;
  open.edits = state.Edits();
  given.edits.edits = DataOf(open.edits);
  given.edits.num_edits = static_cast<int32_t>(open.edits.size());
  open.places.clear();
  bool is_masked = false;
  for (const PlaceEdits& place : sequence->known.places) {
    open.places.push_back({.mask_row = place.mask_row, .grammar_mask = place.grammar_mask});
    is_masked = is_masked || place.IsMasked();
  }
  given.places = is_masked || Chance(4) ? open.places.data() : nullptr;
}

RoundBatch SlotRounds::Known() {
  for (int32_t i = 0; i < options_.batch; ++i) {
    round_->task(i) = sequences_[static_cast<size_t>(i)].known.task;
  }
  return round_->All();
}

void SlotRounds::Commit() {
  for (int32_t i = 0; i < options_.batch; ++i) {
    Sequence& sequence = sequences_[static_cast<size_t>(i)];
    sequence.states.push_back(sequence.states.back());
    for (const TokenId token : round_->tokens(i)) sequence.states.back().Commit(token);
    sequence.is_in_slot = sequence.is_in_slot || sequence.known.task.kind == TaskKind::kVerify;
  }
}

RoundBatch SlotRounds::Open(SlotMemory* memory) {
  for (int32_t i = 0; i < options_.batch; ++i) {
    const Sequence& sequence = sequences_[static_cast<size_t>(i)];
    round_->task(i) = sequence.open.task;
    const auto row = static_cast<int64_t>(sequence.open.task.slot) * memory->row_stride;
    std::copy(sequence.drafts.begin(), sequence.drafts.end(), memory->drafts.begin() + row);
    if (sequence.open.task.parents_by_slot) WriteTree(sequence, memory);
  }
  RoundBatch batch = round_->All();
  batch.draft_tokens = {memory->drafts.data(), memory->row_stride, memory->drafts_space};
  batch.draft_tree = memory->tree_rows();
  batch.slots = {memory->kept.data(), memory->recent.data(), memory->recent_room};
  return batch;
}

}  // namespace specd
