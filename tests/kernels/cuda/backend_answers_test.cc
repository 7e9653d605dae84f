// Rounds whose answers can be worked out by hand, one for each field of Task and RoundBatch. They
// run on the CPU and on the emulated device. If a field is not carried over to the device, a test
// here names it.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr float kLog2OfE = 0x1.715476p+0f;
constexpr int32_t kMaxDraft = 2;
constexpr int32_t kScoresStride = 6;
constexpr int32_t kSamplesStride = 3;
constexpr uint64_t kHalf = uint64_t{1} << 52;  // the coin 1/2

// Rounds over four ids, of one task and its twin, which must have the same answers.
class SmallRound {
 public:
  static constexpr int32_t kVocabSize = 4;

  SmallRound() : target_(Four()), draft_(Four()) {
    for (int row = 0; row < 4; ++row) {
      target_.Set(row, {3, 2, 1, 0});
      draft_.Set(row, {0, 0, 0, 0});
    }
    task.target_scale = task.draft_scale = kLog2OfE;
    task.draft.tokens = drafts;
    task.draft.kinds = kinds;
    task.draft.target_rows = rows;
    task.draft.draft_rows = rows;
    task.places = places;
    batch.mask = {masks, 3, 2};
    batch.tokens_stride = kTokensStride;
    batch.scores_stride = kScoresStride;
    batch.samples_stride = kSamplesStride;
  }

  void SetTarget(int row, const std::vector<double>& logits) { target_.Set(row, logits); }
  void SetDraft(int row, const std::vector<double>& logits) { draft_.Set(row, logits); }
  void SetDrafts(const std::vector<TokenId>& ids, DraftKind kind) {
    task.draft.num_nodes = static_cast<int32_t>(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      drafts[i] = ids[i];
      kinds[i] = kind;
    }
  }

  // The confirmed tokens of both backends, which must be the same.
  std::vector<TokenId> Run() {
    const auto cpu = std::make_unique<CpuBackend>(CpuTarget::kBaseline);
    const std::vector<TokenId> expected = RunOn(*cpu);
    const std::vector<TokenScore> expected_scores(scores, scores + std::size(scores));
    FakeGpu gpu;
    CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), 1 << 20);
    const std::vector<TokenId> result = RunOn(cuda);
    CHECK(result == expected);
    for (size_t i = 0; i < expected_scores.size(); ++i) {
      CHECK(BitsOf(scores[i].value) == BitsOf(expected_scores[i].value));
    }
    return result;
  }

  Task task;
  TokenId drafts[kMaxDraft] = {};
  DraftKind kinds[kMaxDraft] = {};
  uint32_t rows[kMaxDraft + 1] = {2, 0, 3};
  PlaceEdits places[kMaxDraft + 1];
  // Rows of two words; the second is never read.
  uint32_t masks[6] = {0b0001, ~0u, 0b0010, ~0u, 0b1000, ~0u};
  RoundBatch batch;
  ElementRules target_rules;

  static constexpr int32_t kTokensStride = kMaxDraft + 2;
  TaskOutcome outcomes[2];
  const TaskOutcome& outcome = outcomes[0];
  TokenId tokens[2 * kTokensStride];
  TokenScore scores[2 * kTokensStride * kScoresStride];
  DraftSample samples[2 * kSamplesStride];

 private:
  static RowMatrix::Options Four() { return {.vocab_size = kVocabSize, .num_rows = 4}; }

  std::vector<TokenId> RunOn(Backend& backend) {
    REQUIRE(backend.Prepare({kVocabSize, 2, kMaxDraft}).ok());
    const Task tasks[] = {task, task};
    std::fill(std::begin(outcomes), std::end(outcomes), TaskOutcome{});
    std::fill(std::begin(tokens), std::end(tokens), -7);
    std::fill(std::begin(scores), std::end(scores), TokenScore{-7, -7, -7});
    std::fill(std::begin(samples), std::end(samples),
              DraftSample{-7, 7, -7, DraftKind::kOneHot, -7});
    batch.target = target_.view();
    batch.target.rules = target_rules;
    batch.draft = draft_.view();
    batch.tasks = tasks;
    batch.num_tasks = 2;
    batch.outcomes = outcomes;
    batch.tokens = tokens;
    batch.scores = scores;
    batch.samples = samples;
    const absl::Status status = backend.Run(batch);
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    CHECK(outcomes[1].status == outcome.status);
    CHECK(std::equal(tokens, tokens + kTokensStride, tokens + kTokensStride));
    for (int i = 0; i < kTokensStride * kScoresStride; ++i) {
      CHECK(scores[i].id == scores[kTokensStride * kScoresStride + i].id);
    }
    for (int i = 0; i < kSamplesStride; ++i) {
      CHECK(samples[i].id == samples[kSamplesStride + i].id);
    }
    if (task.kind != TaskKind::kVerify) return {};
    CHECK(tokens[outcome.num_tokens] == -7);
    return {tokens, tokens + outcome.num_tokens};
  }

  RowMatrix target_;
  RowMatrix draft_;
};

