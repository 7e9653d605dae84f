#include "kernels/cpu/cpu_backend.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/core/fp_environment.h"
#include "tests/kernels/run_chain.h"
#include "tests/support/round_case.h"
#include "tests/support/rows.h"

namespace {
// Counts while a test asks for it. Everything in this binary allocates through here.
bool counting_allocations = false;
int num_allocations = 0;
}  // namespace

// GCC takes a free() of what operator new gave for a mistake once both are inlined.
__attribute__((noinline)) void* operator new(size_t size) {
  if (counting_allocations) ++num_allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace specd {
namespace {

constexpr RoundCase::Options kMixed{.vocab_size = kTileSize + 300,
                                    .batch = 64,
                                    .max_draft = 4,
                                    .dtype = DType::kBFloat16,
                                    .seed = 41};

std::unique_ptr<Backend> Prepared(const RoundCase::Options& options, CpuTarget target) {
  auto backend = std::make_unique<CpuBackend>(target);
  REQUIRE(backend->Prepare({options.vocab_size, 256, options.max_draft}).ok());
  return backend;
}

std::vector<ChainResult> RunAll(Backend& backend, RoundCase& round) {
  const RoundBatch batch = round.All();
  REQUIRE(backend.Run(batch).ok());
  std::vector<ChainResult> results;
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    results.push_back({round.outcome(i), round.tokens(i)});
  }
  return results;
}

// The target's rows depend on the text; a drafter proposes whatever it likes.
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
    chain.task.chain.target_rows = row_numbers.data();
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
    if (!CpuTargetIsSupported(CpuTarget::kAvx2)) return;
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const int32_t vocab_size : {3, 257, 2 * kTileSize + 9}) {
        RoundCase::Options options = kMixed;
        options.dtype = dtype;
        options.vocab_size = vocab_size;
        RoundCase round(options);
        const auto baseline = RunAll(*Prepared(options, CpuTarget::kBaseline), round);
        const auto avx2 = RunAll(*Prepared(options, CpuTarget::kAvx2), round);
        CHECK(baseline == avx2);
      }
    }
  }

  TEST_CASE("the mixed round holds every kind of outcome") {
    RoundCase::Options options = kMixed;
    options.batch = 256;
    RoundCase round(options);
    std::map<std::string, int> seen;
    for (const ChainResult& result : RunAll(*Prepared(options, CpuTarget::kBaseline), round)) {
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
    RoundCase::Options options = kMixed;
    options.vocab_size = 300;
    options.batch = 256;
    RoundCase round(options);
    const auto backend = Prepared(options, CpuTarget::kBaseline);
    const std::vector<ChainResult> together = RunAll(*backend, round);
    std::vector<int32_t> places(256);
    std::iota(places.begin(), places.end(), 0);
    std::mt19937_64 random(45);
    std::shuffle(places.begin(), places.end(), random);
    REQUIRE(backend->Run(round.Some(places)).ok());
    for (int32_t i = 0; i < 256; ++i) {
      REQUIRE(ChainResult{round.outcome(i), round.tokens(i)} == together[places[i]]);
    }
    for (int32_t i = 0; i < 256; ++i) {
      REQUIRE(backend->Run(round.Some({i})).ok());
      REQUIRE(ChainResult{round.outcome(0), round.tokens(0)} == together[i]);
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
    RoundCase round(kMixed);
    for (const CpuTarget target : {CpuTarget::kBaseline, CpuTarget::kAvx2}) {
      if (!CpuTargetIsSupported(target)) continue;
      const auto backend = Prepared(kMixed, target);
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
    std::vector<ChainTask> tasks(kBatch, chain.task);
    for (ChainTask& task : tasks) task.seed = random();
    std::vector<ChainOutcome> outcomes(kBatch);
    std::vector<TokenId> expected(kBatch);
    std::vector<TokenId> tokens(kBatch);
    RoundBatch batch{
        rows.view(), TensorView{}, tasks.data(), kBatch, outcomes.data(), expected.data(), 1};
    CpuBackend backend(CpuTarget::kBaseline);
    REQUIRE(backend.Prepare({kVocabSize, kBatch, 0}).ok());
    REQUIRE(backend.Run(batch).ok());

    constexpr uint32_t kFlushAndRoundUp = 0x8040u | 0x4000u | 0x1F80u;
    batch.tokens = tokens.data();
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(kFlushAndRoundUp);
    const bool ok = backend.Run(batch).ok();
    const uint32_t after = _mm_getcsr();
    // The same work without the backend's protection, to see that the settings matter here.
    std::vector<uint64_t> workspace(ChainWorkspaceBytes(kVocabSize) / 8);
    std::vector<TokenId> unprotected(kBatch);
    batch.tokens = unprotected.data();
    RunChainsBaseline(batch, workspace.data());
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
