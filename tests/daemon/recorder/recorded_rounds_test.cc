// The contents of a trace against what the rounds were given, and against the double oracle.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "daemon/trace/row_hash.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/philox.h"
#include "tests/daemon/recorder/traced_session.h"
#include "tests/support/session_steps.h"
#include "tools/oracle/oracle.h"

namespace specd::test {
namespace {

oracle::Probabilities Softmax(const float* row) {
  return *oracle::Softmax({row, row + TracedSession::kVocab}, 1.0);
}

SequenceParams ParamsOf(VerifyMethod method, uint64_t seed = 7) {
  SequenceParams params;
  params.verify = method;
  params.max_tokens = 100'000;
  params.has_seed = true;
  params.seed = seed;
  return params;
}

// p(x) = p_weight / p_mass, and the same for q.
void CheckShares(const TracedSession& traced, TracedSession* rows, const TraceTask& task) {
  (void)traced;
  for (size_t i = 0; i < task.tokens.size(); ++i) {
    const PlaceDecision& d = task.decisions[i];
    if (d.p_mass == 0) continue;
    const auto p = Softmax(rows->TargetRow(task.target_rows[i]));
    const auto q = Softmax(rows->DraftRow(task.draft_rows[i]));
    const int x = task.tokens[i];
    CHECK(d.p_weight / d.p_mass == doctest::Approx(oracle::ProbabilityOf(p, x)).epsilon(1e-6));
    CHECK(d.q_weight / d.q_mass == doctest::Approx(oracle::ProbabilityOf(q, x)).epsilon(1e-6));
  }
}

TEST_SUITE("unit") {
  TEST_CASE("exact_match reads no draft row, so its record has no q of a sampled draft") {
    TracedSession traced({.trace_options = "level=rounds"});
    const SequenceHandle s = traced.Open("r", ParamsOf(VerifyMethod::kExactMatch));
    traced.FillRows(5, 0.7f);
    traced.Round({TracedSession::Sampled(s, {1, 2, 3})});
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    REQUIRE(trace.rounds.size() == 1);
    const PlaceDecision& d = trace.rounds[0].tasks[0].decisions[0];
    CHECK(d.judged);
    CHECK(d.p_mass > 0);
    CHECK(d.q_mass == 0);
    CHECK(d.q_weight == 0);
  }

  TEST_CASE("a trace says what every round was given and what it decided") {
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      TracedSession traced({.trace_options = "level=rows"});
      const SequenceHandle s = traced.Open("r", ParamsOf(method));
      std::mt19937_64 random(3);
      std::vector<std::vector<TokenId>> drafts;
      std::vector<std::vector<SequenceResult>> results;
      std::vector<std::vector<TokenId>> kept;
      traced.FillRows(5, 0.7f);
      for (int round = 0; round < 40; ++round) {
        drafts.push_back({});
        for (int i = 0; i < 3; ++i) drafts.back().push_back(static_cast<TokenId>(random() % 63));
        results.push_back(traced.Round({TracedSession::Sampled(s, drafts.back())}));
        const SequenceResult& result = results.back()[0];
        kept.emplace_back(result.tokens, result.tokens + result.num_kept);
      }
      traced.Finish();
      const ReadTraceResult trace = traced.Read();
      CHECK_FALSE(trace.is_torn);
      REQUIRE(trace.rounds.size() == 40);
      size_t num_accepted = 0;
      for (size_t i = 0; i < trace.rounds.size(); ++i) {
        const TraceRound& round = trace.rounds[i];
        CHECK(round.number == i + 1);
        CHECK(round.round_id == i + 1);
        CHECK(round.status == RoundStatus::kOk);
        REQUIRE(round.tasks.size() == 1);
        REQUIRE(round.answers.size() == 1);
        const TraceTask& task = round.tasks[0];
        const TraceAnswer& answer = round.answers[0];
        CHECK(answer.sequence == s);
        CHECK(answer.num_accepted == results[i][0].num_accepted);
        CHECK(answer.num_kept == results[i][0].num_kept);
        CHECK(answer.total_kept == results[i][0].total_kept);
        CHECK(task.method == method);
        CHECK(task.tokens == drafts[i]);
        CHECK(task.target_rows == std::vector<uint32_t>{0, 1, 2, 3});
        CHECK(task.draft_rows == std::vector<uint32_t>{0, 1, 2});
        CHECK(task.seed == 7);
        CHECK(task.round_base == answer.total_kept - answer.num_kept);
        CHECK(task.confirmed == kept[i]);
        CHECK(task.path.size() == answer.num_accepted);
        REQUIRE(task.decisions.size() == 4);
        CheckShares(traced, &traced, task);
        const KeyedCoins coins(7);
        for (uint32_t place = 0; place < 3; ++place) {
          const PlaceDecision& d = task.decisions[place];
          CHECK(d.judged == (place <= answer.num_accepted));
          if (d.accept_coin == kNoCoin) continue;
          CHECK(d.accept_coin == coins({.position = task.round_base + place,
                                        .round_base = task.round_base,
                                        .node = place + 1,
                                        .purpose = Purpose::kAccept}));
        }
        num_accepted += answer.num_accepted;
      }
      CHECK(num_accepted > 5);  // both verdicts were seen
      CHECK(num_accepted < 100);
    }
  }