using Tokens = std::vector<TokenId>;

TEST_SUITE("unit") {
  TEST_CASE("edits of a sequence hold at every place, and an override stands in for one") {
    SmallRound round;
    const TokenEdit edits[] = {{.id = 0, .flags = kEditDisallowed}, {.id = 3, .bias = 2.5f}};
    round.task.edits.edits = edits;
    round.task.edits.num_edits = 2;
    round.SetDrafts({3}, DraftKind::kOneHot);
    // -inf, 2, 1, 2.5 twice.
    CHECK(round.Run() == Tokens{3, 3});
    const TokenEdit override_of_3[] = {{.id = 3, .bias = 1}};
    round.places[1].overrides = override_of_3;
    round.places[1].num_overrides = 1;
    CHECK(round.Run() == Tokens{3, 1});
  }

  TEST_CASE("penalties count what edits say") {
    SmallRound round;
    const TokenEdit edits[] = {{.id = 0, .flags = kEditSeen, .count = 2}};
    round.task.edits.edits = edits;
    round.task.edits.num_edits = 1;
    round.task.edits.penalties = {.repetition = 1.5f};
    CHECK(round.Run() == Tokens{0});  // 3 / 1.5 = 2 and 2: the lower id
    round.task.edits.penalties = {.frequency = 0.75f};
    CHECK(round.Run() == Tokens{1});  // 3 - 1.5 and 2
    round.task.edits.penalties = {.presence = 1.5f};
    CHECK(round.Run() == Tokens{1});
  }

  TEST_CASE("the allowed ids, and the mask row of each place") {
    SmallRound round;
    const uint32_t allowed[] = {0b1100};
    round.task.edits.allowed = allowed;
    CHECK(round.Run() == Tokens{2});
    round.task.edits.allowed = nullptr;
    round.places[0].mask_row = 2;
    round.places[1].mask_row = 1;
    round.SetDrafts({3, 1}, DraftKind::kOneHot);
    CHECK(round.Run() == Tokens{3, 1, 0});
    round.places[2].mask_row = 2;
    CHECK(round.Run() == Tokens{3, 1, 3});
    round.task.places = nullptr;
    CHECK(round.Run() == Tokens{0});
    CHECK(round.outcome.invalid_drafts == 0);
  }

  TEST_CASE("min_tokens keeps end ids away, and a forced token wins") {
    SmallRound round;
    const TokenEdit edits[] = {{.id = 0, .flags = kEditEnd}};
    round.task.edits.edits = edits;
    round.task.edits.num_edits = 1;
    CHECK(round.Run() == Tokens{0});
    round.places[0].below_min_tokens = true;
    CHECK(round.Run() == Tokens{1});
    round.places[0].forced = 2;
    CHECK(round.Run() == Tokens{2});
  }

  TEST_CASE("argmax ids in the place of rows") {
    SmallRound round;
    const TokenId argmax[] = {2, 1, 3};
    round.task.draft.target_argmax = argmax;
    round.task.draft.target_rows = nullptr;
    round.task.places = nullptr;
    round.SetDrafts({2, 1}, DraftKind::kOneHot);
    CHECK(round.Run() == Tokens{2, 1, 3});
    round.SetDrafts({2, 3}, DraftKind::kOneHot);
    CHECK(round.Run() == Tokens{2, 1});
  }

  // Over a flat row a coin u gives id floor(4 u); after top_k = 2, of ids 0 and 1, floor(2 u).
  TEST_CASE("injected coins and filters") {
    SmallRound round;
    round.task.method = VerifyMethod::kExactMatch;
    round.task.first_position = 17;
    round.SetTarget(2, {1, 1, 1, 1});
    InjectedCoin coin{SampleCoin(17), kHalf};
    round.task.coins = &coin;
    round.task.num_coins = 1;
    CHECK(round.Run() == Tokens{2});
    coin.coin = kHalf - 1;
    CHECK(round.Run() == Tokens{1});
    round.task.target_filters.top_k = 2;
    CHECK(round.Run() == Tokens{0});
    coin.coin = kHalf;
    CHECK(round.Run() == Tokens{1});
    round.task.target_filters = {.top_p = kTopPOff / 2};  // two of four equal ones reach 1/2
    CHECK(round.Run() == Tokens{1});
  }

  // p is flat: 1/4 each. The side channel says q(0) = 1/2, the row says q(0) = 1/4: a coin of 0.6
  // is accepted below p/q = 1 only.
  TEST_CASE("the side channel speaks for the draft row") {
    SmallRound round;
    round.task.method = VerifyMethod::kToken;
    round.SetTarget(2, {1, 1, 1, 1});
    round.SetDrafts({0}, DraftKind::kSampled);
    InjectedCoin coin{{0, 0, 1, Purpose::kAccept}, kHalf / 10 * 12};
    round.task.coins = &coin;
    round.task.num_coins = 1;
    round.Run();
    CHECK(round.outcome.num_accepted == 1);
    const float weight = 0.75f;
    const double mass = 1.5;
    round.task.draft.draft_weights = &weight;
    round.task.draft.draft_masses = &mass;
    round.Run();
    CHECK(round.outcome.num_accepted == 0);
  }

  // Filters that the drafter declares: with top_k = 1, q(0) = 1 and not 1/4.
  TEST_CASE("the draft's filters and scale") {
    SmallRound round;
    round.task.method = VerifyMethod::kToken;
    round.SetTarget(2, {1, 1, 1, 1});
    round.SetDrafts({0}, DraftKind::kSampled);
    InjectedCoin coin{{0, 0, 1, Purpose::kAccept}, kHalf};
    round.task.coins = &coin;
    round.task.num_coins = 1;
    round.Run();
    CHECK(round.outcome.num_accepted == 1);
    round.task.draft_filters.top_k = 1;
    round.Run();
    CHECK(round.outcome.num_accepted == 0);
    // ln 3 above the others at temperature 1: q(0) = 1/2; at temperature 1e3: about 1/4.
    round.task.draft_filters = {};
    round.SetDraft(2, {std::log(3.0), 0, 0, 0});
    coin.coin = kHalf / 10 * 12;
    round.Run();
    CHECK(round.outcome.num_accepted == 0);
    round.task.draft_scale = kLog2OfE / 1000;
    round.Run();
    CHECK(round.outcome.num_accepted == 1);
  }

  TEST_CASE("scores of a token, the best and the chosen") {
    SmallRound round;
    round.SetTarget(2, {std::log(4.0), std::log(2.0), 0, 0});  // p = 1/2, 1/4, 1/8, 1/8
    round.SetDrafts({1}, DraftKind::kOneHot);
    round.task.kind = TaskKind::kScore;
    round.rows[1] = 1u << 30;  // every token has a row, and there is none after the last
    const TokenId chosen[] = {3, 0};
    round.task.scores = {.enabled = true, .num_top = 2, .chosen = chosen, .num_chosen = 2};
    round.Run();
    CHECK(round.outcome.num_tokens == 1);
    const TokenId ids[] = {1, 0, 1, 3, 0};
    const double p[] = {0.25, 0.5, 0.25, 0.125, 0.5};
    const int32_t ranks[] = {2, 1, 2, 3, 1};
    for (int i = 0; i < 5; ++i) {
      CHECK(round.scores[i].id == ids[i]);
      CHECK(round.scores[i].value == doctest::Approx(std::log(p[i])).epsilon(1e-6));
      CHECK(round.scores[i].rank == ranks[i]);
    }
    CHECK(round.scores[5].id == -7);
    round.task.scores.mode = ScoreMode::kRawLogit;
    round.Run();
    CHECK(round.scores[0].value == static_cast<float>(RoundTo(DType::kFloat32, std::log(2.0))));
  }

  // A token that is masked was counted as scored, and the memory before it was read for its id.
  TEST_CASE("scoring ends at a token that the masks forbid") {
    SmallRound round;
    round.task.kind = TaskKind::kScore;
    round.SetDrafts({1, 0}, DraftKind::kOneHot);
    round.task.scores.enabled = true;
    round.places[0].mask_row = 0;
    round.Run();
    CHECK(round.outcome.status == OutcomeStatus::kBadToken);
    CHECK(round.outcome.num_tokens == 0);
    CHECK(round.scores[0].id == -7);
  }

  TEST_CASE("drafts that specd draws") {
    SmallRound round;
    round.task.kind = TaskKind::kSampleDraft;
    round.task.first_position = 5;
    round.task.round_base = 4;
    round.task.first_node = 7;
    round.task.num_children = 2;
    round.SetTarget(2, {std::log(3.0), 0, 0, 0});  // 1/2, 1/6, 1/6, 1/6
    round.task.sampling = DraftSampling::kTopK;
    round.Run();
    REQUIRE(round.outcome.num_tokens == 2);
    CHECK(round.samples[0].id == 0);
    CHECK(round.samples[1].id == 1);
    CHECK(round.samples[1].weight / round.samples[1].mass == doctest::Approx(1.0 / 6));
    CHECK(round.samples[2].id == -7);
    // Two coins of 0: the same id twice, or it and the next.
    const InjectedCoin coins[] = {{{5, 4, 7, Purpose::kDraft}, 0}, {{5, 4, 8, Purpose::kDraft}, 0}};
    round.task.coins = coins;
    round.task.num_coins = 2;
    round.task.sampling = DraftSampling::kWithReplacement;
    round.Run();
    REQUIRE(round.outcome.num_tokens == 1);
    CHECK(round.samples[0].id == 0);
    CHECK(round.samples[0].count == 2);
    round.task.sampling = DraftSampling::kWithoutReplacement;
    round.Run();
    REQUIRE(round.outcome.num_tokens == 2);
    CHECK(round.samples[1].id == 1);
  }

  TEST_CASE("the rules of a tensor: kinds of probabilities, scale and cap") {
    SmallRound round;
    round.target_rules.scale = -1;
    CHECK(round.Run() == Tokens{3});
    round.target_rules = {.cap = 2};
    round.SetDrafts({1}, DraftKind::kOneHot);
    round.task.kind = TaskKind::kScore;
    round.task.scores = {.enabled = true, .mode = ScoreMode::kRawLogit};
    round.Run();
    CHECK(round.scores[0].value == doctest::Approx(2 * std::tanh(1.0)).epsilon(1e-6));
    // 1/8, 1/4, 1/2, 1/8: the coin 1/5 is in the second interval. As logits they are nearly flat.
    SmallRound drawn;
    drawn.task.method = VerifyMethod::kExactMatch;
    drawn.SetTarget(2, {0.125, 0.25, 0.5, 0.125});
    const InjectedCoin coin{SampleCoin(0), kHalf / 5 * 2};
    drawn.task.coins = &coin;
    drawn.task.num_coins = 1;
    CHECK(drawn.Run() == Tokens{0});
    drawn.target_rules.kind = RowKind::kProbabilities;
    CHECK(drawn.Run() == Tokens{1});
    drawn.target_rules.kind = RowKind::kFinalProbabilities;
    drawn.task.places = nullptr;
    CHECK(drawn.Run() == Tokens{1});
  }

  // Every id is as likely as the others, so a list of the most likely is one of the lowest ids.
  TEST_CASE("the best of a row with more equal elements than a list holds") {
    constexpr int32_t kVocabSize = 3 * kTileSize;
    RowMatrix matrix({.vocab_size = kVocabSize, .num_rows = 1});
    matrix.Set(0, std::vector<double>(kVocabSize, -2.0));
    const TokenId token = 4000;
    const uint32_t row = 0;
    Task task;
    task.kind = TaskKind::kScore;
    task.draft.num_nodes = 1;
    task.draft.tokens = &token;
    task.draft.target_rows = &row;
    task.scores = {.enabled = true, .num_top = 3};
    TaskOutcome outcome;
    TokenId out[2];
    TokenScore scores[2 * 4];
    RoundBatch batch;
    batch.target = matrix.view();
    batch.tasks = &task;
    batch.num_tasks = 1;
    batch.outcomes = &outcome;
    batch.tokens = out;
    batch.tokens_stride = 2;
    batch.scores = scores;
    batch.scores_stride = 4;
    CpuBackend cpu(CpuTarget::kBaseline);
    FakeGpu gpu;
    CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), 1 << 20);
    for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&cuda)}) {
      REQUIRE(backend->Prepare({kVocabSize, 1, 1}).ok());
      REQUIRE(backend->Run(batch).ok());
      const TokenId ids[] = {4000, 0, 1, 2};
      for (int i = 0; i < 4; ++i) {
        CHECK(scores[i].id == ids[i]);
        CHECK(scores[i].rank == 1);
        CHECK(scores[i].value == doctest::Approx(-std::log(kVocabSize)).epsilon(1e-6));
      }
    }
  }
}

}  // namespace
}  // namespace specd
