#include "tests/support/round_case.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/bodies/tiles.h"

namespace specd {

namespace {

// Rows below kNumGoodRows are ordinary; the rest is degenerate, each in its own way.
constexpr int64_t kNumGoodRows = RoundCase::kNanRow;
constexpr int64_t kNumRows = 13;
constexpr int32_t kNumMasks = 6;
constexpr int32_t kNumTopMax = 3;
constexpr int32_t kNumChosenMax = 2;
constexpr int32_t kScoresStride = 1 + kNumTopMax + kNumChosenMax;
constexpr int32_t kChildren = 4;
constexpr float kLog2OfE = 1.44269504f;

RowMatrix::Options MatrixOptions(const RoundCase::Options& options, bool is_draft) {
  const RowKind kind = is_draft ? options.draft_kind : options.target_kind;
  const DType draft_dtype = options.draft_dtype.value_or(options.dtype);
  RowMatrix::Options matrix{.dtype = is_draft ? draft_dtype : options.dtype,
                            .vocab_size = options.vocab_size,
                            .num_rows = kNumRows,
                            .padding = 5,
                            .offset = is_draft ? 0 : 1};
  matrix.rules.kind = kind;
  if (options.scaled && kind == RowKind::kLogits) {
    matrix.rules.scale = 0.75f;
    matrix.rules.cap = options.cap;
  }
  matrix.rules.renormalise = options.renormalise && kind != RowKind::kLogits;
  return matrix;
}

// Softmax in double; the values that a row of probabilities holds. They sum to `mass`.
void ToProbabilities(double mass, std::vector<double>* row) {
  const double max = *std::max_element(row->begin(), row->end());
  double sum = 0;
  for (double& x : *row) sum += x = std::exp(x - max);
  for (double& x : *row) x /= sum / mass;
}

}  // namespace

// No expression below draws twice, unless it says in which order. C++ gives operands no order, and
// a sanitizer's build takes another than the optimised one. A seed is one round in every build.
RoundCase::RoundCase(const Options& options)
    : options_(options),
      random_(options.seed),
      target_(MatrixOptions(options, false)),
      draft_(MatrixOptions(options, true)),
      narrow_([&] {
        RowMatrix::Options narrow = MatrixOptions(options, true);
        narrow.vocab_size = std::max(options.num_columns, 1);
        return narrow;
      }()) {
  // All rows like the same few ids, so that drafts stand a chance.
  for (int i = 0; i < 3; ++i) likely_.push_back(AnyId());
  FillColumns();
  FillRows();
  FillMasks();
  sequences_.resize(static_cast<size_t>(options.batch));
  for (Sequence& sequence : sequences_) {
    FillChain(&sequence);
    FillTask(&sequence);
    if (!options.plain && sequence.task.seed % 8 == 0) FillCoins(&sequence);
    sequence.task.slot = static_cast<uint32_t>(2 * (sequences_.end() - sequences_.begin()) - 1 -
                                               2 * (&sequence - sequences_.data()));
    const bool editable = options.target_kind != RowKind::kFinalProbabilities &&
                          sequence.task.kind != TaskKind::kScore;
    if (!options.plain && editable) FillEdits(&sequence);
  }
}

// The likely ids have columns, but for one of them.
void RoundCase::FillColumns() {
  const auto num_ids = static_cast<size_t>(options_.vocab_size);
  columns_.assign(num_ids, -1);
  if (options_.num_columns == 0) return;
  std::vector<TokenId> ids(num_ids);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random_);
  std::stable_partition(ids.begin(), ids.end(),
                        [this](TokenId id) { return id == likely_[0] || id == likely_[1]; });
  std::shuffle(ids.begin(), ids.begin() + options_.num_columns, random_);
  for (int32_t i = 0; i < options_.num_columns; ++i) columns_[static_cast<size_t>(ids[i])] = i;
}

TensorView RoundCase::draft_view() const {
  if (options_.num_columns == 0 || is_wide_) return draft_.view();
  TensorView view = narrow_.view();
  view.vocab_size = options_.vocab_size;
  view.columns = kept_columns_ == nullptr ? columns_.data() : kept_columns_;
  view.num_columns = options_.num_columns;
  return view;
}

