// The batch of a sequence must not change its answer: neither the other sequences, nor its place
// among them, nor their seeds. Three more things must not: earlier rounds of the same backend, rows
// that a decision does not need, and the drafter's tokens and their number.
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/bodies/chain_model.h"
#include "tests/kernels/bodies/every_processor.h"
#include "tests/kernels/bodies/packed_steps.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/grid_size.h"
#include "tests/support/round_case.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kBatch = 256;

std::vector<RoundCase::Options> AllOptions(int32_t batch = kBatch) {
  std::vector<RoundCase::Options> all = RoundsOfEveryKind(batch, 60);
  all.push_back({.vocab_size = 1, .batch = batch, .max_draft = 8, .seed = 67});
  return all;
}

std::unique_ptr<Backend> PreparedFor(const RoundCase::Options& options, int32_t threads = 1) {
  std::unique_ptr<Backend> backend = *MakeBackend("cpu");
  REQUIRE(backend->Prepare({options.vocab_size, kBatch, options.max_draft, threads}).ok());
  return backend;
}

std::vector<std::string> AnswersOf(Backend& backend, RoundCase& round,
                                   const std::vector<int32_t>& places) {
  return RunAll(backend, round, round.Some(places));
}

TEST_SUITE("invariance") {
  TEST_CASE("the random rounds hold every kind of answer, and never a token that must not be") {
    std::map<std::string, int> seen;
    for (const RoundCase::Options& options : AllOptions()) {
      RoundCase round(options);
      AnswersOf(*PreparedFor(options), round, InOrder(kBatch));
      for (int32_t i = 0; i < kBatch; ++i) {
        const Task& task = round.task(i);
        const TaskOutcome& outcome = round.outcome(i);
        const bool verifies = task.kind == TaskKind::kVerify;
        ++seen[fmt::format("kind {} status {}", int(task.kind), int(outcome.status))];
        if (verifies) {
          ++seen[fmt::format("method {} status {}", int(task.method), int(outcome.status))];
          if (outcome.num_accepted > 0) ++seen[fmt::format("method {} accepts", int(task.method))];
        }
        seen["invalid drafts"] += int(outcome.invalid_drafts);
        seen["empty residuals"] += int(outcome.empty_residuals);
        REQUIRE(outcome.status != OutcomeStatus::kBadToken);
      }
    }
    for (const auto& [what, count] : seen) MESSAGE(what, ": ", count);
    for (int method = 1; method <= 4; ++method) {
      CHECK(seen[fmt::format("method {} status 0", method)] > 50);
      CHECK(seen[fmt::format("method {} status 1", method)] > 5);
      CHECK(seen[fmt::format("method {} accepts", method)] > 20);
    }
    CHECK(seen["method 3 status 2"] > 0);
    CHECK(seen["method 4 status 2"] > 0);
    CHECK(seen["kind 1 status 0"] > 50);
    CHECK(seen["kind 2 status 0"] > 50);
    CHECK(seen["invalid drafts"] > 50);
    CHECK(seen["empty residuals"] > 0);
  }

  TEST_CASE("a sequence alone is the sequence at any place of a batch of 256") {
    std::mt19937_64 random(61);
    for (const RoundCase::Options& options : AllOptions()) {
      CAPTURE(options.seed);
      RoundCase round(options);
      const auto backend = PreparedFor(options);
      const std::vector<std::string> together = AnswersOf(*backend, round, InOrder(kBatch));
      std::vector<int32_t> shuffled = InOrder(kBatch);
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      const std::vector<std::string> permuted = AnswersOf(*backend, round, shuffled);
      for (int32_t i = 0; i < kBatch; ++i) {
        REQUIRE(permuted[i] == together[shuffled[i]]);
        REQUIRE(AnswersOf(*backend, round, {i})[0] == together[i]);
      }
    }
  }

  TEST_CASE("any number of threads gives the same answers") {
    for (const RoundCase::Options& options : AllOptions()) {
      RoundCase round(options);
      const std::vector<std::string> one = AnswersOf(*PreparedFor(options), round, InOrder(kBatch));
      for (const int32_t threads : {2, 3, 8}) {
        CAPTURE(threads);
        CHECK(AnswersOf(*PreparedFor(options, threads), round, InOrder(kBatch)) == one);
      }
    }
  }

  TEST_CASE("every instruction set, and emulated blocks, give the same answers") {
    constexpr int32_t kFew = GridSize({.full = 64, .sanitized = 16});  // blocks are slow
    for (const RoundCase::Options& options : AllOptions(kFew)) {
      CAPTURE(options.seed);
      RoundCase round(options);
      CheckEverywhere(round, round.All(), options, ScalarAnswers(round));
    }
  }

  TEST_CASE("a mask row of specd's own grammar answers as the same row of a bound mask") {
    for (const RoundCase::Options& options : AllOptions()) {
      RoundCase::Options grammar = options;
      grammar.grammar_masks = true;
      RoundCase bound(options);
      RoundCase own(grammar);
      CHECK(AnswersOf(*PreparedFor(options), own, InOrder(kBatch)) ==
            AnswersOf(*PreparedFor(options), bound, InOrder(kBatch)));
    }
  }

  TEST_CASE("earlier rounds leave nothing in a backend's memory") {
    for (const RoundCase::Options& options : AllOptions()) {
      RoundCase::Options other_options = options;
      other_options.seed += 100;
      RoundCase round(options);
      RoundCase other(other_options);
      const std::vector<std::string> fresh =
          AnswersOf(*PreparedFor(options), round, InOrder(kBatch));
      const auto backend = PreparedFor(options);
      for (int repeat = 0; repeat < 2; ++repeat) {
        AnswersOf(*backend, other, InOrder(kBatch));
        CHECK(AnswersOf(*backend, round, InOrder(kBatch)) == fresh);
      }
    }
  }

  // Block verification needs p of all its tokens, so its tokens may depend on rows after the
  // decision. Its status does not (chain_cases_test.cc), and its law does not (exact_test.cc,
  // ragged).
  TEST_CASE("CONTRACT 6: rows after the one of the final token never matter") {
    int poisoned_rows = 0;
    for (const RoundCase::Options& options : AllOptions()) {
      RoundCase round(options);
      const auto backend = PreparedFor(options);
      const std::vector<std::string> before = AnswersOf(*backend, round, InOrder(kBatch));
      std::vector<std::vector<uint32_t>> rows(2 * kBatch);
      for (int32_t i = 0; i < kBatch; ++i) {
        Task& task = round.task(i);
        if (task.kind != TaskKind::kVerify || task.method == VerifyMethod::kBlock) continue;
        REQUIRE(backend->Run(round.Some({i})).ok());
        // The decision ended at the place after the accepted tokens, whether or not it succeeded.
        const int32_t last = round.outcome(0).num_accepted;
        Draft& chain = task.draft;
        std::vector<uint32_t>& target = rows[2 * i];
        std::vector<uint32_t>& draft = rows[2 * i + 1];
        target.assign(chain.target_rows, chain.target_rows + chain.num_nodes + 1);
        draft.assign(chain.draft_rows, chain.draft_rows + chain.num_nodes);
        for (int32_t j = last + 1; j <= chain.num_nodes; ++j) {
          target[j] = RoundCase::kNanRow;
          if (j < chain.num_nodes) draft[j] = RoundCase::kNanRow;
          ++poisoned_rows;
        }
        chain.target_rows = target.data();
        chain.draft_rows = draft.data();
      }
      CHECK(AnswersOf(*backend, round, InOrder(kBatch)) == before);
    }
    CHECK(poisoned_rows > 500);
  }
}

