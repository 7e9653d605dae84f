#include "tests/kernels/bodies/enumeration.h"

#include <algorithm>
#include <utility>

#include "tests/support/rows.h"

namespace specd {

namespace {

// In place of the round base of a coin whose key has none: the coin can be asked for again.
constexpr uint32_t kAnyBase = ~0u;

}  // namespace

double Enumeration::Run() {
  states_[0][{{}, {}}] = {1.0, 0};
  while (!states_.empty()) {
    const auto [length, states] = *states_.begin();
    states_.erase(states_.begin());
    for (const auto& [key, state] : states) Follow(key.first, key.second, state);
  }
  double distance = 0;
  double total = 0;
  double target_total = 0;
  for (const auto& [text, probability] : law_) {
    const double wanted = model_.TargetProbability(text);
    distance += std::fabs(probability - wanted);
    total += probability;
    target_total += wanted;
  }
  CHECK(total == doctest::Approx(1.0));
  return (distance + 1 - target_total) / 2;  // texts that were never emitted are missing
}

// One round from one state, along every path.
void Enumeration::Follow(const Tokens& text, const CoinParts& coins, const State& state) {
  ForEachPath(coins, [&](CoinPaths& paths) {
    const Record record = Round(text, paths);
    const double probability = state.probability * paths.probability();
    Tokens next = Concatenate(text, record.emitted);
    ++num_cells_;
    if (text.empty()) {
      mean_accepted_ += paths.probability() * static_cast<double>(record.emitted.size() - 1);
    }
    if (!fault_.Any() && !model_.options().exact) CheckVerify(text, record, paths.used());
    most_rounds_ = std::max(most_rounds_, state.rounds + 1);
    if (next.size() >= model_.options().length) {
      next.resize(model_.options().length);
      law_[next] += probability;
      return;
    }
    // Coins that cannot be asked for again are whole for all that anybody will see.
    CoinParts left;
    for (const auto& [coin, part] : paths.coins()) {
      const bool recurs = std::get<1>(coin) == kAnyBase && std::get<0>(coin) >= next.size();
      if (recurs) left[coin] = part;
    }
    State& entry = states_[next.size()][{next, left}];
    entry.probability += probability;
    entry.rounds = std::max(entry.rounds, state.rounds + 1);
  });
}

Enumeration::Record Enumeration::Round(const Tokens& text, CoinPaths& paths) {
  Record record;
  if (!model_.options().parents.empty()) {
    WalkTree(text, paths, &record);
    return record;
  }
  switch (model_.options().method) {
    case VerifyMethod::kExactMatch:
      WalkExactMatch(text, paths, &record);
      break;
    case VerifyMethod::kBlock:
      WalkBlock(text, paths, &record);
      break;
    default:
      WalkToken(text, paths, &record);
  }
  return record;
}

// The next draft token, by the drafter's coin; false where the draft ends. An id outside the
// vocabulary is in the record, and ends the draft.
bool Enumeration::DrawDraft(const Tokens& text, CoinPaths& paths, Record* record) {
  const size_t i = record->draft.size();
  if (i == model_.NumDrafts(text)) return false;
  const Tokens context = Concatenate(text, record->draft);
  const ModelOptions& options = model_.options();
  CoinKey key = KeyOf(text, i, i + 1, Purpose::kDraft);
  if (options.library_drafts) key = LibraryCoin(key.position, key.round_base);
  const bool is_new = drafts_checked_.insert({context, i}).second;
  const bool by_specd = !options.wide && !options.library_drafts;
  if (is_new && by_specd && !fault_.Any()) CheckDraft(text, i, key, model_.At(context));
  const auto drawn =
      static_cast<TokenId>(paths.Choose(IdentityOf(key), model_.DraftEnds(context), MarginFor(1)));
  const TokenId token = model_.Named(drawn, i);
  if (fault_.cut_at_forbidden && model_.At(context).p[drawn] == 0) return false;
  record->draft.push_back(token);
  return !model_.IsOutside(token) || fault_.outside_verified;
}

// q of a draft token as verification takes it.
oracle::Probabilities Enumeration::VerifiedAs(const Tokens& context, size_t i, TokenId token) {
  if (model_.KindAt(i) == DraftKind::kOneHot) {
    return oracle::OneHot(token, size_t(model_.options().vocab_size));
  }
  return fault_.q_unedited ? model_.At(context).q_unedited : model_.At(context).q;
}

void Enumeration::WalkToken(const Tokens& text, CoinPaths& paths, Record* record) {
  for (size_t i = 0;; ++i) {
    const Tokens context = Concatenate(text, record->draft);
    const oracle::Probabilities& p = model_.At(context).p;
    if (!DrawDraft(text, paths, record)) {
      return Finish(i, p, nullptr, 1, text, paths, record);
    }
    const TokenId x = record->draft.back();
    const oracle::Probabilities q = VerifiedAs(context, i, x);
    const CoinIdentity coin = IdentityOf(KeyOf(text, i, i + 1, Purpose::kAccept));
    oracle::Probabilities judged = q;
    if (fault_.wide_side_channel) {
      for (double& each : judged) each *= 1 - ChainModel::kOutside;
    }
    const double accept = oracle::AcceptProbability(p, judged, x);
    if (paths.Choose(coin, {accept, 1}, MarginFor(oracle::ProbabilityOf(q, x))) == 1) {
      return Finish(i, p, &q, 1, text, paths, record);
    }
    record->emitted.push_back(x);
  }
}

void Enumeration::WalkExactMatch(const Tokens& text, CoinPaths& paths, Record* record) {
  for (size_t i = 0;; ++i) {
    const Tokens context = Concatenate(text, record->draft);
    const bool drawn = DrawDraft(text, paths, record);
    Finish(i, model_.At(context).p, nullptr, 1, text, paths, record);
    if (!drawn || record->emitted.back() != record->draft.back()) return;
  }
}

void Enumeration::WalkBlock(const Tokens& text, CoinPaths& paths, Record* record) {
  std::vector<oracle::Probabilities> p{model_.At(text).p};
  std::vector<oracle::Probabilities> q;
  for (size_t i = 0; DrawDraft(text, paths, record); ++i) {
    Tokens context = Concatenate(text, record->draft);
    p.push_back(model_.At(context).p);
    context.pop_back();
    q.push_back(VerifiedAs(context, i, record->draft.back()));
  }
  const size_t num_drafts = q.size();
  const oracle::Block block = oracle::BlockOf(
      p, q, Tokens(record->draft.begin(), record->draft.begin() + int64_t(num_drafts)));
  const auto accepts = [&](size_t i) {  // u_i < h_i
    double mass = 1;
    for (size_t j = 0; j < i; ++j) {
      mass = std::min(mass, oracle::ProbabilityOf(q[j], record->draft[j]));
    }
    if (i < num_drafts) mass *= block.residual[i] + 1 - block.path[i];
    const CoinIdentity coin = IdentityOf(KeyOf(text, i - 1, i, Purpose::kAccept));
    return paths.Choose(coin, {block.accept[i], 1}, MarginFor(mass)) == 0;
  };
  size_t stop = fault_.early_break ? 0 : num_drafts;
  if (fault_.early_break) {
    while (stop < num_drafts && accepts(stop + 1)) ++stop;
  } else {
    while (stop > 0 && !accepts(stop)) --stop;
  }
  record->emitted.assign(record->draft.begin(), record->draft.begin() + int64_t(stop));
  Finish(stop, p[stop], stop == num_drafts ? nullptr : &q[stop], block.path[stop], text, paths,
         record);
}

// The final token, at place `stop`, from p or from the rest of a * p without q.
void Enumeration::Finish(size_t stop, const oracle::Probabilities& p,
                         const oracle::Probabilities* q, double a, const Tokens& text,
                         CoinPaths& paths, Record* record) {
  if (q == nullptr) {
    const CoinIdentity coin = IdentityOf(SampleCoin(static_cast<uint32_t>(text.size() + stop)));
    const std::vector<double> ends = oracle::IntervalEnds(p);
    record->emitted.push_back(static_cast<TokenId>(paths.Choose(coin, ends, MarginFor(1))));
    return;
  }
  double mass = 0;
  for (size_t v = 0; v < p.size(); ++v) mass += std::max(a * p[v] - (*q)[v], 0.0);
  oracle::Probabilities law = *oracle::Residual(p, *q, a);
  if (fault_.residual_is_p) law = p;
  if (fault_.residual_not_renormalised) {
    size_t last = 0;
    for (size_t v = 0; v < law.size(); ++v) {
      if (law[v] > 0) last = v;
      law[v] *= mass;
    }
    law[last] += 1 - mass;
  }
  const CoinIdentity coin = IdentityOf(KeyOf(text, stop, stop, Purpose::kResidual));
  const size_t y = paths.Choose(coin, oracle::IntervalEnds(law), MarginFor(mass));
  record->emitted.push_back(static_cast<TokenId>(y));
}

Tokens Enumeration::PrefixOf(const Tokens& draft, size_t place) const {
  const std::vector<int>& parents = model_.options().parents;
  if (parents.empty()) return Tokens(draft.begin(), draft.begin() + int64_t(place));
  Tokens prefix;
  for (int node = int(place) - 1; node >= 0; node = parents[size_t(node)]) {
    prefix.insert(prefix.begin(), draft[size_t(node)]);
  }
  return prefix;
}

CoinIdentity Enumeration::IdentityOf(const CoinKey& key) const {
  const auto purpose = static_cast<uint32_t>(key.purpose);
  if (fault_.draft_shared_with_sample &&
      (key.purpose == Purpose::kDraft || key.purpose == Purpose::kSample)) {
    return {key.position, kAnyBase, 0, static_cast<uint32_t>(Purpose::kSample)};
  }
  if (fault_.library_by_position && key.purpose == Purpose::kLibrary) {
    return {key.position, kAnyBase, 0, purpose};
  }
  if (key.purpose == Purpose::kSample) return {key.position, key.round_base, key.node, purpose};
  if (fault_.position_only_keys) return {key.position, kAnyBase, 0, purpose};
  const bool is_shared = (fault_.accept_shared_with_residual && key.purpose != Purpose::kDraft) ||
                         (fault_.draft_shared_with_residual && key.purpose != Purpose::kAccept);
  if (is_shared) return {key.position, key.round_base, 0, 0};
  return {key.position, key.round_base, key.node, purpose};
}

double Enumeration::ShareOf(const Tokens& text, const Tokens& draft, size_t node) {
  const std::vector<int>& parents = model_.options().parents;
  const auto place = parents.empty() ? node : size_t(parents[node] + 1);
  oracle::Probabilities q = model_.At(Concatenate(text, PrefixOf(draft, place))).q;
  double left = 1;
  for (size_t other = 0; other < parents.size(); ++other) {
    const DraftKind kind = model_.KindAt(other);
    const bool is_earlier = kind == DraftKind::kSampledRest && other < node;
    const bool is_sibling = other != node && parents[other] == parents[node];
    if (!is_sibling || model_.KindAt(node) != DraftKind::kSampledRest) continue;
    if (model_.IsOutside(draft[other]) || !(kind == DraftKind::kOneHot || is_earlier)) continue;
    left -= std::exchange(q[size_t(draft[other])], 0.0);
  }
  return left > 0 ? oracle::ProbabilityOf(q, draft[node]) / left : 0;
}

// With every coin just inside either end of its part, the kernel must emit the oracle's token.
void Enumeration::CheckVerify(const Tokens& text, const Record& record, const CoinParts& used) {
  CoinParts parts;
  for (const auto& [coin, part] : used) {
    const auto purpose = static_cast<Purpose>(std::get<3>(coin));
    if (purpose == Purpose::kDraft || purpose == Purpose::kLibrary) continue;
    parts[coin] = part;
    if (part.high - part.low < 2 * (part.low_margin + part.high_margin)) {
      ++num_narrow_cells_;
      return;
    }
  }
  // Places that were not reached are filled with anything, ids outside the vocabulary included.
  Tokens draft = record.draft;
  const size_t num_real = model_.NumDrafts(text);
  while (draft.size() < num_real) draft.push_back(static_cast<TokenId>(num_cells_ % 5));
  while (draft.size() < size_t(model_.options().max_draft)) draft.push_back(kNoToken);
  for (size_t i = 0; i < record.is_drawn.size(); ++i) {
    if (!record.is_drawn[i]) draft[i] = static_cast<TokenId>((num_cells_ + int64_t(i)) % 5);
  }

  const ModelOptions& options = model_.options();
  const auto num_rows = static_cast<int64_t>(draft.size()) + 1;
  RowMatrix target({.vocab_size = options.vocab_size, .num_rows = num_rows});
  RowMatrix drafter({.vocab_size = options.vocab_size, .num_rows = num_rows});
  std::vector<oracle::Steps> steps;
  std::vector<DraftKind> kinds;
  std::vector<float> weights;
  std::vector<double> masses;
  for (size_t i = 0; i <= draft.size(); ++i) {
    const ChainModel::Place& place = model_.At(Concatenate(text, PrefixOf(draft, i)));
    target.Set(int64_t(i), place.target);
    drafter.Set(int64_t(i), place.draft);
    steps.push_back(place.steps);
    kinds.push_back(model_.KindAt(i));
    weights.push_back(i < draft.size() ? static_cast<float>(3 * ShareOf(text, draft, i)) : 0);
    masses.push_back(3);
  }
  ChainCase chain(options.method, draft, kinds);
  std::vector<uint32_t> draft_rows;  // siblings share the row of their place
  for (const int parent : options.parents) draft_rows.push_back(static_cast<uint32_t>(parent + 1));
  if (!options.parents.empty()) {
    chain.task.draft.parents = options.parents.data();
    chain.task.draft.draft_rows = draft_rows.data();
  }
  chain.task.first_position = chain.task.round_base = static_cast<uint32_t>(text.size());
  chain.task.target_filters = FiltersOf(options.target_truncation);
  chain.task.draft_filters = FiltersOf(options.draft_truncation);
  if (options.side_channel) {
    chain.task.draft.draft_weights = weights.data();
    chain.task.draft.draft_masses = masses.data();
  }
  const PackedSteps packed(steps, options.vocab_size);
  if (options.edits) packed.Apply(&chain.task);
  chain.task.draft_edits = options.draft_edits;

  // The place of the final token has an id outside the vocabulary.
  const size_t last = record.emitted.size() - 1;
  const bool ends_outside = last < record.draft.size() && model_.IsOutside(draft[last]);
  const bool is_tree = !options.parents.empty();

  // All ends of few coins; of many, those with all at one side and a few others.
  const uint32_t num_corners = 1u << parts.size();
  const uint32_t step = num_corners <= 8 ? 1 : num_corners / 4 + 1;
  for (uint32_t n = 0; n <= num_corners; n += step) {
    const uint32_t corner = std::min(n, num_corners - 1);
    const auto coins = [&](const CoinKey& key) {
      const auto found = parts.find(IdentityOf(key));
      REQUIRE(found != parts.end());  // the kernel looked at a coin that decides nothing
      const auto bit = std::distance(parts.begin(), found);
      return CoinIn(found->second, (corner >> bit & 1) != 0);
    };
    const ChainResult result =
        RunScalar(chain.task, target.view(), drafter.view(), coins, packed.mask());
    ++num_kernel_runs_;
    REQUIRE(result.outcome.status == OutcomeStatus::kOk);
    REQUIRE(result.outcome.empty_residuals == 0);
    REQUIRE(result.tokens == record.emitted);
    REQUIRE(result.outcome.num_accepted == int32_t(record.emitted.size()) - 1);
    if (is_tree) REQUIRE(result.path == record.path);
    if (!options.edits && !is_tree)
      REQUIRE(result.outcome.invalid_drafts == (ends_outside ? 1 : 0));
  }
}

// SampleDraft must draw every token of q from either end of its interval, and report q.
void Enumeration::CheckDraft(const Tokens& text, size_t i, const CoinKey& key,
                             const ChainModel::Place& place) {
  const ModelOptions& options = model_.options();
  RowMatrix drafter({.vocab_size = options.vocab_size, .num_rows = 1});
  drafter.Set(0, place.draft);
  ChainCase one(VerifyMethod::kExactMatch, {}, DraftKind::kSampled);
  one.task.kind = TaskKind::kSampleDraft;
  one.task.first_position = static_cast<uint32_t>(text.size() + i);
  one.task.round_base = static_cast<uint32_t>(text.size());
  one.task.first_node = static_cast<uint32_t>(i + 1);
  one.task.num_children = 1;
  one.task.target_filters = FiltersOf(options.draft_truncation);
  const PackedSteps packed({place.steps}, options.vocab_size);
  if (options.draft_edits) packed.Apply(&one.task);
  const std::vector<double> ends = oracle::IntervalEnds(place.q);
  for (size_t x = 0; x < ends.size(); ++x) {
    if (place.q[x] == 0) continue;
    // The ends of the whole coin are exact, even if the doubles add up to another sum.
    const double margin = MarginFor(1);
    CoinPart part{ends[x] - place.q[x], ends[x], margin, margin};
    if (part.low < margin) part.low = part.low_margin = 0;
    if (part.high > 1 - margin) part = {part.low, 1, part.low_margin, 0};
    for (const bool at_high : {false, true}) {
      const auto coins = [&](const CoinKey& asked) {
        REQUIRE(IdentityOf(asked) == IdentityOf(key));
        return CoinIn(part, at_high);
      };
      ChainRun run(one.task, drafter.view(), TensorView{}, packed.mask());
      ScalarTeam<CpuTarget::kBaseline> team;
      const TaskOutcome outcome = run.By(team, coins);
      ++num_kernel_runs_;
      REQUIRE(outcome.status == OutcomeStatus::kOk);
      REQUIRE(outcome.num_tokens == 1);
      REQUIRE(run.samples[0].id == static_cast<TokenId>(x));
      REQUIRE(run.samples[0].count == 1);
      REQUIRE(run.samples[0].weight / run.samples[0].mass == doctest::Approx(place.q[x]));
    }
  }
}

// The first or the last coin of a part that its margins leave.
uint64_t Enumeration::CoinIn(const CoinPart& part, bool at_high) const {
  const double end = at_high ? part.high : part.low;
  double margin = at_high ? part.high_margin : part.low_margin;
  // Where the end is a multiple of 2^-20 it is exact if the rows are.
  const double snapped = std::round(end * 0x1p20) * 0x1p-20;
  const bool exact = std::fabs(end - snapped) < 1e-12 && model_.options().powers_of_two;
  if (exact) margin = 0;
  const double first = (exact ? snapped : end) * 0x1p53;
  return static_cast<uint64_t>(at_high ? std::ceil(first - margin * 0x1p53) - 1
                                       : std::ceil(first + margin * 0x1p53));
}

}  // namespace specd