void RoundCase::FillRows() {
  const auto store = [&](int64_t row, std::vector<double> values, RowKind kind, RowMatrix* matrix) {
    const bool probabilities = kind != RowKind::kLogits;
    const bool is_narrow = matrix == &draft_ && options_.num_columns > 0;
    const auto limit = [&](double absent) {
      for (size_t id = 0; id < values.size() && is_narrow; ++id) {
        if (columns_[id] < 0) values[id] = absent;
      }
    };
    limit(-INFINITY);
    if (probabilities) ToProbabilities(options_.renormalise ? 0.75 : 1.0, &values);
    if (row == kNanRow) std::fill(values.begin(), values.end(), NAN);
    if (row == 10) values[random_() % values.size()] = probabilities ? 0.5 : INFINITY;
    if (row == 11) std::fill(values.begin(), values.end(), probabilities ? 0.0 : -INFINITY);
    if (row == 12) values[random_() % values.size()] = NAN;
    limit(probabilities ? 0.0 : -INFINITY);
    matrix->Set(row, values);
    if (!is_narrow) return;
    std::vector<double> narrow(static_cast<size_t>(options_.num_columns));
    for (size_t id = 0; id < values.size(); ++id) {
      if (columns_[id] >= 0) narrow[static_cast<size_t>(columns_[id])] = values[id];
    }
    narrow_.Set(row, narrow);
  };
  for (int64_t row = 0; row < kNumRows; ++row) {
    std::vector<double> logits = RandomLogits(random_, options_.vocab_size);
    if (options_.whole) {
      for (double& x : logits) x = -static_cast<double>(random_() % 171);
      for (const TokenId id : likely_) logits[id] = 0;
    }
    for (const TokenId id : likely_) logits[id] += 9 + static_cast<double>(random_() % 3);
    if (options_.by_tile) {
      const int32_t first = static_cast<int32_t>(row % NumTiles(options_.vocab_size)) * kTileSize;
      const int32_t end = std::min(first + kTileSize, options_.vocab_size);
      for (int32_t id = first; id < end; ++id) logits[id] += 4;
    }
    // Ties among the best, for the orders of argmax, top_k and ranks.
    if (row % 3 == 0) logits[likely_[0]] = logits[likely_[1]];
    store(row, logits, options_.draft_kind, &draft_);
    for (const TokenId id : likely_) logits[id] += static_cast<double>(random_() % 5) / 2;
    if (row % 4 == 0) logits[likely_[1]] = logits[likely_[2]];
    store(row, logits, options_.target_kind, &target_);
  }
}

// Rows of a mask: nearly all ids, half of them, the likely ones, one, none, and all but the likely.
// A word after each row belongs to no row and allows everything.
void RoundCase::FillMasks() {
  const size_t words = (static_cast<size_t>(options_.vocab_size) + 31) / 32;
  mask_words_.assign(kNumMasks * (words + 1), 0);
  for (int32_t mask = 0; mask < kNumMasks; ++mask) {
    uint32_t* row = mask_words_.data() + size_t(mask) * (words + 1);
    row[words] = ~0u;
    for (size_t word = 0; word < words; ++word) {
      const auto bits = static_cast<uint32_t>(random_());
      if (mask == 0) row[word] = bits | static_cast<uint32_t>(random_());
      if (mask == 1) row[word] = bits;
      if (mask == 5) row[word] = ~0u;
    }
    for (const TokenId id : likely_) {
      const uint32_t bit = 1u << (id % 32);
      if (mask == 0 || mask == 2) row[id / 32] |= bit;
      if (mask == 5) row[id / 32] &= ~bit;
    }
    if (mask == 3) row[likely_[0] / 32] |= 1u << (likely_[0] % 32);
  }
}

void RoundCase::FillChain(Sequence* sequence) {
  const auto num_drafts = static_cast<int32_t>(random_() % uint64_t(options_.max_draft + 1));
  // Most sequences see no bad row.
  const auto row = [&] {
    const uint64_t drawn = random_();
    return static_cast<uint32_t>(drawn % uint64_t(Chance(8) ? kNumRows : kNumGoodRows));
  };
  for (int32_t i = 0; i < num_drafts; ++i) {
    const uint64_t chance = random_() % 20;
    sequence->draft.push_back(chance == 0   ? kNoToken
                              : chance == 1 ? options_.vocab_size + 3
                              : chance == 2 ? AnyId()
                                            : LikelyId());
    const bool is_drawn = options_.sampled || Chance(2);
    // In a chain a token without siblings has left nothing out.
    const DraftKind drawn = i % 3 == 2 ? DraftKind::kSampledRest : DraftKind::kSampled;
    sequence->kinds.push_back(is_drawn ? drawn : DraftKind::kOneHot);
    sequence->target_rows.push_back(row());
    sequence->draft_rows.push_back(row());
  }
  sequence->target_rows.push_back(row());
  sequence->task.draft = {.num_nodes = num_drafts,
                          .tokens = sequence->draft.data(),
                          .kinds = sequence->kinds.data(),
                          .target_rows = sequence->target_rows.data(),
                          .draft_rows = sequence->draft_rows.data()};
}

