#include "kernels/answer_check.h"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend_registry.h"
#include "kernels/core/round.h"
#include "kernels/cpu/cpu_backend.h"

namespace specd {
namespace {

constexpr int32_t kVocab = 5;

using Bend = std::function<void(const RoundBatch&)>;

// A backend from outside: the CPU runs the rounds, and a test bends the answers.
class BentBackend final : public Backend {
 public:
  explicit BentBackend(const Bend* bend) : bend_(*bend) {}
  std::string_view name() const override { return "bent"; }
  absl::Status Prepare(const BackendLimits& limits) override { return cpu_->Prepare(limits); }
  absl::Status Run(const RoundBatch& batch) override {
    absl::Status status = cpu_->Run(batch);
    if (bend_) bend_(batch);
    return status;
  }
  absl::Status WriteSlotOutputs(const RoundBatch& batch) override {
    return cpu_->WriteSlotOutputs(batch);
  }
  absl::Status Stage(const RoundBatch& batch) override {
    staged_ = batch;
    return Run(batch);
  }
  absl::StatusOr<bool> Collect() override {
    if (bend_) bend_(staged_);
    return true;
  }
  absl::Status Transform(const TransformBatch& batch) override {
    absl::Status status = cpu_->Transform(batch);
    batch.statuses[0] = OutcomeStatus::kBadDraftRow;
    return status;
  }

 private:
  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend();
  const Bend& bend_;
  RoundBatch staged_;
};

// A round of a draft with one token, three scores for each token and records of its places, a score
// call, and two draft tokens, over rows in which the id 1 is the best.
class Round {
 public:
  Round() {
    REQUIRE(
        registry_
            .Register(
                {.name = "bent",
                 .make = [this](const BackendOptions&) -> absl::StatusOr<std::unique_ptr<Backend>> {
                   return std::make_unique<BentBackend>(&bend);
                 }})
            .ok());
    absl::StatusOr<std::unique_ptr<Backend>> made = registry_.Make("bent");
    REQUIRE(made.ok());
    backend = *std::move(made);
    REQUIRE(backend->Prepare({.vocab_size = kVocab, .max_batch = 3, .max_draft = 1}).ok());
    tasks_[0].draft = {.num_nodes = 1, .tokens = &draft_, .target_rows = rows_.data()};
    tasks_[0].scores = {.enabled = true, .num_top = 1, .chosen = &chosen_, .num_chosen = 1};
    tasks_[1] = tasks_[0];
    tasks_[1].kind = TaskKind::kScore;
    tasks_[1].target_scale = 1;
    tasks_[2].kind = TaskKind::kSampleDraft;
    tasks_[2].draft.target_rows = rows_.data();
    tasks_[2].target_scale = 1;
    tasks_[2].sampling = DraftSampling::kTopK;
    tasks_[2].num_children = 2;
    batch.target = {.data = logits_.data(),
                    .dtype = DType::kFloat32,
                    .num_rows = 2,
                    .row_stride = kVocab,
                    .vocab_size = kVocab,
                    .rules = {}};
    batch.tasks = tasks_.data();
    batch.num_tasks = 3;
    batch.outcomes = outcomes_.data();
    batch.tokens = tokens_.data();
    batch.path = path_.data();
    batch.tokens_stride = 2;
    batch.scores = scores_.data();
    batch.scores_stride = 3;
    batch.samples = samples_.data();
    batch.samples_stride = 2;
    batch.decisions = decisions_.data();
    batch.decisions_stride = 2;
  }

  Bend bend;
  std::unique_ptr<Backend> backend;
  RoundBatch batch;

