// Sentences, tables, intervals and files of specd-replay.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tools/replay/grammar_check.h"
#include "tools/replay/interval.h"
#include "tools/replay/json_table.h"
#include "tools/replay/json_text.h"
#include "tools/replay/names.h"
#include "tools/replay/output_file.h"
#include "tools/replay/place_view.h"
#include "tools/replay/reason_counts.h"
#include "tools/replay/scalar_check.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/step_comparison.h"
#include "tools/replay/step_digest.h"
#include "tools/replay/token_text.h"
#include "tools/replay/what_if.h"
#include "tools/terminal/terminal.h"

namespace specd::replay {
namespace {

constexpr uint64_t kHalf = uint64_t{1} << 52;  // the coin 0.5
const TraceInfo kInfo = [] {
  TraceInfo info;
  info.vocab_size = 8;
  return info;
}();

// A task of `token` with one draft token, p = 0.25, q = 0.5, u = 0.5: the threshold itself.
TraceTask OneToken() {
  TraceTask task;
  task.method = VerifyMethod::kToken;
  task.tokens = {7};
  task.kinds = {DraftKind::kSampled};
  task.outcome = {.num_accepted = 0, .num_tokens = 1, .num_drafts = 1};
  task.confirmed = {3};
  task.decisions.resize(2);
  task.coins = {{{0, 0, 1, Purpose::kAccept}, kHalf}, {{0, 0, 0, Purpose::kResidual}, kHalf}};
  PlaceDecision& d = task.decisions[0];
  d.judged = true;
  d.token = 3;
  d.p_weight = 0.25f;
  d.p_mass = 1;
  d.q_weight = 0.5f;
  d.q_mass = 1;
  d.accept_coin = kHalf;
  d.draw_coin = kHalf;
  d.draw_purpose = Purpose::kResidual;
  return task;
}

TEST_SUITE("replay") {
  TEST_CASE("the reason of a rejection is a sentence with its numbers") {
    TraceTask task = OneToken();
    CHECK(Why(ViewPlace(kInfo, task, 0)) == "rejected: u = 0.5 is not below p/q = 0.5");
    CHECK(WhyInWords(ViewPlace(kInfo, task, 0)) == "rejected: u is not below p/q");
    CHECK(Why(ViewPlace(kInfo, task, 1)) == "not judged: the draft ended before this place");
    task.decisions[0].p_weight = 0;
    CHECK(Why(ViewPlace(kInfo, task, 0)) ==
          "rejected: p is 0, so the target never gives this token");
    task.decisions[0].zero_step = ZeroStep::kTopK;
    CHECK(WhyInWords(ViewPlace(kInfo, task, 0)) ==
          "rejected: p is 0, so the target never gives this token; the cause of p = 0: top_k");
    task.decisions[0].zero_step = ZeroStep::kNone;
    task.decisions[0].p_weight = 0.75f;
    task.decisions[0].stands = true;
    CHECK(Why(ViewPlace(kInfo, task, 0)) ==
          "accepted: p/q = 1.5 is 1 or more, and every u is below that");
    task.method = VerifyMethod::kExactMatch;
    task.decisions[0].stands = false;
    CHECK(Why(ViewPlace(kInfo, task, 0)) ==
          "rejected: the SAMPLE coin draws another id (3) from p");
  }

  TEST_CASE("block: u against h") {
    TraceTask task = OneToken();
    task.method = VerifyMethod::kBlock;
    task.decisions[0].bound = 0.5;
    CHECK(Why(ViewPlace(kInfo, task, 0)) ==
          "rejected: u = 0.5 is not below h = 0.5, and no longer part of the draft is accepted");
    task.decisions[0].stands = true;
    task.decisions[0].bound = 0.75;
    CHECK(Why(ViewPlace(kInfo, task, 0)) ==
          "accepted: u = 0.5 is below h = 0.75, so the draft up to here is accepted");
  }

  TEST_CASE("block: a record may have u without h") {
    TraceTask task = OneToken();
    task.method = VerifyMethod::kBlock;
    CHECK(Why(ViewPlace(kInfo, task, 0)) ==
          "rejected: u = 0.5 is not below h, and no longer part of the draft is accepted");
    task.decisions[0].judged = false;  // a place after the end, which the walk has met
    CHECK(ViewPlace(kInfo, task, 0).verdict == ShownVerdict::kRejected);
    task.decisions[0].judged = task.decisions[0].stands = true;
    CHECK(Why(ViewPlace(kInfo, task, 0)) ==
          "accepted: u = 0.5 is below h, so the draft up to here is accepted");
    task.decisions[0].accept_coin = kNoCoin;
    CHECK(Why(ViewPlace(kInfo, task, 0)) == "accepted: a longer part of the draft is accepted");
  }

  TEST_CASE("scalars: where a record of block lacks h, the residual has that of the last token") {
    // P_1 = 0.5, P_2 = 0.25, S_1 = 0.25 and h_1 = S_1 / (S_1 + 1 - P_1) = 1 / 3.
    const auto differences = [](uint64_t coin, double first_bound) {
      TraceTask task = OneToken();
      task.method = VerifyMethod::kBlock;
      task.tokens = {7, 6};
      task.kinds = {DraftKind::kSampled, DraftKind::kSampled};
      task.outcome = {.num_accepted = 1, .num_tokens = 2, .num_drafts = 2};
      task.confirmed = {7, 3};
      task.coins = {{{0, 0, 1, Purpose::kAccept}, coin},
                    {{1, 0, 2, Purpose::kAccept}, kHalf},
                    {{1, 0, 1, Purpose::kResidual}, kHalf}};
      task.decisions = {task.decisions[0], task.decisions[0], PlaceDecision()};
      PlaceDecision& first = task.decisions[0];
      first.stands = true;
      first.token = 7;
      first.accept_coin = coin;
      first.bound = first_bound;
      first.draw_coin = kNoCoin;
      PlaceDecision& last = task.decisions[1];
      last.prefix = 0.5;
      last.bound = 0.25;
      last.residual_mass = 0.25;
      return CheckScalars(task, 8).differences.size();
    };
    CHECK(differences(kHalf / 2, -1) == 0);
    CHECK(differences(kHalf, -1) == 1);
    CHECK(differences(kHalf / 2, 0.125) == 1);
  }

  TEST_CASE("scalars: the accept test is strict, and one bit of a coin is found") {
    TraceTask task = OneToken();
    const auto differences = [&] { return CheckScalars(task, 8).differences.size(); };
    CHECK(differences() == 0);
    // 0.5 * 0.5 is not below 0.25.
    task.decisions[0].stands = true;
    CHECK(differences() > 0);
    task.decisions[0].stands = false;
    task.decisions[0].p_weight = std::nextafter(0.25f, 1.0f);
    CHECK(differences() == 1);
    task = OneToken();
    task.decisions[0].accept_coin ^= 1;
    CHECK(differences() > 0);
    // A record that lacks a part is not equal.
    task = OneToken();
    task.decisions[0].accept_coin = kNoCoin;
    CHECK(differences() == 1);
    task = OneToken();
    task.decisions[0].draw_coin = kNoCoin;
    CHECK(differences() == 1);
    task = OneToken();
    task.decisions[0] = PlaceDecision();
    CHECK(differences() == 1);
  }

  TEST_CASE("an id outside the vocabulary ends the draft: it is not drafted, and not rejected") {
    // Only -1 ended it: then the other id counted as drafted, and a place of `greedy` as rejected.
    TraceTask task = OneToken();
    task.method = VerifyMethod::kGreedy;
    task.tokens = {8, 3};
    task.kinds.clear();
    task.coins.clear();
    task.decisions.resize(3);
    task.decisions[0].judged = true;
    task.decisions[0].token = 3;
    CHECK(NumDrawn(task, 8) == 0);
    CHECK(NumDrawn(task, 9) == 2);
    CHECK(ViewPlace(kInfo, task, 0).verdict == ShownVerdict::kEnds);
    CHECK(Why(ViewPlace(kInfo, task, 0)) ==
          "the draft token (8) is outside the vocabulary, so the draft ends here");
    task.tokens[0] = kNoToken;
    CHECK(Why(ViewPlace(kInfo, task, 0)) == "no draft token here: the argmax follows");
    task.tokens[0] = 8;
    task.decisions.clear();
    CHECK(ViewPlace(kInfo, task, 0).verdict == ShownVerdict::kEnds);
    TraceRound round;
    round.answers = {{.sequence = 5, .num_kept = 1}};
    round.tasks = {task};
    SequenceBook book;
    TraceItem item;
    item.record = kInfo;
    book.Take(item);
    item.record = round;
    book.Take(item);
    CHECK(book.Find(5)->num_drafted == 0);
    CHECK_FALSE(book.Find(5)->had_rejection);
  }

  TEST_CASE("scalars: an emitted token that is not the argmax differs, without decisions too") {
    TraceTask task;
    task.method = VerifyMethod::kGreedy;
    task.tokens = {5, 6};
    task.target_argmax = {5, 7, 3};
    task.outcome = {.num_accepted = 1, .num_tokens = 2, .num_drafts = 2};
    task.confirmed = {5, 7};
    CHECK(CheckScalars(task, 8).differences.empty());
    task.confirmed = {5, 4};
    CHECK(CheckScalars(task, 8).differences.size() == 1);
  }

  TEST_CASE("diff looks at both numbers of the side channel") {
    TraceRound round;
    TraceTask a = OneToken();
    a.draft_weights = {0.5f};
    a.draft_masses = {1.0};
    TraceTask b = a;
    CHECK(DigestOf(round, a).MayEqual(DigestOf(round, b)));
    b.draft_masses = {2.0};
    CHECK_FALSE(DigestOf(round, a).MayEqual(DigestOf(round, b)));
    const std::vector<StepDifference> differences = CompareSteps(round, a, round, b);
    REQUIRE(differences.size() == 1);
    CHECK(differences[0].cause == "draft");
  }

  TEST_CASE("states of a constraint without room are counted, and known ones are still compared") {
    const auto round_of = [](uint64_t number, uint64_t hash) {
      TraceRound round;
      round.number = number;
      round.rows = {{.tensor = TraceTensor::kGrammarMask, .index = 0, .hash = hash}};
      return round;
    };
    const auto task_of = [](uint64_t state) {
      TraceTask task;
      task.places.resize(1);
      task.places[0].grammar_state = state;
      task.places[0].grammar_mask = 0;
      return task;
    };
    GrammarCheck check(2);
    check.Begin(round_of(1, 11));
    for (uint64_t state = 1; state <= 4; ++state) CHECK(check.Check(task_of(state), 1).empty());
    for (SequenceHandle sequence = 2; sequence < 6; ++sequence) {
      CHECK(check.Check(task_of(1), sequence).empty());
    }
    CHECK(check.num_not_compared() == 6);
    check.Begin(round_of(2, 12));
    CHECK(check.Check(task_of(2), 1).size() == 1);
    CHECK(check.Check(task_of(3), 1).empty());  // not known
    CHECK(check.num_not_compared() == 7);
    // The close of a sequence makes room.
    check.Forget(1);
    CHECK(check.Check(task_of(3), 1).empty());
    CHECK(check.num_not_compared() == 7);
    check.Begin(round_of(3, 13));
    CHECK(check.Check(task_of(3), 1).size() == 1);
  }

  TEST_CASE("reasons that differ in numbers only are one") {
    ReasonCounts reasons;
    reasons.Add("row 5 at byte 77");
    reasons.Add("other");
    reasons.Add("row 16 at byte 8");
    std::vector<std::string> lines;
    for (const auto& reason : reasons) {
      lines.push_back(std::to_string(reason.second.count) + " " + TextOf(reason));
    }
    CHECK(lines == std::vector<std::string>{"1 other", "2 row 5 at byte 77 (the first of them)"});
  }

  TEST_CASE("intervals against values of tables") {
    // Brown, Cai, DasGupta 2001: Wilson for 0 of 10 ends at z^2 / (n + z^2).
    CHECK(Wilson(0, 10).high == doctest::Approx(3.841459 / 13.841459));
    CHECK(Wilson(0, 10).low == 0);
    CHECK(Wilson(5, 10).low == doctest::Approx(1 - Wilson(5, 10).high));
    // Student's t, 0.975: tables of Abramowitz and Stegun 26.10.
    CHECK(Student95(1) == doctest::Approx(12.706).epsilon(1e-4));
    CHECK(Student95(3) == doctest::Approx(3.182).epsilon(1e-3));
    CHECK(Student95(10) == doctest::Approx(2.228).epsilon(3e-4));
    CHECK(Student95(120) == doctest::Approx(1.980).epsilon(3e-4));
    // One value in each group: the textbook interval of a mean. s = 1, n = 3.
    const double values[] = {1, 2, 3};
    const uint32_t groups[] = {0, 1, 2};
    const Mean mean = ClusteredMean(values, groups);
    CHECK(mean.mean == 2);
    CHECK(mean.half_width == doctest::Approx(4.302652730 / std::sqrt(3.0)));
    const uint32_t one[] = {0, 0, 0};
    CHECK(std::isinf(ClusteredMean(values, one).half_width));
  }

  TEST_CASE("names from a trace cannot steer the terminal") {
    CHECK(SafeText("a\x1b[2J\r\n\x7f") == "a\\x1b[2J\\x0d\\x0a\\x7f");
    CHECK(SafeText("\xc2\x9b"
                   "31m") == "\\xc2\\x9b31m");  // CSI of C1 as UTF-8
    CHECK(SafeText("\x9b"
                   "31m\xe4") == "\\x9b31m\\xe4");  // and as a byte
    CHECK(SafeText("\xc3\xa4 \xe2\x82\xac") == "\xc3\xa4 \xe2\x82\xac");
    CHECK(SafeText("\xe0\x82\x9b\xf0\x80") == "\\xe0\\x82\\x9b\\xf0\\x80");
    CHECK(SafeText("").empty());
  }

  TEST_CASE("text of tokens is safe for a terminal and for a page") {
    CHECK(Quoted("a\x1b[31m\n\"\xff") == "\"a\\x1b[31m\\n\\\"\\xff\"");
    CHECK(Quoted("\xc2\x9b") == "\"\\u009b\"");
    CHECK(Quoted("\xe4\xbd\xa0") == "\"\xe4\xbd\xa0\"");
    CHECK(JsonString("</script>\xff\x01") == "\"\\u003c/script>\\udcff\\u0001\"");
    CHECK(CharacterSize("\xed\xa0\x80") == 0);  // a surrogate
    CHECK(CharacterSize("\xc0\x80") == 0);      // overlong
    CHECK(JsonNumber(NAN) == "null");
    CHECK(JsonNumber(0.1) == "0.1");
    CHECK(JsonNumber(3) == "3");
  }

  TEST_CASE("a table leaves out a column of nulls") {
    JsonTable table({"a", "b"});
    CHECK(table.Json().empty());
    table.Add({"1", "null"});
    table.Add({"null", "null"});
    CHECK(table.Json() == "{\"a\": [1,null]}");
  }

  TEST_CASE("an output file appears whole or not at all") {
    const std::string folder =
        std::filesystem::temp_directory_path() / ("specd-replay-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder);
    const std::string path = folder + "/out";
    {
      auto file = OutputFile::Create(path);
      REQUIRE(file.ok());
      REQUIRE(file->Write("half").ok());
    }
    CHECK(std::filesystem::is_empty(folder));
    REQUIRE(WriteText(path, "whole").ok());
    std::ifstream in(path);
    std::string text;
    in >> text;
    CHECK(text == "whole");
    CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
    CHECK(std::filesystem::status(path).permissions() ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    // A link that lies where the temporary file would is not followed, and stays.
    const std::string link = path + "." + std::to_string(getpid()) + ".part";
    std::filesystem::create_symlink(folder + "/elsewhere", link);
    CHECK_FALSE(WriteText(path, "x").ok());
    CHECK(std::filesystem::is_symlink(link));
    CHECK_FALSE(std::filesystem::exists(folder + "/elsewhere"));
    CHECK_FALSE(WriteText(folder + "/none/out", "x").ok());
    std::filesystem::remove_all(folder);
  }

  TEST_CASE("a round that was called off rejects nothing, and a close keeps the count of tokens") {
    TraceItem item;
    TraceRound round;
    round.number = 1;
    round.answers = {{.sequence = 5, .num_kept = 1, .total_kept = 4}};
    round.tasks = {OneToken()};
    SequenceBook book;
    item.record = kInfo;
    book.Take(item);
    item.record = round;
    book.Take(item);
    round.number = 2;
    round.status = RoundStatus::kAborted;
    round.answers = {{.sequence = 5, .status = RoundStatus::kAborted}};
    item.record = round;
    book.Take(item);
    round.status = RoundStatus::kOk;
    round.tasks[0].outcome.status = OutcomeStatus::kNoRoom;
    CHECK_FALSE(HasOutcome(round, round.tasks[0]));
    item.record = TraceEnd{.sequence = 5};
    book.Take(item);
    REQUIRE(book.Find(5) != nullptr);
    CHECK(book.Find(5)->num_drafted == 1);
    CHECK(book.Find(5)->total_kept == 4);
    CHECK(book.Find(5)->has_ended);
    CHECK(book.Find(5)->reason == FinishReason::kNone);
  }

  TEST_CASE("a stale handle is no sequence") {
    TraceItem item;
    SequenceBook book(SequenceBook::Keep::kOpen);
    TraceRound round;
    round.answers = {
        {.sequence = 5, .status = RoundStatus::kUnknownSequence},
        {.sequence = 6, .status = RoundStatus::kInvalid, .refusal = Refusal::kSequence},
        {.sequence = 7, .status = RoundStatus::kInvalid, .refusal = Refusal::kTree},
        {.sequence = 8}};
    item.record = round;
    book.Take(item);
    CHECK(book.Count().num_sequences == 2);
    CHECK(book.Find(5) == nullptr);
    CHECK(book.Find(6) == nullptr);
  }

  TEST_CASE("settings of rerun change a task") {
    const auto what = WhatIf::Parse({{"temperature", "0.5"}, {"top_k", "3"}}, "token");
    REQUIRE(what.ok());
    Task task;
    task.method = VerifyMethod::kBlock;
    task.target_scale = 1;
    CHECK(what->Apply(64, true, &task).empty());
    CHECK(task.method == VerifyMethod::kToken);
    CHECK(task.target_filters.top_k == 3);
    CHECK(task.target_scale == static_cast<float>(1.4426950408889634 / 0.5));
    CHECK_FALSE(what->Apply(64, false, &task).empty());
    CHECK(WhatIf::Parse({{"temperature", "0"}}, "")->Apply(64, true, &task).empty());
    CHECK(task.method == VerifyMethod::kGreedy);
  }

  TEST_CASE("another method takes nothing from a lossy one, nor filters to SGLang's generator") {
    Task lossy;
    lossy.method = VerifyMethod::kRelaxed;
    lossy.lossy = {.delta = .1, .num_best = 2, .is_greedy = true};
    lossy.target_scale = 1;
    Task cold = lossy;
    CHECK(WhatIf::Parse({}, "exact_match")->Apply(64, true, &lossy).empty());
    CHECK_FALSE(lossy.lossy.is_greedy);
    CHECK(lossy.lossy.num_best == 0);
    // A greedy task stays greedy under another temperature, unless a method is named.
    CHECK_FALSE(WhatIf::Parse({{"temperature", "0.8"}}, "")->Apply(64, true, &cold).empty());
    Task drawn;
    drawn.method = VerifyMethod::kExactMatch;
    drawn.rng = Rng::kSglang;
    drawn.target_scale = 1;
    CHECK_FALSE(WhatIf::Parse({{"top_p", "0.5"}}, "")->Apply(64, true, &drawn).empty());
    CHECK(WhatIf::Parse({{"top_k", "1"}}, "")->Apply(64, true, &drawn).empty());
    CHECK(drawn.method == VerifyMethod::kGreedy);
  }

  TEST_CASE("times and handles") {
    CHECK(TimeText(1'700'000'000'123'000'000) == "2023-11-14T22:13:20.123Z");
    CHECK(TimeText(-1) == "1969-12-31T23:59:59.999Z");
    CHECK(HandleText(uint64_t{1} << 32) == "0x100000000");
    CHECK(DurationText(14'800) == "14.8 us");
  }
}

}  // namespace
}  // namespace specd::replay
