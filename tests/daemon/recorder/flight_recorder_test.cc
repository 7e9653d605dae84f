// The flight recorder: what it keeps, and each trigger that has it written.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/recorder/flight_log.h"
#include "daemon/recorder/shadow_check.h"
#include "tests/daemon/recorder/traced_session.h"
#include "tests/support/eventually.h"
#include "tests/support/scripted_backend.h"

namespace specd::test {
namespace {

std::string CauseOf(const ReadTraceResult& trace) {
  for (const McapMetadata& metadata : trace.metadata) {
    if (metadata.name != "trigger") continue;
    for (const auto& [key, value] : metadata.values) {
      if (key == "cause") return value;
    }
  }
  return {};
}

void RunRounds(TracedSession* traced, SequenceHandle sequence, int count) {
  for (int i = 0; i < count; ++i) traced->Round({TracedSession::Sampled(sequence)});
}

// Waits until the file of a trigger is complete.
ReadTraceResult Await(TracedSession* traced, size_t num_files = 1) {
  REQUIRE(Eventually([&] { return traced->lines.size() >= num_files; }));
  const std::vector<std::string> paths = traced->traces();
  REQUIRE(paths.size() == num_files);
  return ReadTrace(paths.back());
}

TEST_SUITE("unit") {
  TEST_CASE("a flight recorder writes nothing until it is asked, and then its last rounds") {
    TracedSession traced({.trace_options = "flight=5,level=rows"});
    traced.FillRows(5, 0.3f);
    const SequenceHandle old = traced.Open("old");
    RunRounds(&traced, old, 3);
    REQUIRE(traced.session->CloseSequence(old).ok());
    // The close of a sequence that runs is an abort.
    const SequenceHandle s = traced.Open("s");
    RunRounds(&traced, s, 20);
    const ReadTraceResult aborted = Await(&traced);
    CHECK(CauseOf(aborted) == "abort");
    const auto dump = traced.session->DumpTrace();
    REQUIRE_MESSAGE(dump.ok(), std::string(dump.status().message()));
    CHECK(dump->num_rounds == 5);
    const ReadTraceResult trace = ReadTrace(dump->path);
    CHECK_FALSE(trace.is_torn);
    CHECK(CauseOf(trace) == "request");
    REQUIRE(trace.rounds.size() == 5);
    for (size_t i = 0; i < 5; ++i) {
      CHECK(trace.rounds[i].number == 19 + i);
      CHECK(trace.rounds[i].level == TraceLevel::kRows);
    }
    // Rows come with their rounds, and openings with the sequences that the rounds name.
    const std::string rows = traced.directory + "/" + trace.infos[0].row_file;
    const TraceRow& row = trace.rounds[4].rows[1];
    const std::vector<float> expected(traced.TargetRow(row.index),
                                      traced.TargetRow(row.index) + TracedSession::kVocab);
    CHECK(RowFloats(rows, row.offset, TracedSession::kVocab) == expected);
    REQUIRE(trace.Opening(s) != nullptr);
    const TraceAnswer& first = trace.rounds[0].answers[0];
    CHECK(trace.Opening(s)->kept_tokens == first.total_kept - first.num_kept);
    CHECK(trace.Opening(old) == nullptr);
  }

  TEST_CASE("a flight recorder keeps no more bytes than its buffer") {
    TracedSession traced({.trace_options = "flight=1000000,level=rows,buffer_mib=1"});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    for (int i = 0; i < 15; ++i) {
      RunRounds(&traced, s, 100);
      REQUIRE(traced.session->DumpTrace().ok());  // the writer has caught up
    }
    const auto dump = traced.session->DumpTrace();
    REQUIRE(dump.ok());
    CHECK(dump->num_rounds > 100);
    CHECK(dump->num_rounds < 800);
    CHECK(dump->num_lost == 0);
    CHECK(ReadTrace(dump->path).rounds.back().number == 1500);
  }

  TEST_CASE("openings and ends count as bytes of the flight log too") {
    FlightLog log(1000, 1 << 16);
    TraceOpening opening;
    opening.request_id.assign(1000, 'r');
    for (uint64_t i = 1; i <= 1000; ++i) {
      opening.sequence = i;
      log.Add(opening);
      log.Add(TraceEnd{.sequence = i});
    }
    CHECK(log.entries().size() < 140);
    CHECK(log.OpenedHere().contains(1000));
    CHECK_FALSE(log.OpenedHere().contains(1));
  }

  TEST_CASE("answers without a commit say nothing of the tokens that were kept before") {
    // A file said that a sequence had kept nothing, where the device had failed in its first round.
    const auto flight_of = [](RoundStatus status, uint32_t num_kept, uint32_t total_kept) {
      FlightRound flight;
      flight.round.answers = {
          {.sequence = 7, .status = status, .num_kept = num_kept, .total_kept = total_kept}};
      return flight;
    };
    for (const RoundStatus status : {RoundStatus::kAborted, RoundStatus::kDeviceError,
                                     RoundStatus::kInvalid, RoundStatus::kUnknownSequence}) {
      FlightLog log(10, 1 << 20);
      log.Add(flight_of(status, 0, 0));
      CHECK(log.KeptBefore().empty());
      log.Add(flight_of(RoundStatus::kOk, 3, 12));
      log.Add(flight_of(RoundStatus::kOk, 2, 14));
      CHECK(log.KeptBefore().at(7) == 9);
    }
  }

  TEST_CASE("trigger bad_row: the round with the bad row is the last of the file") {
    TracedSession traced({.trace_options = "flight=8,triggers=bad_row"});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    RunRounds(&traced, s, 10);
    traced.TargetRow(0)[3] = NAN;
    CHECK(traced.Round({TracedSession::Sampled(s)})[0].status == RoundStatus::kBadDistribution);
    const ReadTraceResult trace = Await(&traced);
    CHECK(CauseOf(trace) == "bad_row");
    REQUIRE(trace.rounds.size() == 8);
    CHECK(trace.rounds.back().number == 11);
    CHECK(trace.rounds.back().tasks[0].outcome.status == OutcomeStatus::kBadTargetRow);
    CHECK(trace.rounds.back().tasks[0].outcome.fault == RowFault::kNan);
    CHECK(trace.rounds.back().tasks[0].decisions[0].bad_target);
    // The end of the session aborts nothing: the sequence has ended, and abort is no trigger.
    traced.Finish();
    CHECK(traced.traces().size() == 1);
  }

  TEST_CASE("trigger abort: one file for many aborts at once") {
    TracedSession traced({.trace_options = "flight=8"});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    traced.Open("t");
    traced.Open("u");
    RunRounds(&traced, s, 2);
    traced.Finish();  // the engine is gone
    const std::vector<std::string> paths = traced.traces();
    REQUIRE(paths.size() == 1);
    const ReadTraceResult trace = ReadTrace(paths[0]);
    CHECK(CauseOf(trace) == "abort");
    CHECK(trace.rounds.size() == 2);
    CHECK(trace.ends.size() == 1);
  }

  TEST_CASE("trigger mismatch: a backend that answers wrongly is found by the check") {
    auto scripted = std::make_unique<ScriptedBackend>();
    ScriptedBackend* const backend = scripted.get();
    TracedSession traced({.trace_options = "flight=8,level=rows,check=1,triggers=mismatch",
                          .backend = std::move(scripted)});
    traced.FillRows(5);
    for (uint32_t i = 0; i < 64; ++i) traced.TargetRow(0)[i] = i == 9 ? 30.0f : 0.0f;
    const SequenceHandle s = traced.Open("s", 0.0);
    const DraftOf draft = {.sequence = s, .tokens = {}, .target_rows = {0}};
    backend->script = {Confirm(0, {9}), Confirm(0, {8})};
    traced.Round({draft});
    traced.Round({draft});
    REQUIRE(Eventually([&] { return traced.traces().size() == 1 && traced.lines.size() == 2; }));
    CHECK(traced.lines.Contain("token 0 is 8, and the CPU has 9"));
    const ReadTraceResult trace = ReadTrace(traced.traces()[0]);
    CHECK(CauseOf(trace) == "mismatch");
    CHECK(trace.rounds.back().number == 2);
  }

  TEST_CASE("a check finds nothing in rounds of the CPU, whatever they hold") {
    TracedSession traced({.trace_options = "level=rows,check=1"});
    std::mt19937_64 random(4);
    std::vector<SequenceHandle> sequences;
    for (int i = 0; i < 4; ++i) {
      SequenceParams params;
      params.verify = i == 0   ? VerifyMethod::kToken
                      : i == 1 ? VerifyMethod::kBlock
                               : VerifyMethod::kAuto;
      params.temperature = i == 3 ? 0.0 : 0.9;
      params.max_tokens = 100'000;
      params.repetition_penalty = i % 2 == 0 ? 1.2 : 1.0;
      params.top_k = i == 1 ? 10 : 0;
      params.logprobs = i == 2 ? 3 : -1;
      params.allowed_token_ids =
          i == 3 ? std::vector<TokenId>{1, 2, 3, 5, 8, 13} : std::vector<TokenId>{};
      sequences.push_back(traced.Open("s" + std::to_string(i), params));
    }
    for (int round = 0; round < 100; ++round) {
      traced.FillRows(random(), 1.0f);
      *traced.MaskRow(2) = static_cast<uint32_t>(random()) | 1;
      std::vector<DraftOf> drafts;
      for (const SequenceHandle s : sequences) {
        drafts.push_back(TracedSession::Sampled(
            s, {static_cast<TokenId>(random() % 63), static_cast<TokenId>(random() % 63), 64}));
        drafts.back().kinds[2] = random() % 2 == 0 ? DraftKind::kOneHot : DraftKind::kSampled;
        drafts.back().mask_rows = {-1, 2, 2, -1};
      }
      traced.Round(drafts);
    }
    traced.Finish();
    CHECK(traced.lines.size() == 0);
    const ReadTraceResult trace = traced.Read();
    CHECK(trace.rounds.size() == 100);
    CHECK(trace.metadata.empty());
  }

  TEST_CASE("a check leaves out tasks whose draft rows lie on a device") {
    constexpr int32_t kVocab = 8;
    const BackendLimits limits = {
        .vocab_size = kVocab, .max_batch = 1, .max_draft = 1, .num_slots = 1};
    const float row[kVocab] = {};
    RowCopy rows[] = {{.index = 0, .bytes = reinterpret_cast<const std::byte*>(row)},
                      {.index = 1, .bytes = reinterpret_cast<const std::byte*>(row)}};
    const TokenId token = 3;
    const DraftKind kind = DraftKind::kSampled;
    const uint32_t target_rows[] = {0, 1};
    const uint32_t draft_row = 0;
    TraceAnswer answer;
    TaskCopy task;
    task.task.draft = {.num_nodes = 1,
                       .tokens = &token,
                       .kinds = &kind,
                       .target_rows = target_rows,
                       .draft_rows = &draft_row};
    task.task.target_scale = task.task.draft_scale = 1;
    task.outcome = {.num_accepted = 0, .num_tokens = 1, .num_drafts = 1};
    task.tokens = &token;
    RoundCopy round;
    round.level = TraceLevel::kRows;
    round.target.num_rows = 2;
    round.target.row_stride = kVocab;
    round.target.vocab_size = kVocab;
    round.draft = round.target;
    round.draft.space = MemorySpace::kOtherDevice;
    round.tasks = {&task, 1};
    round.rows = rows;
    round.answers = {&answer, 1};
    auto check = ShadowCheck::Create(limits);
    REQUIRE(check.ok());
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      task.task.method = method;
      CHECK((*check)->FindDifference(round).empty());
      CHECK((*check)->num_checked() == 0);
    }
    // A method that reads no draft row is checked.
    task.task.method = VerifyMethod::kGreedy;
    CHECK_FALSE((*check)->FindDifference(round).empty());  // the argmax is 0
    CHECK((*check)->num_checked() == 1);
    // And not without the target row that it reads.
    round.rows = {rows + 1, 1};
    CHECK((*check)->FindDifference(round).empty());
    CHECK((*check)->num_checked() == 1);
  }