enum class Drafter { kRandom, kPerfect, kAdversarial };

// A text in rounds of `num_drafts` drafts each, or (below 0) of a random number of them.
Tokens Generate(ChainModel& model, int32_t num_drafts, Drafter drafter) {
  const ModelOptions& options = model.options();
  const auto run = [&](const Tokens& text, const Tokens& draft) {
    RowMatrix rows({.vocab_size = options.vocab_size, .num_rows = int64_t(draft.size()) + 1});
    std::vector<oracle::Steps> steps;
    for (size_t i = 0; i <= draft.size(); ++i) {
      const Tokens context = Concatenate(text, Tokens(draft.begin(), draft.begin() + int64_t(i)));
      rows.Set(int64_t(i), model.At(context).target);
      steps.push_back(model.At(context).steps);
    }
    const PackedSteps packed(steps, options.vocab_size);
    ChainCase chain(options.method, draft, DraftKind::kOneHot);
    packed.Apply(&chain.task);
    chain.task.first_position = chain.task.round_base = static_cast<uint32_t>(text.size());
    chain.task.target_filters = FiltersOf(options.target_truncation);
    return RunScalar(chain.task, rows.view(), TensorView{}, KeyedCoins(63), packed.mask());
  };
  std::mt19937_64 random(64);
  Tokens text;
  while (text.size() < options.length) {
    const int32_t length = num_drafts >= 0 ? num_drafts : static_cast<int32_t>(random() % 9);
    Tokens draft;
    for (int32_t i = 0; i < length; ++i) {
      const TokenId truth = run(Concatenate(text, draft), {}).tokens[0];
      const bool right =
          drafter == Drafter::kPerfect || (drafter == Drafter::kRandom && random() % 2 == 0);
      draft.push_back(right ? truth : (truth + 1) % options.vocab_size);
    }
    const ChainResult result = run(text, draft);
    REQUIRE(result.outcome.status == OutcomeStatus::kOk);
    if (drafter == Drafter::kPerfect) REQUIRE(result.outcome.num_accepted == length);
    if (drafter == Drafter::kAdversarial) REQUIRE(result.outcome.num_accepted == 0);
    text.insert(text.end(), result.tokens.begin(), result.tokens.end());
  }
  text.resize(options.length);
  return text;
}

TEST_SUITE("invariance") {
  TEST_CASE("greedy and exact_match: one text for K = 0..8, any drafter, grouping") {
    for (const VerifyMethod method : {VerifyMethod::kGreedy, VerifyMethod::kExactMatch}) {
      ChainModel model({.method = method,
                        .vocab_size = 20,
                        .length = 16,
                        .edits = true,
                        .target_truncation = {.min_p = 0.01, .top_k = 12, .top_p = 0.95},
                        .seed = 62});
      const Tokens text = Generate(model, 0, Drafter::kRandom);
      for (int32_t num_drafts = -1; num_drafts <= 8; ++num_drafts) {
        CAPTURE(num_drafts);
        for (const Drafter drafter : {Drafter::kRandom, Drafter::kPerfect, Drafter::kAdversarial}) {
          CHECK(Generate(model, num_drafts, drafter) == text);
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd
