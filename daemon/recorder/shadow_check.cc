#include "daemon/recorder/shadow_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "daemon/recorder/copied_rows.h"

namespace specd {
namespace {

// The place of a row among those of its tensor; 0 for a row that was not recorded, which no method
// reads.
uint32_t CompactIndex(std::span<const RowCopy> rows, uint32_t row) {
  return FindRow(rows, row).value_or(0);
}

// True if every row that the CPU would read was recorded.
bool HasNeededRows(const RoundCopy& round, const TaskCopy& copy) {
  const Task& task = copy.task;
  const Draft& draft = task.draft;
  const std::span<const RowCopy> target = RowsOf(round, TraceTensor::kTarget);
  const std::span<const RowCopy> drafts = RowsOf(round, TraceTensor::kDraft);
  const std::span<const RowCopy> masks = RowsOf(round, TraceTensor::kMask);
  const bool reads_drafts = ReadsDraftRows(task.method);
  const int32_t num_read = NumReadPlaces(task, copy.outcome);
  for (int32_t i = 0; i <= draft.num_nodes; ++i) {
    const bool is_read = i < num_read;
    if (draft.target_rows != nullptr &&
        (target.empty() || (is_read && !FindRow(target, draft.target_rows[i])))) {
      return false;
    }
    if (task.places != nullptr && task.places[i].mask_row >= 0) {
      const uint32_t row = task.places[i].mask_row;
      if (masks.empty() || (is_read && !FindRow(masks, row))) return false;
    }
    const bool has_sampled = i < draft.num_nodes && IsDrawn(draft, i);
    if (!reads_drafts || !has_sampled) continue;
    if (draft.draft_rows == nullptr || drafts.empty()) return false;
    const bool is_token = draft.tokens == nullptr || draft.tokens[i] != kNoToken;
    if (is_read && is_token && !FindRow(drafts, draft.draft_rows[i])) return false;
  }
  return true;
}

// The bytes between two rows of one tensor in the copy.
int64_t StrideBytes(std::span<const RowCopy> rows, uint64_t row_bytes) {
  return rows.size() < 2 ? static_cast<int64_t>(row_bytes) : rows[1].bytes - rows[0].bytes;
}

TensorView ViewOf(const TensorView& shape, std::span<const RowCopy> rows) {
  TensorView view = shape;
  view.data = rows.empty() ? nullptr : rows[0].bytes;
  view.num_rows = static_cast<int64_t>(rows.size());
  view.row_stride = StrideBytes(rows, RowBytes(shape)) / SizeBytes(shape.dtype);
  view.space = MemorySpace::kHost;
  return view;
}

bool SameScore(const TokenScore& a, const TokenScore& b) {
  return a.id == b.id && a.rank == b.rank &&
         std::bit_cast<uint32_t>(a.value) == std::bit_cast<uint32_t>(b.value);
}

bool SameOutcome(const TaskOutcome& a, const TaskOutcome& b) {
  return a.status == b.status && a.num_accepted == b.num_accepted && a.num_tokens == b.num_tokens &&
         a.num_drafts == b.num_drafts && a.empty_residuals == b.empty_residuals &&
         a.invalid_drafts == b.invalid_drafts && a.point_masses == b.point_masses &&
         a.fault == b.fault;
}

// Bits of every member, -0 and NaN included.
bool SameDecision(const PlaceDecision& a, const PlaceDecision& b) {
  const auto bits = [](const PlaceDecision& d) {
    return std::array{uint64_t{d.judged},
                      uint64_t{d.stands},
                      uint64_t{d.bad_target},
                      uint64_t{d.bad_draft},
                      uint64_t{static_cast<uint32_t>(d.token)},
                      uint64_t{std::bit_cast<uint32_t>(d.p_weight)},
                      uint64_t{std::bit_cast<uint32_t>(d.q_weight)},
                      std::bit_cast<uint64_t>(d.p_mass),
                      std::bit_cast<uint64_t>(d.q_mass),
                      d.accept_coin,
                      std::bit_cast<uint64_t>(d.prefix),
                      std::bit_cast<uint64_t>(d.bound),
                      d.draw_coin,
                      uint64_t{static_cast<uint32_t>(d.draw_purpose)},
                      d.draw_interval.low,
                      d.draw_interval.high,
                      std::bit_cast<uint64_t>(d.residual_mass),
                      uint64_t{std::bit_cast<uint32_t>(d.token_weight)},
                      uint64_t{static_cast<uint32_t>(d.zero_step)}};
  };
  return bits(a) == bits(b);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShadowCheck>> ShadowCheck::Create(const BackendLimits& asked) {
  BackendLimits limits = asked;
  limits.threads = 1;
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend("cpu");
  if (!backend.ok()) return backend.status();
  if (absl::Status status = (*backend)->Prepare(limits); !status.ok()) return status;
  return std::unique_ptr<ShadowCheck>(new ShadowCheck(limits, *std::move(backend)));
}

ShadowCheck::ShadowCheck(const BackendLimits& limits, std::unique_ptr<Backend> backend)
    : limits_(limits),
      backend_(std::move(backend)),
      num_places_(static_cast<size_t>(limits.max_draft) + 1) {}

bool ShadowCheck::AddTask(const RoundCopy& round, const TaskCopy& copy) {
  // Drafts that waited by slot are there if the processor kept a record. The CPU then resolves the
  // task as that processor did.
  const bool lacks_drafts = copy.task.draft.num_nodes > 0 && copy.task.draft.tokens == nullptr;
  if (copy.task.continues || lacks_drafts || !HasNeededRows(round, copy)) return false;
  const size_t first = tasks_.size() * num_places_;
  Task task = copy.task;
  task.slot = static_cast<uint32_t>(tasks_.size());
  const auto num_places = static_cast<size_t>(task.draft.num_nodes) + 1;
  const auto move_rows = [&](const uint32_t** rows, TraceTensor tensor, size_t count,
                             std::vector<uint32_t>* to) {
    if (*rows == nullptr) return;
    const std::span<const RowCopy> recorded = RowsOf(round, tensor);
    for (size_t i = 0; i < count; ++i) (*to)[first + i] = CompactIndex(recorded, (*rows)[i]);
    *rows = to->data() + first;
  };
  move_rows(&task.draft.target_rows, TraceTensor::kTarget, num_places, &target_rows_);
  move_rows(&task.draft.draft_rows, TraceTensor::kDraft, num_places - 1, &draft_rows_);
  if (task.places != nullptr) {
    const std::span<const RowCopy> masks = RowsOf(round, TraceTensor::kMask);
    const std::span<const RowCopy> grammar = RowsOf(round, TraceTensor::kGrammarMask);
    for (size_t i = 0; i < num_places; ++i) {
      PlaceEdits place = task.places[i];
      if (place.mask_row >= 0) {
        place.mask_row =
            static_cast<int32_t>(CompactIndex(masks, static_cast<uint32_t>(place.mask_row)));
      }
      const int32_t mask = copy.grammar_masks == nullptr ? -1 : copy.grammar_masks[i];
      if (mask >= 0) {
        place.grammar_mask = reinterpret_cast<const uint32_t*>(grammar[mask].bytes);
      }
      places_[first + i] = place;
    }
    task.places = places_.data() + first;
  }
  tasks_.push_back(task);
  recorded_.push_back(&copy);
  return true;
}

void ShadowCheck::MakeViews(const RoundCopy& round) {
  batch_ = RoundBatch{};
  batch_.target = ViewOf(round.target, RowsOf(round, TraceTensor::kTarget));
  batch_.draft = ViewOf(round.draft, RowsOf(round, TraceTensor::kDraft));
  const std::span<const RowCopy> masks = RowsOf(round, TraceTensor::kMask);
  if (!masks.empty()) {
    batch_.mask = {.words = reinterpret_cast<const uint32_t*>(masks[0].bytes),
                   .num_rows = static_cast<int64_t>(masks.size()),
                   .row_stride = StrideBytes(masks, MaskRowBytes(round.target.vocab_size)) /
                                 static_cast<int64_t>(sizeof(uint32_t))};
  }
}

std::string ShadowCheck::FindDifference(const RoundCopy& round) {
  tasks_.clear();
  recorded_.clear();
  const size_t room = round.tasks.size() * num_places_;
  target_rows_.resize(room);
  draft_rows_.resize(room);
  places_.resize(room);
  for (const TaskCopy& task : round.tasks) AddTask(round, task);
  if (tasks_.empty()) return {};
  MakeViews(round);
  const size_t stride = limits_.max_output();
  for (const Task& task : tasks_) {
    batch_.scores_stride = std::max(batch_.scores_stride, NumScores(task.scores));
  }
  outcomes_.assign(tasks_.size(), {});
  tokens_.assign(tasks_.size() * stride, kNoToken);
  path_.assign(tasks_.size() * stride, 0);
  scores_.assign(tasks_.size() * stride * static_cast<size_t>(batch_.scores_stride), {});
  decisions_.assign(tasks_.size() * num_places_, {});
  batch_.tasks = tasks_.data();
  batch_.num_tasks = static_cast<int32_t>(tasks_.size());
  batch_.outcomes = outcomes_.data();
  batch_.tokens = tokens_.data();
  batch_.path = path_.data();
  batch_.tokens_stride = static_cast<int32_t>(stride);
  batch_.scores = scores_.data();
  batch_.decisions = decisions_.data();
  batch_.decisions_stride = static_cast<int32_t>(num_places_);
  if (absl::Status status = backend_->Run(batch_); !status.ok()) {
    return fmt::format("the CPU could not run the round: {}", std::string(status.message()));
  }
  num_checked_ += tasks_.size();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const std::string difference = Compare(*recorded_[i], i);
    if (!difference.empty()) {
      const uint64_t sequence = round.answers[recorded_[i]->answer].sequence;
      return fmt::format("round {}, sequence {:#x}: {}", round.number, sequence, difference);
    }
  }
  return {};
}

std::string ShadowCheck::Compare(const TaskCopy& recorded, size_t task) const {
  const size_t first = task * static_cast<size_t>(batch_.tokens_stride);
  const TaskOutcome& outcome = outcomes_[task];
  if (!SameOutcome(recorded.outcome, outcome)) {
    return fmt::format(
        "{} accepted and {} tokens (status {}, fault {}), and the CPU has {} and {} ({}, {})",
        recorded.outcome.num_accepted, recorded.outcome.num_tokens,
        static_cast<int>(recorded.outcome.status), static_cast<int>(recorded.outcome.fault),
        outcome.num_accepted, outcome.num_tokens, static_cast<int>(outcome.status),
        static_cast<int>(outcome.fault));
  }
  const size_t num_tokens = outcome.num_tokens;
  for (size_t i = 0; i < num_tokens; ++i) {
    if (recorded.tokens[i] == tokens_[first + i]) continue;
    return fmt::format("token {} is {}, and the CPU has {}", i, recorded.tokens[i],
                       tokens_[first + i]);
  }
  const size_t per_token = NumScores(recorded.task.scores);
  for (size_t i = 0; recorded.scores != nullptr && i < num_tokens * per_token; ++i) {
    const size_t at =
        (first + i / per_token) * static_cast<size_t>(batch_.scores_stride) + i % per_token;
    if (SameScore(recorded.scores[i], scores_[at])) continue;
    return fmt::format("score {} of token {} differs", i % per_token, i / per_token);
  }
  // Another processor may keep no decisions.
  const auto num_places = static_cast<size_t>(recorded.task.draft.num_nodes) + 1;
  const bool has_decisions =
      recorded.decisions != nullptr &&
      std::any_of(recorded.decisions, recorded.decisions + num_places,
                  [](const PlaceDecision& decision) { return decision.judged; });
  for (size_t i = 0; has_decisions && i < num_places; ++i) {
    if (SameDecision(recorded.decisions[i], decisions_[task * num_places_ + i])) continue;
    return fmt::format("the decision at place {} differs", i);
  }
  return {};
}

}  // namespace specd
