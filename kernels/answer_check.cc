#include "kernels/answer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace specd {
namespace {

// The answer to one task. The first number that is out of range is its error.
class TaskAnswer {
 public:
  TaskAnswer(std::string_view backend, int32_t vocab_size, const RoundBatch& batch, int32_t index)
      : backend_(backend),
        batch_(batch),
        index_(index),
        task_(batch.tasks[index]),
        outcome_(batch.outcomes[index]),
        vocab_size_(std::min(vocab_size, batch.target.vocab_size)) {}

  absl::Status Check() {
    CheckOutcome();
    if (status_.ok()) CheckTokens();
    if (status_.ok()) CheckScores();
    if (status_.ok()) CheckDecisions();
    return std::move(status_);
  }

 private:
  // Whether a number is in its range.
  bool Holds(std::string_view field, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return true;
    if (status_.ok()) {
      status_ = absl::InternalError(
          fmt::format("backend \"{}\" answered {} = {} for task {} of a round, outside {} .. {}; "
                      "mend the backend, or use another --device",
                      backend_, field, value, index_, min, max));
    }
    return false;
  }

  int64_t NumNodes() const { return task_.draft.num_nodes; }

  void CheckOutcome() {
    const int64_t num_places = NumNodes() + 1;
    // After a status that does not exist the other numbers mean nothing.
    if (!Holds("status", static_cast<int64_t>(outcome_.status), 0,
               static_cast<int64_t>(OutcomeStatus::kMixedKinds))) {
      return;
    }
    Holds("fault", static_cast<int64_t>(outcome_.fault), 0,
          static_cast<int64_t>(RowFault::kChanged));
    Holds("num_drafts", outcome_.num_drafts, 0, NumNodes());
    Holds("empty_residuals", outcome_.empty_residuals, 0, num_places);
    Holds("invalid_drafts", outcome_.invalid_drafts, 0, num_places);
    CheckCounts();
    Holds("point_masses", outcome_.point_masses, 0, std::max(outcome_.num_tokens, 0));
  }

  void CheckCounts() {
    const bool is_ok = outcome_.status == OutcomeStatus::kOk;
    int64_t least = 0;
    int64_t most = 0;
    switch (task_.kind) {
      case TaskKind::kVerify:
        Holds("num_accepted", outcome_.num_accepted, 0, NumNodes());
        least = most = int64_t{outcome_.num_accepted} + (is_ok ? 1 : 0);
        break;
      case TaskKind::kScore:
        most = NumNodes();
        least = is_ok ? most : 0;
        break;
      case TaskKind::kSampleDraft:
        most = task_.num_children;
        break;
    }
    if (IsUndecided(outcome_.status)) least = most = 0;
    Holds("num_tokens", outcome_.num_tokens, least, most);
  }

  void CheckTokens() {
    if (task_.kind == TaskKind::kSampleDraft) return CheckSamples();
    for (int32_t i = 0; i < outcome_.num_tokens; ++i) {
      if (!Holds("an id", Tokens()[i], 0, vocab_size_ - 1)) return;
    }
    if (batch_.path == nullptr || task_.kind != TaskKind::kVerify) return;
    const int32_t* const path = batch_.path + int64_t{index_} * batch_.tokens_stride;
    for (int32_t i = 0; i < outcome_.num_accepted; ++i) {
      if (!Holds("a node of the path", path[i], 0, NumNodes() - 1)) return;
      const int32_t before = i == 0 ? kRoot : path[i - 1];
      if (task_.parents_by_slot) {  // only the backend knows them
        if (!Holds("a node of the path", path[i], before + 1, NumNodes() - 1)) return;
        continue;
      }
      if (!Holds("the parent of a node of the path", ParentOf(task_.draft, path[i]), before,
                 before)) {
        return;
      }
    }
  }

  void CheckSamples() {
    const DraftSample* const samples = batch_.samples + int64_t{index_} * batch_.samples_stride;
    for (int32_t i = 0; i < outcome_.num_tokens; ++i) {
      Holds("the id of a draft token", samples[i].id, 0, vocab_size_ - 1);
      Holds("the count of a draft token", samples[i].count, 1, task_.num_children);
      const auto kind = static_cast<int64_t>(KindOfChild(task_.sampling, task_.num_children, i));
      Holds("the kind of a draft token", static_cast<int64_t>(samples[i].kind), kind, kind);
    }
  }

