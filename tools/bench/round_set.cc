#include "tools/bench/round_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <random>

#include "kernels/core/elements.h"
#include "kernels/core/philox.h"
#include "speculative/params/params.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr uint64_t kWordBits = 32;
constexpr uint64_t kFirstSeed = 0x5EED;  // of the first sequence; the others count on

// A user's words of the case.
SequenceParams ParamsOf(const VerifyCase& verify_case) {
  SequenceParams params;
  params.temperature = verify_case.temperature;
  params.top_k = verify_case.top_k;
  params.top_p = verify_case.top_p;
  params.min_p = verify_case.min_p;
  params.logprobs = verify_case.logprobs;
  return params;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RoundSet>> RoundSet::Make(const VerifyCase& verify_case,
                                                         const RoundShape& shape,
                                                         const RowPool& target_pool,
                                                         const RowPool* draft_pool,
                                                         Backend* backend) {
  SPECD_CHECK((draft_pool != nullptr) == HasDraftRows(verify_case));
  std::unique_ptr<RoundSet> set(new RoundSet(verify_case, shape));
  set->target_ = target_pool.view();
  set->draft_.vocab_size = set->target_.vocab_size;
  if (draft_pool != nullptr) set->draft_ = draft_pool->view();
  set->parents_ = ParentsOf(verify_case);
  SPECD_CHECK(set->parents_.empty() || std::ssize(set->parents_) == shape.draft);
  set->MakeMask();
  set->MakeTasks(target_pool, draft_pool);
  if (verify_case.plan == DraftPlan::kMatching && shape.draft > 0) {
    SPECD_TRY(set->FindMatchingTokens(backend));
  }
  if (verify_case.plan == DraftPlan::kDrawn) SPECD_TRY(set->DrawTrees(backend));
  if (verify_case.side_channel) set->MakeSideChannel();
  return set;
}

// Three kinds of rows in turn, as grammars give them. Inside a string nearly all ids are allowed,
// in a number an eighth of them, between the two a handful.
void RoundSet::MakeMask() {
  if (!case_.grammar) return;
  constexpr int32_t kHandful = 200;
  const auto vocab_size = static_cast<uint64_t>(target_.vocab_size);
  const auto row_words = static_cast<int64_t>((vocab_size + kWordBits - 1) / kWordBits);
  mask_words_.assign(static_cast<size_t>(shape_.rows_of_round() * row_words), 0);
  mask_ = {mask_words_.data(), shape_.rows_of_round(), row_words};
  std::mt19937_64 random(7);
  for (int64_t row = 0; row < mask_.num_rows; ++row) {
    const auto allow = [words = &mask_words_[static_cast<size_t>(row * row_words)]](uint64_t id) {
      words[id / kWordBits] |= uint32_t{1} << (id % kWordBits);
    };
    allow(0);  // a row that allows nothing would be an error, not a case
    for (int32_t i = 0; row % 3 == 2 && i < kHandful; ++i) allow(random() % vocab_size);
    for (uint64_t id = 0; row % 3 != 2 && id < vocab_size; ++id) {
      const bool is_string = row % 3 == 0;
      if ((random() % (is_string ? 16 : 8) == 0) != is_string) allow(id);
    }
  }
}

void RoundSet::MakeTasks(const RowPool& target_pool, const RowPool* draft_pool) {
  const auto places = static_cast<size_t>(shape_.rows_of_sequence());
  const size_t num_tasks = TaskIndex(shape_.num_rounds, 0);
  const SequenceParams params = ParamsOf(case_);
  tasks_.resize(num_tasks);
  row_indices_.resize(num_tasks * places);
  draft_row_indices_.resize(num_tasks * places);
  draft_tokens_.assign(num_tasks * places, kNoToken);
  draft_kinds_.assign(num_tasks * places,
                      draft_pool == nullptr ? DraftKind::kOneHot : DraftKind::kSampled);
  places_.resize(case_.grammar || case_.num_penalised > 0 ? num_tasks * places : 0);
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
    if (!parents_.empty()) task.draft.parents = parents_.data();
    task.method = case_.method;
    task.target_scale = task.draft_scale = ScaleFor(IsGreedy(params) ? 1 : params.temperature);
    task.seed = kFirstSeed + index;
    task.first_position = 100;
    task.round_base = 100;
    task.target_filters = MakeFilters(params, target_.vocab_size);
    task.scores = MakeScoreRequest(params);
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
  std::map<TokenId, TokenEdit> history;
  const auto add = [&](TokenId id) {
    const auto count = static_cast<uint32_t>(random() % 4);  // 0: in the prompt only
    history.try_emplace(id, TokenEdit{.id = id, .flags = kEditSeen, .count = count});
  };
  for (size_t i = 0; i < places; ++i) {
    add(target_pool.best_id(static_cast<int64_t>(index * places + i)));
  }
  const auto vocab_size = static_cast<uint64_t>(target_.vocab_size);
  const auto num_penalised = std::min<size_t>(static_cast<size_t>(case_.num_penalised), vocab_size);
  while (history.size() < num_penalised) add(static_cast<TokenId>(random() % vocab_size));
  std::vector<TokenEdit>& edits = edits_[index];
  for (const auto& [id, edit] : history) edits.push_back(edit);
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
  std::ranges::sort(begin, end, {}, &TokenEdit::id);
  places_[at].overrides = begin;
  places_[at].num_overrides = static_cast<int32_t>(end - begin);
}

// Runs each round until its sequences accept all drafts. A run gives each sequence one right token
// at least, the one in the place of the first wrong draft. The coin of a token that is drawn from
// the target belongs to its position alone. The next run therefore draws the same tokens again.
absl::Status RoundSet::FindMatchingTokens(Backend* backend) {
  const int32_t stride = shape_.rows_of_sequence();
  RoundAnswer answer = MakeAnswer();
  for (int32_t round = 0; round < shape_.num_rounds; ++round) {
    TokenId* const drafts = &draft_tokens_[TaskIndex(round, 0) * static_cast<size_t>(stride)];
    std::fill_n(drafts, shape_.rows_of_round(), 0);
    for (int32_t run = 0; run <= shape_.draft; ++run) {
      for (int32_t i = 0; i < shape_.batch * stride; ++i) {
        MakeOverrides(round, i / stride, i % stride);
      }
      if (run == shape_.draft) break;
      SPECD_TRY(backend->Run(Batch(round, &answer)));
      for (int32_t s = 0; s < shape_.batch; ++s) {
        const int32_t num_tokens = answer.outcomes[static_cast<size_t>(s)].num_tokens;
        if (num_tokens <= run) {
          return absl::InternalError(fmt::format("sequence {} of {} drew no token at place {}", s,
                                                 case_.name, num_tokens));
        }
        std::copy_n(answer.tokens.begin() + ptrdiff_t{s} * stride,
                    std::min(num_tokens, shape_.draft), drafts + ptrdiff_t{s} * stride);
      }
    }
  }
  return absl::OkStatus();
}

// The side channel as drafters export it: the weight of a draft token in the drafter's own row, and
// the sum of all weights.
void RoundSet::MakeSideChannel() {
  const auto places = static_cast<size_t>(shape_.rows_of_sequence());
  draft_weights_.assign(draft_tokens_.size(), 0);
  draft_masses_.assign(draft_tokens_.size(), 0);
  for (size_t i = 0; i < draft_tokens_.size(); ++i) {
    Task& task = tasks_[i / places];
    task.draft.draft_weights = &draft_weights_[i / places * places];
    task.draft.draft_masses = &draft_masses_[i / places * places];
    if (draft_tokens_[i] == kNoToken) continue;
    const RowView row = RowAt(draft_, draft_row_indices_[i]);
    const auto weight_of = [&](TokenId id) {
      return std::exp2(LoadElement(row, id) * task.draft_scale);
    };
    draft_weights_[i] = weight_of(draft_tokens_[i]);
    for (TokenId id = 0; id < row.vocab_size; ++id) draft_masses_[i] += double{weight_of(id)};
  }
}

// Draws the children of a place of each sequence together, as a drafter does.
absl::Status RoundSet::DrawTrees(Backend* backend) {
  const auto places = static_cast<size_t>(shape_.rows_of_sequence());
  for (int32_t first = 0, last = 0; first < shape_.draft; first = last) {
    const int32_t parent = parents_[static_cast<size_t>(first)];
    while (last < shape_.draft && parents_[static_cast<size_t>(last)] == parent) ++last;
    const auto num_children = static_cast<size_t>(last - first);
    for (int32_t round = 0; round < shape_.num_rounds; ++round) {
      std::vector<Task> asks(static_cast<size_t>(shape_.batch));
      std::vector<DraftSample> samples(asks.size() * num_children);
      for (int32_t s = 0; s < shape_.batch; ++s) {
        const Task& of = task(round, s);
        Task& ask = asks[static_cast<size_t>(s)];
        ask.kind = TaskKind::kSampleDraft;
        ask.draft.target_rows = of.draft.draft_rows + first;
        ask.target_scale = of.draft_scale;
        ask.seed = of.seed;
        ask.first_position =
            of.first_position + static_cast<uint32_t>(DepthOf(of.draft, PlaceAfter(parent)));
        ask.round_base = of.round_base;
        ask.first_node = static_cast<uint32_t>(PlaceAfter(first));
        ask.sampling = DraftSampling::kMixed;
        ask.num_children = last - first;
      }
      RoundAnswer answer = MakeAnswer();
      RoundBatch batch = Batch(round, &answer);
      batch.target = draft_;
      batch.tasks = asks.data();
      batch.samples = samples.data();
      batch.samples_stride = last - first;
      SPECD_TRY(backend->Run(batch));
      for (size_t i = 0; i < samples.size(); ++i) {
        const size_t at = (TaskIndex(round, 0) + i / num_children) * places +
                          static_cast<size_t>(first) + i % num_children;
        draft_tokens_[at] = samples[i].id;
        draft_kinds_[at] = samples[i].kind;
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