void RoundCase::FillTask(Sequence* sequence) {
  Task& task = sequence->task;
  task.method = static_cast<VerifyMethod>(1 + random_() % 4);
  if (options_.sampled) task.method = VerifyMethod::kToken;
  const bool target_final = options_.target_kind == RowKind::kFinalProbabilities;
  const bool draft_final = options_.draft_kind == RowKind::kFinalProbabilities;
  const float temperature_scale = 0.5f + 0.25f * static_cast<float>(random_() % 8);
  task.target_scale = target_final ? kLog2OfE : temperature_scale;
  task.draft_scale = draft_final ? kLog2OfE : 1.0f;
  task.seed = random_();
  task.first_position = static_cast<uint32_t>(random_() % 1000);
  task.round_base = task.first_position;
  if (options_.plain) return;

  const uint64_t kind = options_.sampled ? 2 : random_() % 8;
  if (kind == 0) {
    task.kind = TaskKind::kScore;
    // Up to one more than a draft has: each id has a row, and no row follows.
    if (Chance(2)) {
      sequence->draft.push_back(kNoToken);
      task.draft.tokens = sequence->draft.data();
      ++task.draft.num_nodes;
      task.draft.kinds = nullptr;
      task.draft.draft_rows = nullptr;
    }
    for (TokenId& token : sequence->draft) token = Chance(2) ? AnyId() : LikelyId();
  } else if (kind == 1) {
    task.kind = TaskKind::kSampleDraft;
    task.sampling = static_cast<DraftSampling>(random_() % 4);
    task.num_children = static_cast<int32_t>(1 + random_() % kChildren);
    task.first_node = static_cast<uint32_t>(random_() % 5);
  }
  const bool filterable = !target_final && task.kind != TaskKind::kScore;
  if (filterable && Chance(2)) task.target_filters = RandomFilters();
  if (!draft_final && Chance(3)) task.draft_filters = RandomFilters();
  if (task.kind != TaskKind::kSampleDraft && (task.kind == TaskKind::kScore || Chance(3))) {
    for (uint64_t n = random_() % (kNumChosenMax + 1); n > 0; --n) {
      sequence->chosen.push_back(Chance(2) ? AnyId() : LikelyId());
    }
    task.scores = {.enabled = true,
                   .mode = static_cast<ScoreMode>(random_() % 5),
                   .num_top = static_cast<int32_t>(random_() % (kNumTopMax + 1)),
                   .chosen = sequence->chosen.data(),
                   .num_chosen = static_cast<int32_t>(sequence->chosen.size())};
  }
  if (!options_.sampled && Chance(3)) {
    for (size_t i = 0; i < sequence->draft.size(); ++i) {
      const double mass = 1 + static_cast<double>(random_() % 100);
      sequence->draft_masses.push_back(Chance(30) ? NAN : mass);
      sequence->draft_weights.push_back(static_cast<float>(random_() % 5) / 4);
    }
    task.draft.draft_weights = sequence->draft_weights.data();
    task.draft.draft_masses = sequence->draft_masses.data();
  }
}

// Coins of a sequence that a test or a replay gives, for all places of a chain.
void RoundCase::FillCoins(Sequence* sequence) {
  Task& task = sequence->task;
  std::mt19937_64 random(task.seed);
  for (uint32_t i = 0; i <= static_cast<uint32_t>(options_.max_draft); ++i) {
    const CoinKey sample = SampleCoin(task.first_position + i);
    const CoinKey accept{sample.position, task.round_base, i + 1, Purpose::kAccept};
    for (const CoinKey& key : {sample, accept}) {
      sequence->coins.push_back({key, random() % (uint64_t{1} << kCoinBits)});
    }
  }
  task.coins = sequence->coins.data();
  task.num_coins = static_cast<int32_t>(sequence->coins.size());
}

