// Records with flipped bits: whatever decodes is refused or runs; nothing crashes.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "daemon/trace/trace_codec.h"
#include "tools/replay/anonymiser.h"
#include "tools/replay/grammar_check.h"
#include "tools/replay/named_backend.h"
#include "tools/replay/place_rows.h"
#include "tools/replay/place_view.h"
#include "tools/replay/report_data.h"
#include "tools/replay/round_rebuilder.h"
#include "tools/replay/scalar_check.h"
#include "tools/replay/step_comparison.h"
#include "tools/replay/step_digest.h"
#include "tools/replay/task_rules.h"
#include "tools/replay/tree_view.h"
#include "tools/replay/verify_command.h"

namespace specd::replay {
namespace {

constexpr int32_t kVocab = 64;
constexpr char kTrace[] = SPECD_SOURCE_DIR "/tests/data/traces/chains.mcap";
constexpr char kTrees[] = SPECD_SOURCE_DIR "/tests/data/traces/trees.mcap";

struct Recording {
  TraceInfo info;
  std::vector<TraceRound> rounds;
  const RowFileReader* rows = nullptr;
};

Recording Read(TraceReader* reader) {
  Recording recording;
  TraceItem item;
  for (;;) {
    const auto more = reader->Next(&item);
    REQUIRE_MESSAGE(more.ok(), more.status().ToString());
    if (!*more) break;
    if (const auto* info = std::get_if<TraceInfo>(&item.record)) {
      recording.info = *info;
      REQUIRE(reader->Rows().ok());
    }
    if (const auto* round = std::get_if<TraceRound>(&item.record)) {
      recording.rounds.push_back(*round);
    }
  }
  recording.rows = *reader->Rows();
  return recording;
}

class Uses {
 public:
  Uses() : backend_(*MakeNamedBackend("scalar"), 1) {}

  // Everything that commands do with a round.
  void All(const TraceRound& round, const RowFileReader* rows, const TraceInfo& info) {
    RoundRebuilder rebuilder(kVocab);
    rebuilder.Rebuild(round, rows);
    if (!rebuilder.tasks().empty()) {
      ++num_run;
      REQUIRE(backend_.Run(&rebuilder).ok());
      PlaceRows place_rows(&backend_);
      REQUIRE(place_rows.Read(rebuilder, 0, 0).ok());
      (void)place_rows.Best(4, {-5, 1 << 30});
    }
    GrammarCheck grammar;
    grammar.Begin(round);
    for (const TraceTask& task : round.tasks) {
      (void)grammar.Check(task, 1);
      (void)DigestOf(round, task);
      (void)CompareSteps(round, task, round, round.tasks[0]);
      if (!CheckTask(round, task, kVocab).ok()) continue;
      (void)CheckScalars(task, kVocab);
      if (DraftTree::IsTree(task)) {
        PlaceRows place_rows(&backend_);
        REQUIRE(ViewTree(task, kVocab, &place_rows, nullptr, 0).ok());
      }
      for (int32_t i = 0; i < NumPlaces(task); ++i) (void)Why(ViewPlace(info, task, i));
    }
    ReportData report({}, TokenText(), &backend_);
    REQUIRE(report.Take({info, 0, 0}, nullptr, 0).ok());
    const absl::Status taken = report.Take({round, 0, 0}, rows, 0);
    // Rows that the record names and the file does not have.
    if (!taken.ok()) REQUIRE(taken.message().find(rows->path()) != std::string::npos);
    (void)report.Json("x", {}, "");
    Anonymiser anonymiser;
    TraceInfo hidden = info;
    TraceRound copy = round;
    anonymiser.Take(&hidden);
    anonymiser.Take(&copy);
  }

  int num_run = 0;

 private:
  ReplayBackend backend_;
};

TEST_SUITE("replay") {
  TEST_CASE("flipped bits of records never crash a reader") {
    const char* path = nullptr;
    SUBCASE("chains") { path = kTrace; }
    SUBCASE("trees") { path = kTrees; }
    TraceReader reader({path});
    const Recording recording = Read(&reader);
    Uses uses;
    std::mt19937 random(20261124);
    int num_decoded = 0;
    const char* const wanted = std::getenv("SPECD_REPLAY_TRIALS");  // more than CI has time for
    const int num_trials = wanted == nullptr ? 1500 : std::atoi(wanted);
    for (int trial = 0; trial < num_trials; ++trial) {
      const TraceRound& round = recording.rounds[random() % recording.rounds.size()];
      std::string bytes;
      EncodeTrace(round, &bytes);
      const size_t flips = 1 + random() % 3;
      for (size_t i = 0; i < flips; ++i) {
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
      }
      const auto decoded = DecodeTrace<TraceRound>(bytes);
      if (!decoded.ok()) continue;
      ++num_decoded;
      CAPTURE(trial);
      uses.All(*decoded, recording.rows, recording.info);
    }
    CHECK(num_decoded > 100);
    CHECK(uses.num_run > 50);
  }

  TEST_CASE("numbers that no recorder writes are refused by name") {
    TraceReader reader({kTrace});
    const Recording recording = Read(&reader);
    const TraceRound& round = recording.rounds[1];
    const auto refusal = [&](auto change) {
      TraceTask task = round.tasks[3];
      change(&task);
      return std::string(CheckTask(round, task, kVocab).message());
    };
    using T = TraceTask*;
    CHECK(refusal([](T) {}).empty());
    CHECK(refusal([](T t) { t->tokens.resize(65); }).find("tokens") != std::string::npos);
    CHECK(refusal([](T t) { t->target_rows.push_back(0); }).find("target_rows") !=
          std::string::npos);
    CHECK(refusal([](T t) { t->parents = {-1, -1}; }).find("parents") != std::string::npos);
    CHECK(refusal([](T t) { t->target_scale = NAN; }).find("target_scale") != std::string::npos);
    CHECK(refusal([](T t) { t->target_filters.top_p = 0; }).find("top_p") != std::string::npos);
    CHECK(refusal([](T t) { t->chosen = {kVocab}; }).find("chosen") != std::string::npos);
    CHECK(refusal([](T t) {
            t->edits = {{.id = 4}, {.id = 3}};
          }).find("edits") != std::string::npos);
    CHECK(refusal([](T t) {
            t->coins = {{{}, uint64_t{1} << 53}};
          }).find("coins") != std::string::npos);
    CHECK(refusal([](T t) { t->outcome.num_tokens = 90; }).find("num_tokens") != std::string::npos);
    CHECK(refusal([](T t) { t->answer = 99; }).find("answer") != std::string::npos);
    CHECK(refusal([](T t) { t->method = VerifyMethod::kAuto; }).find("method") !=
          std::string::npos);
  }

  TEST_CASE("rows outside the row file are no rows") {
    TraceReader reader({kTrace});
    const Recording recording = Read(&reader);
    TraceRound round = recording.rounds[1];
    RecordedRows rows;
    round.rows[0].offset = ~uint64_t{0} - 8;
    rows.Begin(round, kVocab, recording.rows);
    CHECK(rows.Load(round.rows[0].tensor, round.rows[0].index).status().code() ==
          absl::StatusCode::kDataLoss);
    CHECK_FALSE(rows.Load(TraceTensor::kTarget, 12345)->has_value());
  }
}

}  // namespace
}  // namespace specd::replay