  void CheckScores() {
    if (!task_.scores.enabled || task_.kind == TaskKind::kSampleDraft) return;
    const int32_t first_chosen = 1 + task_.scores.num_top;
    const int64_t first = int64_t{index_} * batch_.tokens_stride;
    for (int32_t token = 0; token < outcome_.num_tokens; ++token) {
      const TokenScore* const scores = batch_.scores + (first + token) * batch_.scores_stride;
      for (int32_t i = 0; i < NumScores(task_.scores); ++i) {
        TokenId least = kNoToken;  // a row may have fewer best ids than the request
        TokenId most = vocab_size_ - 1;
        if (i == 0) least = most = Tokens()[token];
        if (i >= first_chosen) least = most = task_.scores.chosen[i - first_chosen];
        if (!Holds("the id of a score", scores[i].id, least, most)) return;
        // Beside a point mass every id has score rank 2.
        Holds("the rank of a score", scores[i].rank, 0, std::max(vocab_size_, 2));
      }
    }
  }

  void CheckDecisions() {
    if (batch_.decisions == nullptr || task_.kind != TaskKind::kVerify) return;
    const PlaceDecision* const decisions =
        batch_.decisions + int64_t{index_} * batch_.decisions_stride;
    for (int32_t place = 0; place <= task_.draft.num_nodes; ++place) {
      if (!decisions[place].judged) continue;
      Holds("the id of a decision", decisions[place].token, kNoToken, vocab_size_ - 1);
    }
  }

  const TokenId* Tokens() const { return batch_.tokens + int64_t{index_} * batch_.tokens_stride; }

  const std::string_view backend_;
  const RoundBatch& batch_;
  const int32_t index_;
  const Task& task_;
  const TaskOutcome& outcome_;
  const int32_t vocab_size_;
  absl::Status status_;
};

class CheckedBackend final : public Backend {
 public:
  explicit CheckedBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  std::string_view name() const override { return backend_->name(); }
  std::string_view device_uuid() const override { return backend_->device_uuid(); }

  absl::Status Prepare(const BackendLimits& limits) override {
    vocab_size_ = limits.vocab_size;
    staged_.clear();
    for (int32_t i = 0; i < kStagedRoundsMax; ++i) {
      staged_.push_back({.tasks = std::vector<Task>(static_cast<size_t>(limits.max_batch))});
    }
    num_staged_ = 0;
    return backend_->Prepare(limits);
  }

  absl::Status Run(const RoundBatch& batch) override {
    // A plugin that leaves an answer out must not leave that of an earlier round.
    std::fill_n(batch.outcomes, batch.num_tasks, kNoAnswer);
    const PausedTask before = batch.progress != nullptr ? *batch.progress : PausedTask{};
    if (absl::Status status = backend_->Run(batch); !status.ok()) return status;
    if (batch.progress != nullptr && IsStuck(before, *batch.progress)) {
      return absl::InternalError(fmt::format(
          "backend \"{}\" paused a task at place {} a second time; mend the backend, or "
          "use another --device",
          name(), before.place));
    }
    return CheckAnswers(name(), vocab_size_, batch);
  }

  absl::Status WriteSlotOutputs(const RoundBatch& batch) override {
    return backend_->WriteSlotOutputs(batch);
  }
  absl::Status ReadDraftTokens(const TokenRows& rows,
                               std::span<const TokenRowRead> reads) override {
    return backend_->ReadDraftTokens(rows, reads);  // ids of the caller's, which the caller checks
  }
  absl::Status ReadDraftTokensEarly(const TokenRows& rows,
                                    std::span<const TokenRowRead> reads) override {
    return backend_->ReadDraftTokensEarly(rows, reads);
  }
  absl::Status MarkDrafts(void* stream) override { return backend_->MarkDrafts(stream); }
  absl::Status FollowStream(void* stream) override { return backend_->FollowStream(stream); }
  absl::StatusOr<const int32_t*> KeepColumns(std::span<const int32_t> columns) override {
    return backend_->KeepColumns(columns);
  }
  absl::Status ReadMemory(std::span<const MemoryRead> reads) override {
    return backend_->ReadMemory(reads);
  }
  absl::Status EnqueueStaged(void* stream, int32_t num_tasks) override {
    return backend_->EnqueueStaged(stream, num_tasks);
  }