void RoundCase::FillEdits(Sequence* sequence) {
  Task& task = sequence->task;
  const size_t num_places = sequence->target_rows.size();
  if (task.method == VerifyMethod::kGreedy && task.kind == TaskKind::kVerify &&
      !task.scores.enabled && Chance(4)) {
    // Argmax ids in the place of rows: nothing can be done to rows that are not there.
    for (size_t i = 0; i < num_places; ++i) {
      sequence->target_argmax.push_back(Chance(8) ? kNoToken : LikelyId());
    }
    task.draft.target_argmax = sequence->target_argmax.data();
    task.target_filters = {};
    return;
  }
  if (Chance(2)) {
    sequence->edits = RandomEdits(options_.num_edits);
    task.edits.edits = sequence->edits.data();
    task.edits.num_edits = static_cast<int32_t>(sequence->edits.size());
    task.edits.penalties = {.repetition = Chance(2) ? 1.0f : options_.repetition,
                            .frequency = Chance(2) ? 0.0f : 0.7f,
                            .presence = Chance(2) ? 0.0f : -0.3f};
  }
  if (Chance(6)) task.edits.allowed = mask_words_.data();
  task.draft_edits = options_.draft_kind != RowKind::kFinalProbabilities && Chance(4);
  if (Chance(4)) return;
  sequence->overrides.resize(num_places);
  for (std::vector<TokenEdit>& overrides : sequence->overrides) {
    PlaceEdits place;
    if (Chance(2)) overrides = RandomEdits(4);
    place.overrides = overrides.data();
    place.num_overrides = static_cast<int32_t>(overrides.size());
    if (!Chance(2)) {
      const uint64_t drawn = random_();
      place.mask_row = static_cast<int32_t>(drawn % (Chance(4) ? kNumMasks : 3));
      // The same row as specd's own grammar would give it.
      if (options_.grammar_masks && (drawn >> 32) % 2 == 0) {
        const size_t stride = mask_words_.size() / kNumMasks;
        place.grammar_mask = mask_words_.data() + static_cast<size_t>(place.mask_row) * stride;
        place.mask_row = -1;
      }
    }
    place.below_min_tokens = Chance(3);
    place.forced = Chance(20) ? AnyId() : kNoToken;
    sequence->places.push_back(place);
  }
  task.places = sequence->places.data();
}

std::vector<TokenEdit> RoundCase::RandomEdits(int32_t count) {
  std::vector<TokenEdit> edits;
  for (int32_t i = 0; i < count; ++i) {
    TokenEdit edit;
    edit.id = Chance(2) ? LikelyId() : AnyId();
    edit.count = Chance(2) ? 0 : static_cast<uint32_t>(1 + random_() % 3);
    if (edit.count > 0 || Chance(3)) edit.flags |= kEditSeen;
    if (Chance(12)) edit.flags |= kEditDisallowed;
    if (Chance(6)) edit.flags |= kEditEnd;
    if (Chance(12)) edit.flags |= kEditBanned;
    if (Chance(2)) edit.bias = static_cast<float>(random_() % 17) / 4 - 2;
    edits.push_back(edit);
  }
  const auto by_id = [](const TokenEdit& a, const TokenEdit& b) { return a.id < b.id; };
  std::stable_sort(edits.begin(), edits.end(), by_id);
  const auto same_id = [](const TokenEdit& a, const TokenEdit& b) { return a.id == b.id; };
  edits.erase(std::unique(edits.begin(), edits.end(), same_id), edits.end());
  return edits;
}

Filters RoundCase::RandomFilters() {
  Filters filters;
  constexpr double kMinP[] = {0.001, 0.05, 0.5};
  constexpr double kTopP[] = {0.1, 0.6, 0.95, 0.9999};
  const int32_t top_k[] = {1, 2, 3, 40, options_.vocab_size - 1};
  if (Chance(2)) filters.min_p = static_cast<float>(std::log2(kMinP[random_() % 3]));
  if (Chance(2)) filters.top_k = std::max(top_k[random_() % 5], 0);
  if (Chance(2)) filters.top_p = static_cast<uint64_t>(kTopP[random_() % 4] * 0x1p53);
  filters.joint = Chance(2);
  return filters;
}

RoundBatch RoundCase::All() {
  std::vector<int32_t> places(sequences_.size());
  std::iota(places.begin(), places.end(), 0);
  return Some(places);
}