  // The two ends of the interval come from the trace; the sequence gets them as its coins.
  TEST_CASE("a trace's interval of coins draws the token, and the coins next to it do not") {
    TracedSession traced({.trace_options = "level=rounds"});
    traced.FillRows(11, 1.0f);
    const SequenceHandle s = traced.Open("plain", ParamsOf(VerifyMethod::kAuto));
    const SequenceHandle probe = traced.Open("probe", ParamsOf(VerifyMethod::kAuto, 8));
    const auto plain = [](SequenceHandle sequence) {
      return DraftOf{.sequence = sequence, .tokens = {}, .target_rows = {2}};
    };
    const TokenId token = traced.Round({plain(s)})[0].tokens[0];
    // A coin of the probe's first token, at every end that the trace will tell.
    const auto with_coin = [&](uint32_t position, uint64_t coin) {
      const std::vector<CoinRecord> coins = {{.position = position,
                                              .round_base = 0,
                                              .node = 0,
                                              .purpose = SPECD_COIN_SAMPLE,
                                              .value = coin}};
      CoinsCall call = {.sequence = probe, .coins = coins};
      REQUIRE(traced.engine->Call(call, 0) == PushResult::kOk);
      REQUIRE(StepSession(traced.session));
      CompletionView done;
      REQUIRE(traced.engine->Poll(&done));
      REQUIRE(done.refusal.ok());
      return traced.Round({plain(probe)})[0].tokens[0];
    };
    const auto dump = traced.session->DumpTrace();
    REQUIRE(dump.ok());
    const ReadTraceResult trace = ReadTrace(dump->path);
    REQUIRE(trace.rounds.size() == 1);
    const PlaceDecision& d = trace.rounds[0].tasks[0].decisions[0];
    CHECK(d.token == token);
    CHECK(d.draw_purpose == Purpose::kSample);
    CHECK(d.draw_coin == KeyedCoins(7)(SampleCoin(0)));
    CHECK(d.draw_interval.low <= d.draw_coin);
    CHECK(d.draw_coin < d.draw_interval.high);
    CHECK(with_coin(0, d.draw_interval.low) == token);
    CHECK(with_coin(1, d.draw_interval.high - 1) == token);
    REQUIRE(d.draw_interval.low > 0);
    CHECK(with_coin(2, d.draw_interval.low - 1) != token);
    CHECK(with_coin(3, d.draw_interval.high) != token);
    // The interval's width is p of the token.
    const double width = CoinToDouble(d.draw_interval.high) - CoinToDouble(d.draw_interval.low);
    const double p = oracle::ProbabilityOf(Softmax(traced.TargetRow(2)), token);
    CHECK(width == doctest::Approx(p).epsilon(1e-6));
    CHECK(d.token_weight / d.p_mass == doctest::Approx(p).epsilon(1e-6));
  }

  TEST_CASE("a trace holds the rows that the methods read, each once, to the bit") {
    TracedSession traced({.trace_options = "level=rows"});
    traced.FillRows(5, 0.5f);
    const SequenceHandle a = traced.Open("a", ParamsOf(VerifyMethod::kToken));
    const SequenceHandle b = traced.Open("b", ParamsOf(VerifyMethod::kBlock));
    const auto results = traced.Round({TracedSession::Sampled(a), TracedSession::Sampled(b)});
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    REQUIRE(trace.rounds.size() == 1);
    const std::string path = traced.directory + "/" + trace.infos[0].row_file;
    std::vector<std::pair<TraceTensor, uint32_t>> seen;
    for (const TraceRow& row : trace.rounds[0].rows) {
      seen.emplace_back(row.tensor, row.index);
      const float* const given = row.tensor == TraceTensor::kTarget ? traced.TargetRow(row.index)
                                                                    : traced.DraftRow(row.index);
      const std::vector<float> expected(given, given + TracedSession::kVocab);
      CHECK(RowFloats(path, row.offset, TracedSession::kVocab) == expected);
      CHECK(row.hash == RowHash(std::as_bytes(std::span(expected))));
    }
    // `block` reads the rows of the whole draft, and both sequences share them.
    const std::vector<std::pair<TraceTensor, uint32_t>> all = {
        {TraceTensor::kTarget, 0}, {TraceTensor::kTarget, 1}, {TraceTensor::kTarget, 2},
        {TraceTensor::kTarget, 3}, {TraceTensor::kDraft, 0},  {TraceTensor::kDraft, 1},
        {TraceTensor::kDraft, 2}};
    CHECK(seen == all);
  }