  absl::Status Stage(const RoundBatch& batch) override {
    absl::Status status = backend_->Stage(batch);
    if (!status.ok()) return status;
    if (num_staged_ == kStagedRoundsMax) {
      return absl::InternalError(fmt::format(
          "backend \"{}\" staged a round beside {} others, and {} is the most; mend the backend",
          name(), num_staged_, kStagedRoundsMax));
    }
    Staged& staged = staged_[static_cast<size_t>((first_ + num_staged_++) % kStagedRoundsMax)];
    // The caller's tasks may be gone before the answers are here; the places for answers are not.
    std::copy_n(batch.tasks, batch.num_tasks, staged.tasks.begin());
    staged.batch = batch;
    staged.batch.tasks = staged.tasks.data();
    return status;
  }

  absl::StatusOr<bool> Collect() override {
    absl::StatusOr<bool> done = backend_->Collect();
    if (!done.ok() || !*done) return done;
    if (num_staged_ == 0) {
      return absl::InternalError(fmt::format(
          "backend \"{}\" collected a round, and none was staged; mend the backend", name()));
    }
    const Staged& staged = staged_[static_cast<size_t>(first_)];
    first_ = (first_ + 1) % kStagedRoundsMax;
    --num_staged_;
    if (absl::Status status = CheckAnswers(name(), vocab_size_, staged.batch); !status.ok()) {
      return status;
    }
    return true;
  }

  absl::Status Transform(const TransformBatch& batch) override {
    std::fill_n(batch.statuses, batch.num_rows, OutcomeStatus::kNoRoom);
    const absl::Status status = backend_->Transform(batch);
    return status.ok() ? CheckAnswers(name(), batch) : status;
  }

 private:
  // No right answer has it.
  static constexpr TaskOutcome kNoAnswer = {
      .status = OutcomeStatus::kOk, .num_accepted = -1, .num_tokens = -1};

  // A tree is walked with fewer looks at its nodes: each is entered once and falls once.
  static constexpr int32_t kLooksMax = 4 * (kNodesMax + 1);

  // The caller would run such a task again without end.
  static bool IsStuck(const PausedTask& before, const PausedTask& after) {
    return before.has_begun && after.is_paused && before.phase == after.phase &&
           before.place == after.place &&
           (after.num_looks <= before.num_looks || after.num_looks > kLooksMax);
  }

  struct Staged {
    RoundBatch batch = {};
    std::vector<Task> tasks = {};
  };

  const std::unique_ptr<Backend> backend_;
  int32_t vocab_size_ = 0;
  std::vector<Staged> staged_;  // a ring
  int32_t first_ = 0;
  int32_t num_staged_ = 0;
};

}  // namespace

absl::Status CheckAnswers(std::string_view backend, int32_t vocab_size, const RoundBatch& batch) {
  if (batch.progress != nullptr && batch.progress->is_paused) return absl::OkStatus();
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    absl::Status status = TaskAnswer(backend, vocab_size, batch, i).Check();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckAnswers(std::string_view backend, const TransformBatch& batch) {
  for (int32_t i = 0; i < batch.num_rows; ++i) {
    const OutcomeStatus status = batch.statuses[i];
    if (status == OutcomeStatus::kOk || status == OutcomeStatus::kBadTargetRow) continue;
    return absl::InternalError(fmt::format(
        "backend \"{}\" answered status = {} for row {} of a transform, which is neither {} nor "
        "{}; mend the backend, or use another device",
        backend, static_cast<int64_t>(status), i, static_cast<int64_t>(OutcomeStatus::kOk),
        static_cast<int64_t>(OutcomeStatus::kBadTargetRow)));
  }
  return absl::OkStatus();
}

std::unique_ptr<Backend> WithCheckedAnswers(std::unique_ptr<Backend> backend) {
  return std::make_unique<CheckedBackend>(std::move(backend));
}

}  // namespace specd
