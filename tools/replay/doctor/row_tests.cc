#include "tools/replay/doctor/row_tests.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/replay/draft_tree.h"
#include "tools/replay/sequence_book.h"

namespace specd::replay {
namespace {

double Overlap(std::span<const float> p, std::span<const float> q) {
  double sum = 0;
  for (size_t id = 0; id < p.size(); ++id) sum += static_cast<double>(std::min(p[id], q[id]));
  return sum;
}

size_t BestId(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

uint64_t Key(size_t row, int32_t place) { return row * 4096 + static_cast<uint64_t>(place); }

}  // namespace

absl::Status RowTests::Begin(const RoundRebuilder& rebuilder) {
  ranks_.clear();
  swaps_of_round_ = {};
  return round_.Read(rebuilder, &rows_);
}

void RowTests::EndRound() {
  for (size_t which = 0; which < kNumNeighbours; ++which) {
    const RoundSwap& sum = swaps_of_round_[which];
    if (sum.count == 0) continue;
    swaps_[which].overlap.Add(sum.overlap / static_cast<double>(sum.count));
    swaps_[which].agreement.Add(sum.agreement / static_cast<double>(sum.count));
  }
}

absl::StatusOr<std::vector<double>> RowTests::Take(const RoundRebuilder& rebuilder, size_t i,
                                                   const TraceTask& record, size_t sequence,
                                                   const std::vector<JudgedDraft>& judged) {
  std::vector<double> overlaps(judged.size(), -1.0);
  if (DraftTree::IsTree(record)) {
    if (absl::Status status = TakeTree(rebuilder, i, record); !status.ok()) return status;
    return overlaps;
  }
  const int64_t task = i;
  for (size_t k = 0; k < judged.size(); ++k) {
    const JudgedDraft& draft = judged[k];
    if (!draft.is_drawn || record.draft_scale <= 0) continue;
    const std::span<const float> q = round_.Q(task, draft.place);
    if (q.empty()) continue;
    absl::Status status = AddDraw(rebuilder, i, draft.node, draft.place, draft.id, {});
    if (!status.ok()) return status;
    AddRepeats(i, sequence, draft);
    const std::span<const float> p = round_.P(task, draft.place);
    if (p.empty()) continue;
    AddPair(p, q, draft.id);
    AddTemperatures(p);
    AddSwap(Neighbours::kPlaces, i, draft.place, i, draft.place + 1);
    AddSwap(Neighbours::kSequences, i, draft.place, i + 1, draft.place);
    overlaps[k] = Overlap(p, q);
    if (record.method == VerifyMethod::kToken)
      accepted_.Add(draft.is_accepted, std::min(overlaps[k], 1.0));
  }
  return overlaps;
}

// Siblings that share a row are drawn one after the other: SAMPLED ones from q, SAMPLED_REST ones
// from what the one-hot ones and the earlier ones leave (CONTRACT §5).
absl::Status RowTests::TakeTree(const RoundRebuilder& rebuilder, size_t i,
                                const TraceTask& record) {
  if (record.draft_scale <= 0) return absl::OkStatus();
  const DraftTree tree(record, rebuilder.batch().target.vocab_size);
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const bool is_drawn = tree.KindOf(node) != DraftKind::kOneHot && tree.IsInside(node);
    if (!is_drawn || !rebuilder.HasDraftRow(i, node)) continue;
    std::vector<TokenId> without;
    for (int32_t other = 0; other < tree.num_nodes(); ++other) {
      if (tree.KindOf(node) != DraftKind::kSampledRest || other == node) continue;
      if (tree.ParentOf(other) != tree.ParentOf(node)) continue;
      const bool is_taken = tree.KindOf(other) == DraftKind::kOneHot || other < node;
      if (is_taken) without.push_back(tree.TokenOf(other));
    }
    absl::Status status =
        AddDraw(rebuilder, i, node, tree.PlaceOf(node), tree.TokenOf(node), without);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RowTests::AddDraw(const RoundRebuilder& rebuilder, size_t i, int32_t node,
                               int32_t place, TokenId id, std::span<const TokenId> without) {
  const Task& task = rebuilder.batch().tasks[i];
  const int64_t at = i;
  DrawnId drawn;
  drawn.id = id;
  drawn.scale = task.draft_scale;
  drawn.filters = task.draft_filters;
  drawn.without = without;
  if (!IsTree(task)) {
    drawn.place_before = round_.Q(at, place - 1);
    drawn.place_after = round_.Q(at, place + 1);
    drawn.sequence_before = round_.Q(at - 1, place);
    drawn.sequence_after = round_.Q(at + 1, place);
  }
  const float scale = task.draft_scale;
  const bool is_final = rebuilder.batch().draft.rules.kind == RowKind::kFinalProbabilities;
  absl::Status status = draws_.Add(drawn, [&](std::span<RowTransform> transforms) {
    // Final probabilities arrive as log2 p, which have no temperature of their own.
    for (RowTransform& t : transforms) t.scale = is_final ? t.scale / scale : t.scale;
    return rows_.TransformDraft(rebuilder, i, node, transforms);
  });
  return absl::IsInvalidArgument(status) ? absl::OkStatus() : status;
}

void RowTests::AddPair(std::span<const float> p, std::span<const float> q, TokenId id) {
  double overlap = 0;
  double square = 0;
  double outside = 0;
  double rest = 0;
  const auto best = BestId(q);
  const double left = 1 - static_cast<double>(q[best]);
  for (size_t v = 0; v < p.size(); ++v) {
    const double pv = p[v];
    const double qv = q[v];
    const double least = std::min(pv, qv);
    overlap += least;
    if (least > 0) square += least * least / qv;
    if (qv == 0) outside += pv;
    if (v != best && left > 0) rest += std::min(pv, qv / left);
  }
  const size_t x = id;
  if (q[x] > 0) {
    const double share = std::min(static_cast<double>(p[x]) / static_cast<double>(q[x]), 1.0);
    shares_.Add(share, overlap, square - overlap * overlap, 1);
  }
  const double p_best = p[best];
  overlap_.Add(overlap);
  best_.Add(p_best);
  mixed_.Add(p_best + rest);
  best_gain_.Add(p_best - overlap);
  mixed_gain_.Add(p_best + rest - overlap);
  outside_.Add(outside);
}

// REQUIRES: the last draw was at this place.
void RowTests::AddTemperatures(std::span<const float> p) {
  const std::span<const float> q = draws_.q();
  const double overlap = Overlap(p, q);
  // ln of a temperature's q is that of q, divided by it, less a constant that one id shows.
  const auto best = BestId(q);
  double mass = 0;
  double log_sum = 0;
  for (size_t v = 0; v < q.size(); ++v) {
    if (q[v] <= 0 || p[v] <= 0) continue;
    mass += static_cast<double>(p[v]);
    log_sum += static_cast<double>(p[v]) * std::log(static_cast<double>(q[v]));
  }
  const double log_best = std::log(static_cast<double>(q[best]));
  for (size_t k = 0; k < gains_.size(); ++k) {
    const std::span<const float> other = draws_.TemperedQ(k);
    const double acceptance = Overlap(p, other);
    acceptances_[k].Add(acceptance);
    gains_[k].Add(acceptance - overlap);
    const double t = DrawEvidence::Temperatures()[k];
    const double constant = log_best / t - std::log(static_cast<double>(other[best]));
    log_gains_[k].Add(log_sum / t - constant * mass - log_sum);
  }
}

void RowTests::AddSwap(Neighbours which, size_t i, int32_t place, size_t other,
                       int32_t other_place) {
  const auto rows = [this](size_t task, int32_t at) {
    return std::pair(round_.P(static_cast<int64_t>(task), at),
                     round_.Q(static_cast<int64_t>(task), at));
  };
  const auto first = rows(i, place);
  const auto second = rows(other, other_place);
  if (second.first.empty() || second.second.empty()) return;
  RoundSwap& sum = swaps_of_round_[static_cast<size_t>(which)];
  ++sum.count;
  sum.overlap += (Overlap(first.first, second.second) + Overlap(second.first, first.second) -
                  Overlap(first.first, first.second) - Overlap(second.first, second.second)) /
                 2;
  const size_t p_first = BestId(first.first);
  const size_t q_first = BestId(first.second);
  const size_t p_second = BestId(second.first);
  const size_t q_second = BestId(second.second);
  const double num_own = (p_first == q_first ? 1 : 0) + (p_second == q_second ? 1 : 0);
  const double num_swapped = (p_first == q_second ? 1 : 0) + (p_second == q_first ? 1 : 0);
  sum.agreement += num_swapped - num_own;
  SwapSum& all = swaps_[static_cast<size_t>(which)];
  all.num_before += p_first == q_second ? 1 : 0;
  all.num_after += p_second == q_first ? 1 : 0;
}

void RowTests::AddRepeats(size_t i, size_t sequence, const JudgedDraft& draft) {
  Rank rank;
  double cubes = 0;
  const std::span<const float> q = draws_.q();
  for (size_t v = 0; v < q.size(); ++v) {
    const double x = q[v];
    if (v < static_cast<size_t>(draft.id)) rank.middle += x;
    if (v == static_cast<size_t>(draft.id)) rank.middle += x / 2;
    cubes += x * x * x;
  }
  rank.middle -= .5;
  rank.variance = (1 - cubes) / 12;
  // The mean of the product is 0 given the earlier one, whose square scales its variance.
  const auto add = [&](CoinRepeat which, double earlier) {
    repeats_[static_cast<size_t>(which)].Add(
        rank.middle * earlier, 0, rank.variance * earlier * earlier, .5 * std::abs(earlier));
  };
  const auto find = [](const auto& ranks, uint64_t key) {
    const auto found = ranks.find(key);
    return found == ranks.end() ? nullptr : &found->second;
  };
  if (const Rank* before = find(ranks_, Key(i, draft.place - 1))) {
    add(CoinRepeat::kPlace, before->middle);
  }
  if (i > 0) {
    if (const Rank* before = find(ranks_, Key(i - 1, draft.place))) {
      add(CoinRepeat::kSequence, before->middle);
    }
  }
  if (const Rank* before = find(last_ranks_, Key(sequence, draft.place))) {
    add(CoinRepeat::kRound, before->middle);
  }
  if (draft.coin) add(CoinRepeat::kAccept, *draft.coin - .5);
  ranks_[Key(i, draft.place)] = rank;
  last_ranks_[Key(sequence, draft.place)] = rank;
}

}  // namespace specd::replay
