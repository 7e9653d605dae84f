#include "kernels/cpu/cpu_backend.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/core/fp_environment.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/grid_size.h"
#include "tests/support/round_case.h"
#include "tests/support/rows.h"

namespace {
// Counts while a test asks for it. Everything in this binary allocates through here, the workers of
// a backend included.
std::atomic<bool> counting_allocations = false;
std::atomic<int> num_allocations = 0;
}  // namespace

// GCC warns of a free() of memory from operator new once both are inlined.
__attribute__((noinline)) void* operator new(size_t size) {
  if (counting_allocations) ++num_allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// The library's temporary buffers come this way, and go the way of all.
__attribute__((noinline)) void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (counting_allocations) ++num_allocations;
  return std::malloc(size);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace specd {
namespace {

constexpr RoundCase::Options kWhole{.vocab_size = kTileSize + 300,
                                    .batch = 64,
                                    .max_draft = 4,
                                    .dtype = DType::kBFloat16,
                                    .seed = 41,
                                    .grammar_masks = true};

std::unique_ptr<Backend> Prepared(const RoundCase::Options& options, CpuTarget target,
                                  int32_t threads = 1) {
  auto backend = std::make_unique<CpuBackend>(target);
  REQUIRE(backend->Prepare({options.vocab_size, 256, options.max_draft, threads}).ok());
  return backend;
}

std::vector<std::string> RunEach(Backend& backend, RoundCase& round) {
  const RoundBatch batch = round.All();
  REQUIRE(backend.Run(batch).ok());
  std::vector<std::string> answers;
  for (int32_t i = 0; i < batch.num_tasks; ++i) answers.push_back(round.answer(i));
  return answers;
}

std::vector<CpuTarget> SupportedTargets() {
  std::vector<CpuTarget> targets;
  for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2, CpuTarget::kAvx512}) {
    if (CpuTargetIsSupported(target)) targets.push_back(target);
  }
  return targets;
}

// The target's rows depend on the text. A drafter may propose any tokens.
enum class Drafter { kRandom, kPerfect, kAdversarial };

std::vector<TokenId> GenerateText(VerifyMethod method, int32_t num_drafts, Drafter drafter) {
  constexpr int32_t kVocabSize = 50;
  constexpr size_t kLength = 24;
  std::mt19937_64 rows_random(42);
  RowMatrix rows({.vocab_size = kVocabSize, .num_rows = kVocabSize + 1});
  for (int row = 0; row <= kVocabSize; ++row) rows.Set(row, RandomLogits(rows_random, kVocabSize));
  const auto row_after = [](TokenId token) { return uint32_t(token < 0 ? kVocabSize : token); };
  const auto plain = [&](TokenId before, size_t position) {
    ChainCase one(method, {}, DraftKind::kOneHot, row_after(before));
    one.task.first_position = static_cast<uint32_t>(position);
    return RunScalar(one.task, rows.view(), TensorView{}, KeyedCoins(43)).tokens[0];
  };
  std::mt19937_64 random(44);
  std::vector<TokenId> text;
  while (text.size() < kLength) {
    std::vector<TokenId> draft;
    std::vector<uint32_t> row_numbers{row_after(text.empty() ? -1 : text.back())};
    for (int32_t i = 0; i < num_drafts; ++i) {
      const TokenId before = i == 0 ? (text.empty() ? -1 : text.back()) : draft.back();
      const TokenId truth = plain(before, text.size() + i);
      const bool right =
          drafter == Drafter::kPerfect || (drafter == Drafter::kRandom && random() % 2 == 0);
      draft.push_back(right ? truth : (truth + 1) % kVocabSize);
      row_numbers.push_back(row_after(draft.back()));
    }
    ChainCase chain(method, draft, DraftKind::kOneHot);
    chain.task.draft.target_rows = row_numbers.data();
    chain.task.first_position = chain.task.round_base = static_cast<uint32_t>(text.size());
    const ChainResult result = RunScalar(chain.task, rows.view(), TensorView{}, KeyedCoins(43));
    REQUIRE(result.outcome.status == OutcomeStatus::kOk);
    if (drafter == Drafter::kPerfect) REQUIRE(result.outcome.num_accepted == num_drafts);
    if (drafter == Drafter::kAdversarial) REQUIRE(result.outcome.num_accepted == 0);
    text.insert(text.end(), result.tokens.begin(), result.tokens.end());
  }
  text.resize(kLength);
  return text;
}

TEST_SUITE("unit") {
  TEST_CASE("every compiled target gives the same outcomes") {
    for (const RowKind kind :
         {RowKind::kLogits, RowKind::kProbabilities, RowKind::kFinalProbabilities}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        if (kind != RowKind::kLogits && dtype != DType::kFloat32) continue;
        for (const int32_t vocab_size : {3, 257, 2 * kTileSize + 9}) {
          RoundCase::Options options = kWhole;
          options.dtype = dtype;
          options.vocab_size = vocab_size;
          options.target_kind = options.draft_kind = kind;
          options.scaled = kind == RowKind::kLogits && vocab_size > 300;
          options.batch = GridSize({.full = kWhole.batch, .sanitized = 8});
          CAPTURE(vocab_size);
          CAPTURE(static_cast<int>(kind));
          CAPTURE(static_cast<int>(dtype));
          RoundCase round(options);
          const auto baseline = RunEach(*Prepared(options, CpuTarget::kBaseline), round);
          for (const CpuTarget target : SupportedTargets()) {
            CAPTURE(static_cast<int>(target));
            const auto answers = RunEach(*Prepared(options, target), round);
            for (size_t i = 0; i < answers.size(); ++i) REQUIRE(answers[i] == baseline[i]);
          }
        }
      }
    }
  }

  TEST_CASE("the mixed round holds every kind of outcome") {
    RoundCase::Options options = kWhole;
    options.batch = 256;
    options.plain = true;
    RoundCase round(options);
    std::map<std::string, int> seen;
    RunEach(*Prepared(options, BestCpuTarget()), round);
    for (int32_t i = 0; i < options.batch; ++i) {
      const ChainResult result{round.outcome(i), round.tokens(i)};
      ++seen[result.outcome.status == OutcomeStatus::kOk             ? "ok"
             : result.outcome.status == OutcomeStatus::kBadTargetRow ? "bad target row"
                                                                     : "bad draft row"];
      if (result.outcome.num_accepted > 1) ++seen["several accepted"];
      if (result.outcome.invalid_drafts > 0) ++seen["invalid draft"];
      for (const TokenId token : result.tokens) {
        REQUIRE(token >= 0);
        REQUIRE(token < options.vocab_size);
      }
    }
    CHECK(seen["ok"] > 100);
    CHECK(seen["bad target row"] > 3);
    CHECK(seen["several accepted"] > 10);
    CHECK(seen["invalid draft"] > 3);
  }

  TEST_CASE("a sequence alone equals the sequence at any place of a batch of 256") {
    RoundCase::Options options = kWhole;
    options.vocab_size = 300;
    options.batch = 256;
    RoundCase round(options);
    for (const int32_t threads : {1, 3}) {
      CAPTURE(threads);
      const auto backend = Prepared(options, BestCpuTarget(), threads);
      const std::vector<std::string> together = RunEach(*backend, round);
      std::vector<int32_t> places(256);
      std::iota(places.begin(), places.end(), 0);
      std::mt19937_64 random(45);
      std::shuffle(places.begin(), places.end(), random);
      REQUIRE(backend->Run(round.Some(places)).ok());
      for (int32_t i = 0; i < 256; ++i) REQUIRE(round.answer(i) == together[places[i]]);
      for (int32_t i = 0; i < 256; ++i) {
        REQUIRE(backend->Run(round.Some({i})).ok());
        REQUIRE(round.answer(0) == together[i]);
      }
    }
  }

  // So large a vocabulary that even one row is shared by the workers.
  TEST_CASE("a round gives the same answers for any number of workers") {
    RoundCase::Options options = kWhole;
    options.vocab_size = 64 * kTileSize - 5;
    options.batch = 24;
    options.max_draft = 3;
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      if (kIsSanitized && dtype == DType::kFloat32) continue;
      options.dtype = dtype;
      RoundCase round(options);
      const auto expected = RunEach(*Prepared(options, BestCpuTarget()), round);
      for (const int32_t threads : {2, 3, 5, 8}) {
        if (kIsSanitized && threads != 3) continue;
        CAPTURE(threads);
        const auto backend = Prepared(options, BestCpuTarget(), threads);
        const auto answers = RunEach(*backend, round);
        for (size_t i = 0; i < answers.size(); ++i) REQUIRE(answers[i] == expected[i]);
        // Fewer tasks than workers, and one more.
        for (const std::vector<int32_t>& places :
             {std::vector<int32_t>{7}, {3, 11}, {0, 1, 2}, {23, 4, 9, 14, 2, 6}}) {
          REQUIRE(backend->Run(round.Some(places)).ok());
          for (size_t i = 0; i < places.size(); ++i) {
            CAPTURE(places[i]);
            REQUIRE(round.answer(static_cast<int32_t>(i)) == expected[places[i]]);
          }
        }
      }
    }
  }

  TEST_CASE("transformed rows are the same for any target and number of workers") {
    constexpr int32_t kVocabSize = 33 * kTileSize + 100;
    constexpr int32_t kNumRows = 5;
    std::mt19937_64 random(47);
    RowMatrix rows({.vocab_size = kVocabSize, .num_rows = kNumRows, .padding = 3});
    for (int32_t row = 0; row < kNumRows; ++row) {
      std::vector<double> logits = RandomLogits(random, kVocabSize);
      if (row == 2) logits[100] = NAN;
      if (row == 3) logits[kVocabSize - 1] = INFINITY;
      rows.Set(row, logits);
    }
    const auto transformed = [&](CpuTarget target, int32_t threads) {
      std::vector<float> out(size_t{kNumRows} * kVocabSize, 7.0f);
      std::vector<RowTransform> transforms(kNumRows);
      for (int32_t i = 0; i < kNumRows; ++i) {
        transforms[i].row = static_cast<uint32_t>(i);
        transforms[i].scale = 0.5f + 0.25f * static_cast<float>(i);
        if (i == 1) transforms[i].filters.top_k = 40;
        if (i == 4) transforms[i].filters.top_p = kTopPOff / 10 * 9;
        transforms[i].as_logits = i == 4;
        transforms[i].out = out.data() + int64_t{i} * kVocabSize;
      }
      std::vector<OutcomeStatus> statuses(kNumRows, OutcomeStatus::kBadToken);
      CpuBackend backend(target);
      REQUIRE(backend.Prepare({kVocabSize, 1, 0, threads}).ok());
      REQUIRE(backend.Transform({rows.view(), transforms.data(), kNumRows, statuses.data()}).ok());
      std::vector<uint32_t> bits;
      for (const OutcomeStatus status : statuses) bits.push_back(static_cast<uint32_t>(status));
      for (const float x : out) bits.push_back(BitsOf(x));
      return bits;
    };
    const std::vector<uint32_t> expected = transformed(CpuTarget::kBaseline, 1);
    CHECK(expected[0] == static_cast<uint32_t>(OutcomeStatus::kOk));
    CHECK(expected[2] == static_cast<uint32_t>(OutcomeStatus::kBadTargetRow));
    for (const CpuTarget target : SupportedTargets()) {
      for (const int32_t threads : {1, 2, 3, 8}) {
        CAPTURE(threads);
        // Not a comparison of vectors in the macro: it would print them.
        const bool equal = transformed(target, threads) == expected;
        REQUIRE(equal);
      }
    }
  }

  TEST_CASE("greedy and exact_match give the same text for every draft length and drafter") {
    for (const VerifyMethod method : {VerifyMethod::kGreedy, VerifyMethod::kExactMatch}) {
      const std::vector<TokenId> text = GenerateText(method, 0, Drafter::kRandom);
      for (int32_t num_drafts = 1; num_drafts <= 8; ++num_drafts) {
        for (const Drafter drafter : {Drafter::kRandom, Drafter::kPerfect, Drafter::kAdversarial}) {
          CAPTURE(num_drafts);
          CHECK(GenerateText(method, num_drafts, drafter) == text);
        }
      }
    }
  }

  TEST_CASE("a round allocates nothing") {
    RoundCase round(kWhole);
    for (const CpuTarget target : SupportedTargets()) {
      const auto backend = Prepared(kWhole, target, 3);
      const RoundBatch batch = round.All();
      num_allocations = 0;
      counting_allocations = true;
      const bool ok = backend->Run(batch).ok();
      counting_allocations = false;
      CHECK(ok);
      CHECK(num_allocations == 0);
    }
    counting_allocations = true;
    int* volatile counted = new int(1);
    counting_allocations = false;
    delete counted;
    CHECK(num_allocations == 1);
  }

