#include "tools/bench/round_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <random>

#include "kernels/core/philox.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int32_t kWordBits = 32;

float ScaleOf(double temperature) {
  return static_cast<float>(kLog2E / (temperature > 0 ? temperature : 1.0));
}

Filters FiltersOf(const VerifyCase& verify_case) {
  Filters filters;
  filters.top_k = verify_case.top_k;
  if (verify_case.min_p > 0) filters.min_p = static_cast<float>(std::log2(verify_case.min_p));
  if (verify_case.top_p < 1) {
    filters.top_p = static_cast<uint64_t>(std::ldexp(verify_case.top_p, kCoinBits));
  }
  return filters;
}

bool HasLessId(const TokenEdit& a, const TokenEdit& b) { return a.id < b.id; }

bool HasPlaces(const VerifyCase& verify_case) {
  return verify_case.grammar || verify_case.num_penalised > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RoundSet>> RoundSet::Make(const VerifyCase& verify_case,
                                                         const RoundShape& shape,
                                                         const RowPool& target_pool,
                                                         const RowPool* draft_pool,
                                                         Backend* backend) {
  const int64_t num_rows = shape.num_rounds * shape.rows_of_round();
  SPECD_CHECK(target_pool.spec().num_rows >= num_rows);
  SPECD_CHECK((draft_pool != nullptr) == HasDraftRows(verify_case));
  std::unique_ptr<RoundSet> set(new RoundSet(verify_case, shape));
  set->target_ = target_pool.view();
  set->draft_.vocab_size = set->target_.vocab_size;
  if (draft_pool != nullptr) {
    SPECD_CHECK(draft_pool->spec().num_rows >= num_rows);
    set->draft_ = draft_pool->view();
  }
  set->parents_ = ParentsOf(verify_case);
  SPECD_CHECK(set->parents_.empty() || std::ssize(set->parents_) == shape.draft);
  set->MakeMask();
  set->MakeTasks(target_pool, draft_pool);
  if (verify_case.plan == DraftPlan::kMatching && shape.draft > 0) {
    SPECD_TRY(set->FindMatchingTokens(backend));
  }
  if (verify_case.plan == DraftPlan::kDrawn) SPECD_TRY(set->DrawTrees(backend));
  if (verify_case.side_channel) SPECD_TRY(set->FindSideChannel(backend));
  return set;
}

// Three kinds of rows in turn, as grammars give them. Inside a string nearly everything is allowed,
// in a number an eighth of all ids, between the two a handful.
void RoundSet::MakeMask() {
  if (!case_.grammar) return;
  const int32_t vocab_size = target_.vocab_size;
  const int64_t row_words = (vocab_size + kWordBits - 1) / kWordBits;
  mask_words_.assign(static_cast<size_t>(shape_.rows_of_round() * row_words), 0);
  mask_ = {mask_words_.data(), shape_.rows_of_round(), row_words};
  std::mt19937_64 random(7);
  constexpr int32_t kHandful = 200;
  const int32_t num_handful = std::min(kHandful, vocab_size);
  for (int64_t row = 0; row < mask_.num_rows; ++row) {
    uint32_t* words = &mask_words_[static_cast<size_t>(row * row_words)];
    if (row % 3 == 2) {
      for (int32_t i = 0; i < num_handful; ++i) {
        const auto id = static_cast<uint32_t>(random() % static_cast<uint64_t>(vocab_size));
        words[id / kWordBits] |= uint32_t{1} << (id % kWordBits);
      }
      continue;
    }
    for (int64_t i = 0; i < row_words; ++i) {
      const uint64_t a = random();
      const uint64_t b = random();
      const auto eighth = static_cast<uint32_t>(a & (a >> 32) & b);
      words[i] = row % 3 == 1 ? eighth : ~(eighth & static_cast<uint32_t>(b >> 32));
    }
    const int32_t used_bits = vocab_size % kWordBits;
    if (used_bits != 0) words[row_words - 1] &= (uint32_t{1} << used_bits) - 1;
    words[0] |= 1;  // a row that allows nothing would be an error, not a case
  }
}

void RoundSet::MakeTasks(const RowPool& target_pool, const RowPool* draft_pool) {
  const auto places = static_cast<size_t>(shape_.rows_of_sequence());
  const size_t num_tasks = TaskIndex(shape_.num_rounds, 0);
  tasks_.resize(num_tasks);
  row_indices_.resize(num_tasks * places);
  draft_row_indices_.resize(num_tasks * places);
  draft_tokens_.assign(num_tasks * places, kNoToken);
  draft_kinds_.assign(num_tasks * places,
                      draft_pool == nullptr ? DraftKind::kOneHot : DraftKind::kSampled);
  places_.resize(HasPlaces(case_) ? num_tasks * places : 0);
  overrides_.resize(places_.size() * static_cast<size_t>(shape_.draft));
  edits_.resize(case_.num_penalised > 0 ? num_tasks : 0);

  for (size_t index = 0; index < num_tasks; ++index) {
    const size_t first = index * places;
    for (size_t i = 0; i < places; ++i) {
      row_indices_[first + i] = static_cast<uint32_t>(first + i);
      const int64_t place = i < parents_.size() ? PlaceAfter(parents_[i]) : static_cast<int64_t>(i);
      draft_row_indices_[first + i] = static_cast<uint32_t>(static_cast<int64_t>(first) + place);
    }
    Task& task = tasks_[index];
    task.draft = {.num_nodes = shape_.draft,
                  .tokens = &draft_tokens_[first],
                  .kinds = &draft_kinds_[first],
                  .target_rows = &row_indices_[first],
                  .draft_rows = &draft_row_indices_[first]};
    // A chain keeps its natural parents.
    if (case_.method != VerifyMethod::kBlock && !parents_.empty())
      task.draft.parents = parents_.data();
    task.method = case_.method;
    task.target_scale = ScaleOf(case_.temperature);
    task.draft_scale = ScaleOf(case_.temperature / case_.sharpness);
    task.seed = shape_.first_seed + index;
    task.first_position = 100;
    task.round_base = 100;
    task.target_filters = FiltersOf(case_);
    if (case_.logprobs >= 0) task.scores = {.enabled = true, .num_top = case_.logprobs};
    if (!places_.empty()) task.places = &places_[first];
    if (case_.grammar) {
      const size_t first_mask = first % static_cast<size_t>(shape_.rows_of_round());
      for (size_t i = 0; i < places; ++i) {
        places_[first + i].mask_row = static_cast<int32_t>(first_mask + i);
      }
    }
    if (case_.num_penalised > 0) MakeEdits(target_pool, index);
    if (case_.plan == DraftPlan::kMatching || case_.plan == DraftPlan::kDrawn) continue;
    const size_t rejected_place = index % static_cast<size_t>(std::max(shape_.draft, 1));
    for (size_t i = 0; i + 1 < places; ++i) {
      const bool rejected = case_.plan == DraftPlan::kRejected && i == rejected_place;
      const auto row = static_cast<int64_t>(first + i);
      draft_tokens_[first + i] = rejected ? target_pool.worst_id(row) : target_pool.best_id(row);
    }
  }
}

// A history of ids from all over the vocabulary, and the best id of every row of the sequence.
// Penalties therefore change the likely tokens.
void RoundSet::MakeEdits(const RowPool& target_pool, size_t index) {
  std::mt19937_64 random(index);
  const auto places = static_cast<size_t>(shape_.rows_of_sequence());
  std::vector<TokenEdit>& edits = edits_[index];
  const auto add = [&](TokenId id) {
    const auto count = static_cast<uint32_t>(random() % 4);  // 0: in the prompt only
    edits.push_back({.id = id, .flags = kEditSeen, .count = count});
  };
  for (size_t i = 0; i < places; ++i) {
    add(target_pool.best_id(static_cast<int64_t>(index * places + i)));
  }
  const auto vocab_size = static_cast<uint64_t>(target_.vocab_size);
  const auto num_penalised = std::min<size_t>(static_cast<size_t>(case_.num_penalised), vocab_size);
  while (edits.size() < num_penalised) add(static_cast<TokenId>(random() % vocab_size));
  std::sort(edits.begin(), edits.end(), HasLessId);
  const auto is_same = [](const TokenEdit& a, const TokenEdit& b) { return a.id == b.id; };
  edits.erase(std::unique(edits.begin(), edits.end(), is_same), edits.end());
  tasks_[index].edits.edits = edits.data();
  tasks_[index].edits.num_edits = static_cast<int32_t>(edits.size());
  tasks_[index].edits.penalties = case_.penalties;
}

// The draft tokens before `place` count as output there.
void RoundSet::MakeOverrides(int32_t round, int32_t sequence, int32_t place) {
  if (case_.num_penalised == 0) return;
  const size_t index = TaskIndex(round, sequence);
  const size_t first = index * static_cast<size_t>(shape_.rows_of_sequence());
  const size_t at = first + static_cast<size_t>(place);
  TokenEdit* begin = &overrides_[at * static_cast<size_t>(shape_.draft)];
  TokenEdit* end = begin;
  for (int32_t i = 0; i < place; ++i) {
    const TokenId id = draft_tokens_[first + static_cast<size_t>(i)];
    TokenEdit* known = std::ranges::find(begin, end, id, &TokenEdit::id);
    if (known == end) {
      const auto past = std::ranges::find(edits_[index], id, &TokenEdit::id);
      *end++ = past != edits_[index].end() ? *past : TokenEdit{.id = id, .flags = kEditSeen};
    }
    ++known->count;
  }
  std::sort(begin, end, HasLessId);
  places_[at].overrides = begin;
  places_[at].num_overrides = static_cast<int32_t>(end - begin);
}

// Finds tokens place by place, because a draw may depend on the tokens before it. Each sequence
// asks for one token at that place, without a draft. The coin of a token that is drawn from the
// target belongs to its position alone. The chain therefore draws the same tokens again.
absl::Status RoundSet::FindMatchingTokens(Backend* backend) {
  RoundAnswer answer = MakeAnswer();
  for (int32_t round = 0; round < shape_.num_rounds; ++round) {
    for (int32_t place = 0; place <= shape_.draft; ++place) {
      std::vector<Task> single;
      for (int32_t s = 0; s < shape_.batch; ++s) {
        MakeOverrides(round, s, place);
        Task task = tasks_[TaskIndex(round, s)];
        task.draft.num_nodes = 0;
        task.draft.target_rows += place;
        task.first_position += static_cast<uint32_t>(place);
        task.scores = {};
        if (task.places != nullptr) task.places += place;
        single.push_back(task);
      }
      if (place == shape_.draft) break;
      RoundBatch batch = Batch(round, &answer);
      batch.tasks = single.data();
      SPECD_TRY(backend->Run(batch));
      for (int32_t s = 0; s < shape_.batch; ++s) {
        const auto i = static_cast<size_t>(s * shape_.rows_of_sequence());
        if (answer.outcomes[static_cast<size_t>(s)].num_tokens != 1) {
          return absl::InternalError(
              fmt::format("sequence {} of {} drew no token at place {}", s, case_.name, place));
        }
        draft_tokens_[TaskIndex(round, 0) * static_cast<size_t>(shape_.rows_of_sequence()) + i +
                      static_cast<size_t>(place)] = answer.tokens[i];
      }
    }
  }
  return absl::OkStatus();
}

// The side channel as drafters export it: the value of a drawn token in the drafter's own row. The
// drafters' rows here have both tokens of a plan among their best.
absl::Status RoundSet::FindSideChannel(Backend* backend) {
  constexpr int32_t kBest = 64;
  const auto places = static_cast<size_t>(shape_.rows_of_sequence());
  draft_weights_.assign(draft_tokens_.size(), 0);
  draft_masses_.assign(draft_tokens_.size(), 0);
  for (size_t i = 0; i < draft_tokens_.size(); ++i) {
    Task& task = tasks_[i / places];
    task.draft.draft_weights = &draft_weights_[i / places * places];
    task.draft.draft_masses = &draft_masses_[i / places * places];
  }
  for (int32_t round = 0; round < shape_.num_rounds; ++round) {
    for (int32_t place = 0; place < shape_.draft; ++place) {
      SPECD_TAKE(const std::vector<DraftSample> samples,
                 Sample(backend, round, place, DraftSampling::kTopK, kBest));
      for (int32_t s = 0; s < shape_.batch; ++s) {
        const size_t at = TaskIndex(round, s) * places + static_cast<size_t>(place);
        const auto begin = samples.begin() + std::ptrdiff_t{s} * kBest;
        const auto found =
            std::ranges::find(begin, begin + kBest, draft_tokens_[at], &DraftSample::id);
        if (found == begin + kBest) {
          return absl::InternalError(
              fmt::format("draft {} of sequence {} of {} is not among the drafter's {} best", place,
                          s, case_.name, kBest));
        }
        draft_weights_[at] = found->weight;
        draft_masses_[at] = found->mass;
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DraftSample>> RoundSet::Sample(Backend* backend, int32_t round,
                                                          int32_t node, DraftSampling sampling,
                                                          int32_t num_children) {
  RoundAnswer answer = MakeAnswer();
  std::vector<Task> asks(static_cast<size_t>(shape_.batch));
  std::vector<DraftSample> samples(asks.size() * static_cast<size_t>(num_children));
  for (int32_t s = 0; s < shape_.batch; ++s) {
    const Task& of = task(round, s);
    Task& ask = asks[static_cast<size_t>(s)];
    ask.kind = TaskKind::kSampleDraft;
    ask.draft.target_rows = of.draft.draft_rows + node;
    ask.target_scale = of.draft_scale;
    ask.seed = of.seed;
    ask.first_position =
        of.first_position + static_cast<uint32_t>(DepthOf(of.draft, PlaceOf(of.draft, node)));
    ask.round_base = of.round_base;
    ask.first_node = static_cast<uint32_t>(PlaceAfter(node));
    ask.sampling = sampling;
    ask.num_children = num_children;
  }
  RoundBatch batch = Batch(round, &answer);
  batch.target = draft_;
  batch.tasks = asks.data();
  batch.samples = samples.data();
  batch.samples_stride = num_children;
  SPECD_TRY(backend->Run(batch));
  return samples;
}

// Siblings with replacement take one call each, as a drafter has to do it (CONTRACT §2).
absl::Status RoundSet::DrawTrees(Backend* backend) {
  const auto places = static_cast<size_t>(shape_.rows_of_sequence());
  for (int32_t first = 0, last = 0; first < shape_.draft; first = last) {
    const int32_t parent = parents_[static_cast<size_t>(first)];
    const auto is_sibling = [&](int32_t node) {
      return node < shape_.draft && parents_[static_cast<size_t>(node)] == parent;
    };
    last = first + 1;
    while (case_.sampling != DraftSampling::kWithReplacement && is_sibling(last)) ++last;
    for (int32_t round = 0; round < shape_.num_rounds; ++round) {
      SPECD_TAKE(const std::vector<DraftSample> samples,
                 Sample(backend, round, first, case_.sampling, last - first));
      for (size_t i = 0; i < samples.size(); ++i) {
        const auto child = i % static_cast<size_t>(last - first);
        const auto s = static_cast<int32_t>(i / static_cast<size_t>(last - first));
        const size_t at = TaskIndex(round, s) * places + static_cast<size_t>(first) + child;
        draft_tokens_[at] = samples[i].id;
        draft_kinds_[at] = KindOfChild(case_.sampling, last - first, static_cast<int32_t>(child));
      }
    }
  }
  return absl::OkStatus();
}

RoundAnswer RoundSet::MakeAnswer() const {
  const auto rows = static_cast<size_t>(shape_.rows_of_round());
  RoundAnswer answer;
  answer.outcomes.resize(static_cast<size_t>(shape_.batch));
  answer.tokens.assign(rows, kNoToken);
  answer.scores.resize(rows * static_cast<size_t>(scores_stride()));
  if (!parents_.empty()) {
    answer.path.assign(rows, kRoot);
    answer.decisions.resize(rows);
  }
  return answer;
}

RoundBatch RoundSet::Batch(int32_t round, RoundAnswer* answer) const {
  RoundBatch batch;
  batch.target = target_;
  batch.draft = draft_;
  batch.tasks = &tasks_[TaskIndex(round, 0)];
  batch.num_tasks = shape_.batch;
  batch.outcomes = answer->outcomes.data();
  batch.tokens = answer->tokens.data();
  batch.tokens_stride = shape_.rows_of_sequence();
  batch.mask = mask_;
  batch.scores = answer->scores.empty() ? nullptr : answer->scores.data();
  batch.scores_stride = scores_stride();
  batch.path = answer->path.empty() ? nullptr : answer->path.data();
  batch.decisions = answer->decisions.empty() ? nullptr : answer->decisions.data();
  batch.decisions_stride = shape_.rows_of_sequence();
  return batch;
}

}  // namespace specd::bench