  TEST_CASE("a trace leaves out rows behind a rejection, unless all places are wanted") {
    for (const bool all : {false, true}) {
      TracedSession traced({.trace_options = all ? "level=rows,places=all" : "level=rows"});
      traced.FillRows(5);
      for (uint32_t i = 0; i < 64; ++i) traced.TargetRow(0)[i] = i == 9 ? 20.0f : 0.0f;
      const SequenceHandle s = traced.Open("s", ParamsOf(VerifyMethod::kToken));
      CHECK(traced.Round({TracedSession::Sampled(s)})[0].num_accepted == 0);
      traced.Finish();
      const ReadTraceResult trace = traced.Read();
      CHECK(trace.rounds[0].rows.size() == (all ? 7 : 2));
    }
  }

  TEST_CASE("a trace's levels: hashes without rows, 1 in N, and every round's decisions") {
    TracedSession traced({.trace_options = "level=hashes,every=3"});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s", ParamsOf(VerifyMethod::kToken));
    for (int i = 0; i < 7; ++i) traced.Round({TracedSession::Sampled(s)});
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    REQUIRE(trace.rounds.size() == 7);
    CHECK(trace.infos[0].row_file.empty());
    for (const TraceRound& round : trace.rounds) {
      const bool has_hashes = round.number % 3 == 0;
      CHECK(round.level == (has_hashes ? TraceLevel::kHashes : TraceLevel::kRounds));
      CHECK(round.rows.empty() == !has_hashes);
      CHECK(round.tasks[0].decisions.size() == 4);
      for (const TraceRow& row : round.rows) {
        CHECK(row.offset == kNoOffset);
        const float* const given = row.tensor == TraceTensor::kTarget ? traced.TargetRow(row.index)
                                                                      : traced.DraftRow(row.index);
        CHECK(row.hash == RowHash(std::as_bytes(std::span(given, TracedSession::kVocab))));
      }
    }
  }