RoundBatch RoundCase::Some(const std::vector<int32_t>& places) {
  tasks_.clear();
  for (const int32_t place : places) tasks_.push_back(sequences_[place].task);
  const int32_t stride = options_.max_draft + 1;
  outcomes_.assign(places.size(), TaskOutcome{});
  tokens_.assign(places.size() * stride, -7);
  path_.assign(tokens_.size(), -7);
  scores_.assign(tokens_.size() * kScoresStride, TokenScore{-7, -7, -7});
  samples_.assign(places.size() * kChildren, DraftSample{-7, 7, -7, DraftKind::kOneHot, -7});
  ClearSlotOutputs();
  const auto mask_stride = static_cast<int64_t>(mask_words_.size()) / kNumMasks;
  return {.target = target_.view(),
          .draft = draft_view(),
          .tasks = tasks_.data(),
          .num_tasks = static_cast<int32_t>(tasks_.size()),
          .outcomes = outcomes_.data(),
          .tokens = tokens_.data(),
          .path = path_.data(),
          .tokens_stride = stride,
          .mask = {mask_words_.data(), kNumMasks, mask_stride},
          .scores = scores_.data(),
          .scores_stride = kScoresStride,
          .samples = samples_.data(),
          .samples_stride = kChildren,
          .slot_outputs = slot_outputs_,
          .num_slot_outputs = kNumSlotOutputs};
}

void RoundCase::ClearSlotOutputs() {
  const int32_t num_places = options_.max_draft + 1;
  for (int32_t i = 0; i < kNumSlotOutputs; ++i) {
    SlotOutput& output = slot_outputs_[i];
    output.field = static_cast<SlotField>(i / 2);
    const bool has_tokens = output.field == SlotField::kKeptTokens ||
                            output.field == SlotField::kPredicts ||
                            output.field == SlotField::kAcceptIndex;
    output.row_length = has_tokens ? num_places : 1;
    if (output.field == SlotField::kAcceptedPath) output.row_length = options_.max_draft;
    output.is_wide = i % 2 == 1 && output.field != SlotField::kNextToken;
    output.row_stride = output.row_length + (output.is_wide ? 2 : 0);
    output.num_nodes = num_places;
    const int64_t num_slots = 2 * static_cast<int64_t>(sequences_.size()) + 1;
    const int64_t words = num_slots * output.row_stride * ElementBytes(output) / 4;
    slot_memory_[i].assign(static_cast<size_t>(words), kUnwritten);
    output.data = slot_memory_[i].data();
  }
}

std::vector<TokenId> RoundCase::tokens(int32_t i) const {
  if (tasks_[i].kind != TaskKind::kVerify) return {};
  const int64_t first = int64_t{i} * (options_.max_draft + 1);
  return {tokens_.begin() + first, tokens_.begin() + first + outcomes_[i].num_tokens};
}

std::string RoundCase::answer(int32_t i) const {
  const Task& task = tasks_[i];
  const TaskOutcome& outcome = outcomes_[i];
  std::string text = fmt::format(
      "task {} method {}: status {} accepted {} of {} tokens {} empty residuals {} invalid drafts "
      "{} point masses {} fault {};",
      static_cast<int>(task.kind), static_cast<int>(task.method), static_cast<int>(outcome.status),
      outcome.num_accepted, outcome.num_drafts, outcome.num_tokens, outcome.empty_residuals,
      outcome.invalid_drafts, outcome.point_masses, static_cast<int>(outcome.fault));
  for (const TokenId token : tokens(i)) text += fmt::format(" {}", token);
  for (int32_t node = 0; node < outcome.num_accepted; ++node) {
    const int64_t first = int64_t{i} * (options_.max_draft + 1);
    text += fmt::format(" node {}", path_[static_cast<size_t>(first + node)]);
  }
  for (int32_t output = 0; output < kNumSlotOutputs; ++output) {
    const SlotOutput& of = slot_outputs_[output];
    text += fmt::format(" {}:", output);
    const int64_t words = of.row_length * ElementBytes(of) / 4;
    const int64_t first = task.slot * of.row_stride * ElementBytes(of) / 4;
    for (int64_t word = 0; word < words; ++word) {
      text += fmt::format(" {}", slot_memory_[output][static_cast<size_t>(first + word)]);
    }
  }
  if (task.kind == TaskKind::kSampleDraft) {
    for (int32_t child = 0; child < outcome.num_tokens; ++child) {
      const DraftSample& sample = samples_[int64_t{i} * kChildren + child];
      text += fmt::format(" child {} x {} weight {:a} mass {:a} kind {};", sample.id, sample.count,
                          sample.weight, sample.mass, static_cast<int>(sample.kind));
    }
    return text;
  }
  for (int32_t token = 0; token < outcome.num_tokens; ++token) {
    const int64_t first = (int64_t{i} * (options_.max_draft + 1) + token) * kScoresStride;
    for (int32_t n = 0; n < NumScores(task.scores); ++n) {
      const TokenScore& score = scores_[first + n];
      text += fmt::format(" score {} {:a} rank {};", score.id, score.value, score.rank);
    }
  }
  return text;
}

}  // namespace specd