  TEST_CASE("trigger signal: every session writes a file") {
    TracedSession traced({.trace_options = "flight=8"});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    RunRounds(&traced, s, 3);
    traced.recorder->DumpAll();
    const ReadTraceResult trace = Await(&traced);
    CHECK(CauseOf(trace) == "signal");
    CHECK(trace.rounds.size() == 3);
    traced.recorder->DumpAll();  // without new rounds
    const auto asked = traced.session->DumpTrace();
    REQUIRE(asked.ok());
    CHECK(traced.traces() == std::vector<std::string>{asked->path});
  }

  TEST_CASE("bug: every request without a new round wrote one more file") {
    TracedSession traced({.trace_options = "flight=8"});
    traced.FillRows(5);
    // The first request is answered with a file, even if there were no rounds.
    const auto empty = traced.session->DumpTrace();
    REQUIRE(empty.ok());
    CHECK(empty->num_rounds == 0);
    const SequenceHandle s = traced.Open("s");
    RunRounds(&traced, s, 3);
    const auto first = traced.session->DumpTrace();
    REQUIRE(first.ok());
    CHECK(first->path != empty->path);
    for (int i = 0; i < 100; ++i) {
      const auto again = traced.session->DumpTrace();
      REQUIRE(again.ok());
      CHECK(again->path == first->path);
      CHECK(again->num_rounds == 3);
    }
    CHECK(traced.traces() == std::vector<std::string>{empty->path, first->path});
    // A file that was taken away is written again.
    std::filesystem::remove(first->path);
    const auto anew = traced.session->DumpTrace();
    REQUIRE(anew.ok());
    CHECK(ReadTrace(anew->path).rounds.size() == 3);
  }

