// LogprobSum adds logprobs in double and in the order of the output. Its sum is right after every
// kind of cut.
#include "speculative/sequence/logprob_sum.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/speculative/verifier_fixture.h"

namespace specd {
namespace {

// From left to right in double, which is what the contract says and what a caller would write.
double SumOf(const std::vector<float>& values, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]);
  return sum;
}

// Token j confirmed with this logprob, and a better id beside it.
std::vector<TokenScore> Own(TokenId id, float logprob) {
  return {{id, logprob, 2}, {0, -0.001f, 1}};
}

ScriptedOutcome Scored(int32_t num_accepted, const std::vector<TokenId>& tokens,
                       const std::vector<float>& logprobs) {
  ScriptedOutcome scripted = Confirm(num_accepted, tokens);
  for (size_t j = 0; j < tokens.size(); ++j) {
    scripted.scores.push_back(Own(tokens[j], logprobs[j]));
  }
  return scripted;
}

SequenceParams WithLogprobs(int64_t max_tokens, ScoreMode mode = ScoreMode::kRawLogprob) {
  SequenceParams params;
  params.max_tokens = max_tokens;
  params.logprobs = 1;
  params.logprobs_mode = mode;
  return params;
}

TEST_SUITE("unit") {
  TEST_CASE("logprob sum: a cut gives the bits of the sum up to there, where a difference rounds") {
    const std::vector<float> values = {-0.1f, -1e9f, -0.3f, -1e-7f, -2.5f};
    for (uint32_t kept = 0; kept <= values.size(); ++kept) {
      LogprobSum sum(0, 100);
      for (const float value : values) sum.Add(value);
      sum.CutAt(kept);
      CHECK(sum.value() == SumOf(values, kept));
    }
  }

  TEST_CASE("logprob sum: -inf stays until it is cut away, NaN is no sum") {
    LogprobSum sum(0, 100);
    sum.Add(-1.5f);
    sum.Add(-std::numeric_limits<float>::infinity());
    sum.Add(-1.0f);
    CHECK(sum.value() == -std::numeric_limits<double>::infinity());
    sum.CutAt(1);
    CHECK(sum.value() == -1.5);
    LogprobSum nan(0, 100);
    nan.Add(std::nanf(""));
    CHECK(std::isnan(nan.value()));
  }

  TEST_CASE("logprob sum: tokens given at the opening do not count, a cut into them leaves 0") {
    LogprobSum sum(4, 100);
    CHECK(sum.value() == 0);
    sum.Add(-1.0f);
    sum.Add(-2.0f);
    LogprobSum other = sum;  // a fork
    other.Add(-4.0f);
    CHECK(other.value() == -7.0);
    CHECK(sum.value() == -3.0);
    sum.CutAt(5);
    CHECK(sum.value() == -1.0);
    sum.CutAt(3);
    CHECK(sum.value() == 0);
  }

  TEST_CASE("logprob sum: it goes on from the sum of tokens that were given") {
    LogprobSum whole(0, 100);
    for (const float logprob : {-0.1f, -0.7f, -0.3f}) whole.Add(logprob);
    LogprobSum after(3, 100, whole.value());
    for (const float logprob : {-0.9f, -0.4f}) {
      whole.Add(logprob);
      after.Add(logprob);
    }
    CHECK(after.value() == whole.value());  // to the last bit: one addition after another
    LogprobSum cut = after;
    whole.CutAt(4);
    cut.CutAt(4);
    CHECK(cut.value() == whole.value());
    whole.CutAt(3);
    cut.CutAt(3);
    CHECK(cut.value() == whole.value());
    after.CutAt(2);  // among the given ones, of which only the whole sum is known
    CHECK(std::isnan(after.value()));
  }

  TEST_CASE("logprob sum: a cut further back than is kept says that there is none") {
    const int64_t total = kCutTokensMax + 1000;
    LogprobSum sum(0, int64_t{1} << 31);
    for (int64_t i = 0; i < total; ++i) sum.Add(-0.5f);
    LogprobSum far = sum;
    sum.CutAt(1001);  // kCutTokensMax - 1 tokens back: the oldest that is kept
    CHECK(sum.value() == -500.5);
    far.CutAt(1000);
    CHECK(std::isnan(far.value()));
  }

  TEST_CASE("a round adds the logprobs of what the finish rules keep") {
    VerifierFixture f;
    const SequenceHandle s = f.Open(WithLogprobs(5));
    f.backend->script = {Scored(1, {1, 2}, {-0.25f, -0.5f}),
                         Scored(3, {1, 2, 3, 4}, {-1.0f, -2.0f, -4.0f, -8.0f})};
    CHECK(f.Round(s).cumulative_logprob == -0.75);
    const SequenceResult last = f.Round(s);  // max_tokens cuts after three of four
    CHECK(last.num_kept == 3);
    CHECK(last.cumulative_logprob == -7.75);
    CHECK(f.Round(s).cumulative_logprob == -7.75);  // FINISHED
  }

  TEST_CASE("tokens behind a bad row, padding and refused records add nothing") {
    VerifierFixture f;
    const SequenceHandle s = f.Open(WithLogprobs(50));
    ScriptedOutcome broken = Scored(1, {1}, {-0.5f});
    broken.outcome.status = OutcomeStatus::kBadTargetRow;
    f.backend->script = {Scored(0, {3}, {-0.25f}), broken};
    f.Round(s);
    SequenceInput input = f.Input(s);
    input.discard = true;
    CHECK(f.Round(input).cumulative_logprob == -0.25);
    input.discard = false;
    input.refusal = Refusal::kCount;
    CHECK(f.Round(input).cumulative_logprob == -0.25);
    const SequenceResult result = f.Round(s);
    CHECK(result.finish_reason == FinishReason::kError);
    CHECK(result.cumulative_logprob == -0.75);
    CHECK(std::isnan(f.Round(12345).cumulative_logprob));  // a handle that was never given out
  }

  TEST_CASE("a stop string cuts the sum, also where it moves an end that had been reached") {
    VerifierFixture f;
    const SequenceHandle s = f.Open(WithLogprobs(4));
    f.backend->script = {Scored(3, {1, 2, 3, 4}, {-0.1f, -1e9f, -0.3f, -8.0f})};
    CHECK(f.Round(s).finish_reason == FinishReason::kLength);
    CHECK_FALSE(f.verifier->Find(s)->end_moved);
    const Sequence* cut = f.verifier->Finish(s, FinishReason::kStop, 1);
    REQUIRE(cut != nullptr);
    CHECK(cut->end_moved);
    CHECK(cut->logprob_sum.value() == static_cast<double>(-0.1f));
    CHECK(f.Round(s).cumulative_logprob == static_cast<double>(-0.1f));
    // A refused cut changes nothing: nothing may end earlier than the earliest stop string.
    CHECK(f.verifier->Finish(s, FinishReason::kStop, 0) == nullptr);
    CHECK(f.verifier->Find(s)->logprob_sum.value() == static_cast<double>(-0.1f));
  }

  TEST_CASE("a fork goes on with its source's sum; a re-opened sequence begins at 0") {
    VerifierFixture f;
    const SequenceHandle s = f.Open(WithLogprobs(50));
    f.backend->script = {Scored(0, {1}, {-0.5f}), Scored(0, {2}, {-1.0f}), Scored(0, {3}, {-2.0f}),
                         Scored(0, {3}, {-4.0f})};
    f.Round(s);
    const auto child = f.verifier->Fork(s, 7);
    REQUIRE(child.ok());
    CHECK(f.Round(child->handle).cumulative_logprob == -1.5);
    CHECK(f.Round(s).cumulative_logprob == -2.5);
    const TokenId outputs[] = {1, 2};
    const SequenceHandle again = f.Open(WithLogprobs(50), {{}, outputs});
    CHECK(f.Round(again).cumulative_logprob == -4.0);
  }

  TEST_CASE("there is a sum for logprobs, raw, processed or unfiltered, and for nothing else") {
    VerifierFixture f;
    const struct {
      ScoreMode mode;
      bool summed;
    } cases[] = {{ScoreMode::kRawLogprob, true},
                 {ScoreMode::kProcessedLogprob, true},
                 {ScoreMode::kRawLogit, false},
                 {ScoreMode::kProcessedLogit, false},
                 {ScoreMode::kUnfilteredLogprob, true}};
    for (const auto& [mode, summed] : cases) {
      const SequenceHandle s = f.Open(WithLogprobs(50, mode));
      f.backend->script = {Scored(0, {1}, {-0.5f})};
      CHECK(std::isnan(f.Round(s).cumulative_logprob) != summed);
      f.verifier->Close(s);
    }
    const SequenceHandle plain = f.Open();
    f.backend->script = {Confirm(0, {1})};
    CHECK(std::isnan(f.Round(plain).cumulative_logprob));
  }
}

}  // namespace
}  // namespace specd