 private:
  const std::array<float, 10> logits_ = {1, 3, 2, 0, -1, 0, 5, 1, 2, 2};
  const std::array<uint32_t, 2> rows_ = {0, 1};
  const TokenId draft_ = 1;
  const TokenId chosen_ = 4;
  BackendRegistry registry_{{CpuBackendEntry()}};
  std::array<Task, 3> tasks_;
  std::array<TaskOutcome, 3> outcomes_;
  std::array<TokenId, 6> tokens_ = {};
  std::array<int32_t, 6> path_ = {};
  std::array<TokenScore, 18> scores_;
  std::array<DraftSample, 6> samples_;
  std::array<PlaceDecision, 6> decisions_;
};

struct WrongNumber {
  Bend bend;
  const char* text;  // of the error: the field, the value, the task and the range
};

TaskOutcome& Of(const RoundBatch& batch, int32_t task) { return batch.outcomes[task]; }

const std::vector<WrongNumber>& WrongNumbers() {
  static const std::vector<WrongNumber> wrong = {
      {[](const auto& b) { Of(b, 0).num_tokens = 7; },
       "num_tokens = 7 for task 0 of a round, outside 2 .. 2"},
      {[](const auto& b) { Of(b, 0).num_tokens = -1; }, "num_tokens = -1 for task 0"},
      {[](const auto& b) { Of(b, 0).num_accepted = 2; },
       "num_accepted = 2 for task 0 of a round, outside 0 .. 1"},
      {[](const auto& b) { Of(b, 0).num_accepted = -3; }, "num_accepted = -3"},
      {[](const auto& b) { Of(b, 0).status = static_cast<OutcomeStatus>(9); },
       "status = 9 for task 0 of a round, outside 0 .. 7"},
      {[](const auto& b) { Of(b, 0).fault = static_cast<RowFault>(6); }, "fault = 6"},
      {[](const auto& b) { Of(b, 0).status = OutcomeStatus::kNoRoom; },
       "num_tokens = 2 for task 0 of a round, outside 0 .. 0"},
      {[](const auto& b) { Of(b, 0).num_drafts = 65; }, "num_drafts = 65"},
      {[](const auto& b) { Of(b, 0).empty_residuals = 3; }, "empty_residuals = 3"},
      {[](const auto& b) { Of(b, 0).invalid_drafts = ~uint32_t{0}; },
       "invalid_drafts = 4294967295"},
      {[](const auto& b) { Of(b, 0).point_masses = 3; }, "point_masses = 3"},
      {[](const auto& b) { b.tokens[1] = 1 << 30; },
       "an id = 1073741824 for task 0 of a round, outside 0 .. 4"},
      {[](const auto& b) { b.tokens[0] = -5; }, "an id = -5"},
      {[](const auto& b) { b.tokens[0] = kVocab; }, "an id = 5"},
      {[](const auto& b) { b.path[0] = 1; },
       "a node of the path = 1 for task 0 of a round, outside 0 .. 0"},
      {[](const auto& b) { b.scores[0].id = 2; },
       "the id of a score = 2 for task 0 of a round, outside 1 .. 1"},
      {[](const auto& b) { b.scores[4].id = 5; },
       "the id of a score = 5 for task 0 of a round, outside -1 .. 4"},
      {[](const auto& b) { b.scores[5].id = -1; },
       "the id of a score = -1 for task 0 of a round, outside 4 .. 4"},
      {[](const auto& b) { b.scores[1].rank = 6; },
       "the rank of a score = 6 for task 0 of a round, outside 0 .. 5"},
      {[](const auto& b) { b.decisions[0].token = 6; }, "the id of a decision = 6"},
      {[](const auto& b) { Of(b, 1).num_tokens = 0; },
       "num_tokens = 0 for task 1 of a round, outside 1 .. 1"},
      {[](const auto& b) { Of(b, 2).num_tokens = 3; },
       "num_tokens = 3 for task 2 of a round, outside 0 .. 2"},
      {[](const auto& b) { b.samples[4].id = -2; }, "the id of a draft token = -2 for task 2"},
      {[](const auto& b) { b.samples[5].count = 0; },
       "the count of a draft token = 0 for task 2 of a round, outside 1 .. 2"},
      {[](const auto& b) { b.samples[5].kind = DraftKind::kSampledRest; },
       "the kind of a draft token = 2 for task 2 of a round, outside 0 .. 0"},
  };
  return wrong;
}

void CheckNamed(const absl::Status& status, const std::string& text) {
  CAPTURE(text);
  const std::string message(status.message());
  CAPTURE(message);
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK(message.find("backend \"bent\"") != std::string::npos);
  CHECK(message.find(text) != std::string::npos);
}

TEST_SUITE("unit") {
  TEST_CASE("answers: right ones of a backend from outside pass") {
    Round round;
    REQUIRE(round.backend->Run(round.batch).ok());
    CHECK(round.batch.outcomes[0].num_tokens == 2);  // the draft token 1, and 1 again
    CHECK(round.batch.tokens[1] == 1);
    CHECK(round.batch.outcomes[1].num_tokens == 1);
    CHECK(round.batch.outcomes[2].num_tokens == 2);
    CHECK(round.batch.samples[5].id == 2);  // the second best id of row 0
  }

  TEST_CASE("answers: bug: wrong numbers of a plugin indexed arrays and went out as tokens") {
    for (const WrongNumber& wrong : WrongNumbers()) {
      Round round;
      round.bend = wrong.bend;
      CheckNamed(round.backend->Run(round.batch), wrong.text);
    }
  }

  TEST_CASE("answers: those of a staged round are checked when it is collected") {
    Round round;
    round.batch.num_tasks = 1;
    REQUIRE(round.backend->Stage(round.batch).ok());
    const RoundBatch answers = round.batch;
    round.bend = [answers](const RoundBatch&) { answers.tokens[0] = -5; };
    CheckNamed(round.backend->Collect().status(), "an id = -5 for task 0");
    CheckNamed(round.backend->Collect().status(), "collected a round, and none was staged");
  }

  TEST_CASE("answers: no answer, and a task that is paused without end") {
    Round round;
    round.bend = [](const RoundBatch& batch) {
      if (batch.progress == nullptr) return;
      *batch.progress = PausedTask{};
      batch.progress->is_paused = true;
      batch.progress->has_begun = true;
    };
    round.batch.num_tasks = 1;
    PausedTask progress;
    round.batch.progress = &progress;
    round.batch.rows_max = 1;
    CHECK(round.backend->Run(round.batch).ok());
    CheckNamed(round.backend->Run(round.batch), "paused a task at place 0 a second time");
  }

  TEST_CASE("answers: the statuses of a transform") {
    Round round;
    std::array<float, kVocab> out;
    const RowTransform row{.row = 0, .scale = 1, .filters = {}, .out = out.data()};
    OutcomeStatus status = OutcomeStatus::kOk;
    CheckNamed(round.backend->Transform({round.batch.target, &row, 1, &status}),
               "status = 2 for row 0 of a transform");
  }
}

}  // namespace
}  // namespace specd