  TEST_CASE("bug: the files of a flight recorder had no bound in number") {
    TracedSession traced({.trace_options = "flight=8,total_files=5"});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    std::string last;
    for (int i = 0; i < 40; ++i) {
      RunRounds(&traced, s, 1);
      const auto dump = traced.session->DumpTrace();
      REQUIRE(dump.ok());
      last = dump->path;
      CHECK(traced.traces().size() <= 5);
    }
    const std::vector<std::string> paths = traced.traces();
    REQUIRE(paths.size() == 5);
    CHECK(std::find(paths.begin(), paths.end(), last) != paths.end());
    CHECK(ReadTrace(last).rounds.back().number == 40);
  }

  TEST_CASE(
      "trigger request: refused by name if it is off, and without a flight the file is named") {
    TracedSession off({.trace_options = "flight=8,triggers=abort"});
    const auto refused = off.session->DumpTrace();
    REQUIRE(!refused.ok());
    CHECK(std::string(refused.status().message()).find("\"request\"") != std::string::npos);

    TracedSession traced({.trace_options = ""});
    traced.FillRows(5);
    const SequenceHandle s = traced.Open("s");
    RunRounds(&traced, s, 3);
    const auto dump = traced.session->DumpTrace();
    REQUIRE(dump.ok());
    CHECK(dump->num_rounds == 3);
    CHECK(ReadTrace(dump->path).rounds.size() == 3);  // torn, and up to date
    RunRounds(&traced, s, 1);
    traced.Finish();
    CHECK(traced.Read().rounds.size() == 4);
  }
}

}  // namespace
}  // namespace specd::test