#if defined(__x86_64__)
  TEST_CASE("flush-to-zero and another rounding mode change nothing and come back") {
    // Among 30,000 ids of like probability, the id that a coin falls on feels the last bits of the
    // masses before it.
    constexpr int32_t kVocabSize = 30000;
    constexpr int32_t kBatch = 128;
    std::mt19937_64 random(46);
    RowMatrix rows({.vocab_size = kVocabSize, .num_rows = 1});
    rows.Set(0, RandomLogits(random, kVocabSize, 0.1));
    ChainCase chain(VerifyMethod::kExactMatch, {}, DraftKind::kOneHot);
    std::vector<Task> tasks(kBatch, chain.task);
    for (Task& task : tasks) task.seed = random();
    std::vector<TaskOutcome> outcomes(kBatch);
    std::vector<TokenId> expected(kBatch);
    std::vector<TokenId> tokens(kBatch);
    RoundBatch batch;
    batch.target = rows.view();
    batch.tasks = tasks.data();
    batch.num_tasks = kBatch;
    batch.outcomes = outcomes.data();
    batch.tokens = expected.data();
    batch.tokens_stride = 1;
    CpuBackend backend(CpuTarget::kBaseline);
    REQUIRE(backend.Prepare({kVocabSize, kBatch, 0, 2}).ok());
    REQUIRE(backend.Run(batch).ok());

    constexpr uint32_t kFlushAndRoundUp = 0x8040u | 0x4000u | 0x1F80u;
    batch.tokens = tokens.data();
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(kFlushAndRoundUp);
    const bool ok = backend.Run(batch).ok();
    const uint32_t after = _mm_getcsr();
    // The same work without the backend's protection, to see that the settings matter here.
    std::vector<uint64_t> memory = PoisonedWorkspace(kVocabSize, 0);
    const TaskWorkspace workspace = TaskWorkspaceAt(memory.data(), kVocabSize, 0);
    std::vector<TokenId> unprotected(kBatch);
    batch.tokens = unprotected.data();
    for (int32_t i = 0; i < kBatch; ++i) kChainsBaseline.run_task(batch, i, workspace, TeamSeat{});
    _mm_setcsr(before);
    REQUIRE(ok);
    CHECK((after & 0xFFC0u) == (kFlushAndRoundUp & 0xFFC0u));
    CHECK(tokens == expected);
    CHECK(unprotected != expected);
  }

  TEST_CASE("the settings that the environment undoes do matter") {
    // 2^-126 halved is a denormal; 1 + 2^-24 rounds to 1 or up.
    volatile float tiny = 0x1p-126f;
    volatile float one = 1.0f;
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(0x8040u | 0x4000u | 0x1F80u);
    volatile float flushed = tiny * 0.5f;
    volatile float up = one + 0x1p-24f;
    float kept, even;
    {
      const FpEnvironment environment;
      volatile float product = tiny * 0.5f;
      volatile float sum = one + 0x1p-24f;
      kept = product;
      even = sum;
    }
    _mm_setcsr(before);
    CHECK(flushed == 0.0f);
    CHECK(up > 1.0f);
    CHECK(kept == 0x1p-127f);
    CHECK(even == 1.0f);
  }
#endif

  TEST_CASE("backends are made by name") {
    CHECK((*MakeBackend("cpu"))->name() == "cpu");
    const auto unknown = MakeBackend("tpu");
    CHECK(unknown.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(unknown.status().message()).find("\"cpu\"") != std::string::npos);
  }
}

}  // namespace
}  // namespace specd