  TEST_CASE("a trace holds masks, edits and filters") {
    TracedSession traced({.trace_options = "level=rows"});
    traced.FillRows(5);
    SequenceParams params = ParamsOf(VerifyMethod::kToken);
    params.logit_bias = {{3, 1.5f}};
    params.repetition_penalty = 1.25;
    params.min_tokens = 2;
    params.top_k = 20;
    params.logprobs = 2;
    const SequenceHandle s = traced.Open("s", params);
    *traced.MaskRow(1) = 0xfffffff0;
    traced.MaskRow(1)[1] = 0x7fffffff;
    DraftOf draft = TracedSession::Sampled(s);
    draft.mask_rows = {-1, 1, 1, -1};
    const auto result = traced.Round({draft})[0];
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    const TraceTask& task = trace.rounds[0].tasks[0];
    CHECK(task.penalties.repetition == 1.25f);
    CHECK(task.target_filters.top_k == 20);
    CHECK(task.min_tokens == 2);
    CHECK(task.num_edits == task.edits.size());
    const auto bias = std::find_if(task.edits.begin(), task.edits.end(),
                                   [](const TokenEdit& edit) { return edit.id == 3; });
    REQUIRE(bias != task.edits.end());
    CHECK(bias->bias == 1.5f);
    REQUIRE(task.places.size() == 4);
    CHECK(task.places[0].below_min_tokens);
    CHECK(task.places[0].mask_row == -1);
    CHECK(task.places[1].mask_row == 1);
    // The draft prefix counts for the repetition penalty.
    CHECK(task.places[1].overrides.size() == 1);
    CHECK(task.places[1].overrides[0].id == 5);
    CHECK(task.token_scores.size() == 3 * result.num_kept);
    CHECK(task.token_scores[0].id == task.confirmed[0]);
    CHECK(trace.openings[0].numbers ==
          std::vector<std::pair<std::string, double>>{{"verify", 3.0},
                                                      {"top_k", 20},
                                                      {"repetition_penalty", 1.25},
                                                      {"max_tokens", 100'000},
                                                      {"min_tokens", 2},
                                                      {"logprobs", 2}});
    CHECK(trace.openings[0].lists == std::vector<std::string>{"logit_bias"});
    CHECK(trace.openings[0].list_hashes.size() == 1);
  }

  TEST_CASE("the hashes of edits are those of the lists at every level") {
    // What a record of a task has of its parameters; at level rows also the lists.
    const auto record = [](const char* level, const SequenceParams& params, TokenId last_draft) {
      TracedSession traced({.trace_options = std::string("level=") + level});
      traced.FillRows(5);
      DraftOf draft = TracedSession::Sampled(traced.Open("s", params), {5, 6, last_draft});
      traced.Round({draft});
      traced.Finish();
      return traced.Read().rounds.at(0).tasks.at(0);
    };
    SequenceParams params = ParamsOf(VerifyMethod::kToken);
    params.logit_bias = {{3, 1.5f}};
    params.allowed_token_ids = {3, 4, 5, 6, 7, 8};
    params.repetition_penalty = 1.25;
    const auto hash = [](const auto& list) { return PlainRowHash(std::as_bytes(std::span(list))); };
    const TraceTask task = record("rows", params, 7);
    REQUIRE(task.allowed.size() == 2);
    REQUIRE(task.edits.size() == 1);
    const std::array lists = {hash(task.edits), hash(task.allowed)};
    CHECK(task.edits_hash == hash(lists));
    // The prefix of each place counts for the repetition penalty.
    uint64_t overrides = 0;
    for (uint64_t place = 1; place < 4; ++place) {
      REQUIRE(task.places[place].overrides.size() == place);
      const std::array words = {overrides, place, hash(task.places[place].overrides)};
      overrides = hash(words);
    }
    CHECK(task.overrides_hash == overrides);
    for (const char* level : {"rounds", "hashes"}) {
      const TraceTask light = record(level, params, 7);
      CHECK(light.edits.empty());
      CHECK(light.allowed.empty());
      CHECK(light.edits_hash == task.edits_hash);
      CHECK(light.overrides_hash == overrides);
      CHECK(light.parameters_hash == task.parameters_hash);
      // One value, one id and one place less: each has another hash.
      SequenceParams other = params;
      other.logit_bias[0].bias = std::nextafter(1.5f, 2.0f);
      CHECK(record(level, other, 7).edits_hash != task.edits_hash);
      CHECK(record(level, other, 7).parameters_hash != task.parameters_hash);
      other = params;
      other.allowed_token_ids.pop_back();
      CHECK(record(level, other, 7).edits_hash != task.edits_hash);
      CHECK(record(level, params, 9).edits_hash == task.edits_hash);
      CHECK(record(level, params, 9).overrides_hash != overrides);
      other = params;
      other.top_k = 20;
      CHECK(record(level, other, 7).edits_hash == task.edits_hash);
      CHECK(record(level, other, 7).parameters_hash != task.parameters_hash);
      // Behind an id that ends the draft no place is read, so its edits do not count.
      CHECK(record(level, params, -1).overrides_hash == record("rows", params, -1).overrides_hash);
    }
    const TraceTask plain = record("rounds", ParamsOf(VerifyMethod::kToken), 7);
    CHECK(plain.edits_hash != 0);
    CHECK(plain.overrides_hash == 0);
  }

  TEST_CASE("a trace has the times of every stage in order") {
    TracedSession traced({.trace_options = ""});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    traced.Round({TracedSession::Sampled(s)});
    traced.Finish();
    const TraceTimes times = traced.Read().rounds[0].times;
    CHECK(times.submitted == 1001);
    const std::array order = {times.taken, times.packed, times.ran, times.committed,
                              times.answered};
    CHECK(std::is_sorted(order.begin(), order.end()));
    CHECK(times.taken > 1001);
  }

  TEST_CASE("a trace shows rounds that were refused, finished or unknown") {
    TracedSession traced({.trace_options = ""});
    traced.FillRows(5);
    SequenceParams params = ParamsOf(VerifyMethod::kAuto);
    params.max_tokens = 1;
    const SequenceHandle s = traced.Open("s", params);
    traced.Round({TracedSession::Sampled(s)});
    traced.Round(
        {TracedSession::Sampled(s), TracedSession::Sampled(s + (SequenceHandle{5} << 32))});
    traced.Finish();
    const ReadTraceResult trace = traced.Read();
    REQUIRE(trace.rounds.size() == 2);
    CHECK(trace.rounds[0].answers[0].finish_reason == FinishReason::kLength);
    CHECK(trace.rounds[1].tasks.empty());
    REQUIRE(trace.rounds[1].answers.size() == 2);
    CHECK(trace.rounds[1].answers[0].status == RoundStatus::kFinished);
    CHECK(trace.rounds[1].answers[1].status == RoundStatus::kUnknownSequence);
  }

  TEST_CASE("an untraced session shows its rounds to no one") {
    TracedSession traced({.trace_options = "", .has_recorder = false});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    traced.Round({TracedSession::Sampled(s)});
    const auto dump = traced.session->DumpTrace();
    REQUIRE(!dump.ok());
    CHECK(dump.status().message().find("--trace=DIR") != std::string::npos);
    CHECK(traced.traces().empty());
  }
}

}  // namespace
}  // namespace specd::test
