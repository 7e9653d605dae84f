// Stop strings that rounds find: what else of a round they outrank, and a round without text pays
// nothing.
#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/speculative/verifier_fixture.h"
#include "tests/support/scripted_grammar.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

// Id i is the letter 'a' + i.
Vocabulary EightLetters() {
  Vocabulary::Builder builder;
  for (TokenId id = 0; id < 8; ++id)
    builder.Set(id, std::string(1, 'a' + static_cast<char>(id)), {});
  return std::move(builder).Build();
}

struct TextVerifier : VerifierFixture {
  SequenceHandle OpenWithStop(std::vector<std::string> stops, SequenceParams params = {},
                              std::unique_ptr<grammar::GrammarMatcher> matcher = nullptr) {
    params.max_tokens = 100;
    params.logprobs = 0;
    auto built = verifier->opening().Build(params, {});
    REQUIRE(built.ok());
    if (matcher != nullptr) {
      built->grammar = *SequenceGrammar::Create(std::move(matcher), {}, kLimits);
    }
    TextStream stream(&vocabulary, *StopSet::Create(std::move(stops)), {});
    built->text = SequenceText(std::move(stream), {.is_kept = true});
    auto info = verifier->Insert(*std::move(built));
    REQUIRE(info.ok());
    return info->handle;
  }
  std::string TextOf(SequenceHandle sequence) {
    return verifier->sequences().Find(sequence)->text.Read().text;
  }
  // Confirms these tokens with logprobs -1, -2, ...
  SequenceResult Round(SequenceHandle sequence, const Ids& ids,
                       OutcomeStatus status = OutcomeStatus::kOk) {
    ScriptedOutcome confirmed = Confirm(static_cast<int32_t>(ids.size()) - 1, ids);
    confirmed.outcome.status = status;
    for (size_t i = 0; i < ids.size(); ++i) {
      confirmed.scores.push_back({{ids[i], -1.0f - static_cast<float>(i), 1}});
    }
    backend->script = {confirmed};
    return VerifierFixture::Round(sequence);
  }

  const Vocabulary vocabulary = EightLetters();
};

TEST_SUITE("unit") {
  TEST_CASE("tokens behind a stop string are neither kept nor counted") {
    TextVerifier f;
    const SequenceHandle s = f.OpenWithStop({"bc"});
    const SequenceResult result = f.Round(s, {0, 1, 2, 3});
    CHECK(result.status == RoundStatus::kOk);
    CHECK(Kept(result) == Ids{0, 1, 2});
    CHECK(result.num_accepted == 3);
    CHECK(result.finish_reason == FinishReason::kStop);
    CHECK(result.stop_token == kNoToken);
    CHECK(result.cumulative_logprob == -6);
    CHECK(f.TextOf(s) == "a");
    CHECK(f.verifier->counters().kept == 3);
    CHECK(f.Round(s, {0}).status == RoundStatus::kFinished);
    // The text side has nothing to add.
    CHECK(f.verifier->Finish(s, FinishReason::kStop, 2) == nullptr);
  }

  TEST_CASE("a stop string outranks a bad row behind it, and not one before it") {
    TextVerifier f;
    const SequenceHandle s = f.OpenWithStop({"bc"});
    const SequenceResult stopped = f.Round(s, {0, 1, 2}, OutcomeStatus::kBadTargetRow);
    CHECK(stopped.status == RoundStatus::kOk);
    CHECK(stopped.refusal == Refusal::kNone);
    CHECK(stopped.bad_row == kNoRow);
    CHECK(stopped.finish_reason == FinishReason::kStop);
    const SequenceHandle other = f.OpenWithStop({"bc"});
    const SequenceResult failed = f.Round(other, {0, 1}, OutcomeStatus::kBadTargetRow);
    CHECK(failed.status == RoundStatus::kBadDistribution);
    CHECK(failed.finish_reason == FinishReason::kError);
    CHECK(f.TextOf(other) == "ab");  // what was held back
  }

  TEST_CASE("the text is that of the tokens that a constraint lets through") {
    TextVerifier f;
    const auto script = std::make_shared<GrammarScript>();
    script->on_accept = [](const std::string&, const Ids& ids) {
      if (ids.size() == 2) throw std::bad_alloc();
    };
    const SequenceHandle s =
        f.OpenWithStop({"bc"}, {}, std::make_unique<ScriptedMatcher>("m", script));
    const SequenceResult result = f.Round(s, {0, 1, 2, 3});
    CHECK(result.status == RoundStatus::kBadDistribution);
    CHECK(result.num_kept == 0);
    CHECK(f.TextOf(s).empty());
  }

  TEST_CASE("a copy has no text that its source has to give") {
    TextVerifier f;
    const SequenceHandle s = f.OpenWithStop({"bc"});
    f.Round(s, {0, 1});
    const auto fork = f.verifier->Fork(s, 1);
    REQUIRE(fork.ok());
    const SequenceResult result = f.Round(fork->handle, {2});
    CHECK(result.finish_reason == FinishReason::kStop);
    CHECK(f.TextOf(fork->handle).empty());
    CHECK(f.TextOf(s) == "a");
    CHECK(f.TextOf(s) == "a");  // the same again, until there is more
    f.verifier->Finish(s, FinishReason::kAbort, 2);
    const SequenceText::Unread& rest = f.verifier->sequences().Find(s)->text.Read();
    CHECK(rest.text == "b");
    CHECK(rest.byte_offset == 1);
    CHECK(rest.token_offset == 2);
    CHECK(rest.ends.empty());
  }
}

}  // namespace
}  // namespace specd
