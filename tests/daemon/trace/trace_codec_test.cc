// The records of a trace as bytes: nothing is lost, and nothing wrong is taken.
#include "daemon/trace/trace_codec.h"

#include <doctest/doctest.h>

#include <bit>
#include <limits>
#include <random>
#include <string>

#include "daemon/trace/trace_fields.h"

namespace specd {
namespace {

template <class T>
std::string BytesOf(const T& record) {
  std::string bytes;
  EncodeTrace(record, &bytes);
  return bytes;
}

TraceRound SomeRound() {
  TraceRound round;
  round.number = 7;
  round.round_id = std::numeric_limits<uint64_t>::max();
  round.level = TraceLevel::kRows;
  round.times = {.submitted = 1, .taken = 2, .packed = 3, .ran = 4, .committed = 5, .answered = 6};
  round.target.dtype = DType::kBFloat16;
  round.target.rules = {.kind = RowKind::kProbabilities, .renormalise = true, .scale = 0.5f};
  round.answers.resize(2);
  round.answers[1] = {.sequence = 0x1'0000'0003,
                      .status = RoundStatus::kInvalid,
                      .refusal = static_cast<Refusal>(kRefusalMax)};
  TraceTask& task = round.tasks.emplace_back();
  task.answer = 1;
  task.tokens = {5, -1, 70000};
  task.parents = {-1, 0, 0};
  task.kinds = {DraftKind::kSampled, DraftKind::kOneHot, DraftKind::kSampled};
  task.target_rows = {0, 1, 2, 4'000'000'000};
  task.draft_weights = {-0.0f, std::numeric_limits<float>::denorm_min()};
  task.draft_masses = {1e300, -0.0};
  task.method = VerifyMethod::kBlock;
  task.target_scale = 1.4426950408889634f;
  task.seed = 0xffff'ffff'ffff'fffe;
  task.target_filters = {.min_p = -3.5f, .top_k = 40, .top_p = 1, .joint = true};
  task.coins = {{.key = {1, 2, 3, Purpose::kResidual}, .coin = (uint64_t{1} << 53) - 1}};
  task.edits = {{.id = 3, .flags = kEditBanned, .bias = -100, .count = 9}};
  task.places.resize(4);
  task.places[2] = {.grammar_state = 12, .mask_row = 5, .forced = 2, .overrides = task.edits};
  task.outcome = {.status = OutcomeStatus::kBadDraftRow,
                  .num_accepted = 1,
                  .num_tokens = 1,
                  .fault = RowFault::kShare};
  task.token_scores = {{.id = 4, .value = -std::numeric_limits<float>::infinity(), .rank = 2}};
  task.decisions.resize(2);
  PlaceDecision& decision = task.decisions[0];
  decision.judged = true;
  decision.stands = true;
  decision.token = 5;
  decision.p_weight = 0.25f;
  decision.p_mass = 3;
  task.decisions[1].accept_coin = 0;
  round.rows = {{.tensor = TraceTensor::kGrammarMask, .index = 1, .hash = 9, .offset = 8192}};
  return round;
}

// The map {"why": value, ...} of one entry, with a value of raw msgpack bytes.
std::string MapOf(std::string_view key, std::string_view value) {
  std::string bytes = "\x81";
  bytes += static_cast<char>(0xa0 + key.size());
  bytes += key;
  bytes += value;
  return bytes;
}

TEST_SUITE("trace") {
  TEST_CASE("a record as bytes is the map that msgpack's specification gives") {
    const TraceEnd end = {
        .time_ns = 5, .sequence = 300, .reason = FinishReason::kAbort, .kept_tokens = 0};
    CHECK(BytesOf(end) == std::string("\x83\xa7"
                                      "time_ns\x05\xa8"
                                      "sequence\xcd\x01\x2c\xa6"
                                      "reason\x03",
                                      30));
    CHECK(BytesOf(TraceEnd{}) == "\x80");
    TraceOpening opening;
    opening.numbers = {{"top_p", 1.0}};  // a double stays one
    CHECK(BytesOf(opening) == std::string("\x81\xa7"
                                          "numbers\x91\x92\xa5"
                                          "top_p\xcb\x3f\xf0\0\0\0\0\0\0",
                                          26));
  }

  TEST_CASE("a record that would take too much memory is refused before it is decoded") {
    // Each zero of the list is 24 bytes of memory while it is decoded.
    const std::string bytes(kTraceRecordBytesMax + 1, '\0');
    const absl::StatusOr<TraceRound> refused = DecodeTrace<TraceRound>(bytes);
    REQUIRE(!refused.ok());
    const std::string text(refused.status().message());
    CHECK(text.find("67108865 bytes; at most 67108864 are read") != std::string::npos);
  }

  TEST_CASE("a round comes back with every bit") {
    const TraceRound round = SomeRound();
    const std::string bytes = BytesOf(round);
    const absl::StatusOr<TraceRound> again = DecodeTrace<TraceRound>(bytes);
    REQUIRE(again.ok());
    CHECK(BytesOf(*again) == bytes);
    CHECK(again->round_id == round.round_id);
    CHECK(again->times.answered == 6);
    CHECK(again->target.rules.renormalise);
    CHECK(again->answers[1].refusal == static_cast<Refusal>(kRefusalMax));
    const TraceTask& task = again->tasks[0];
    CHECK(task.tokens == round.tasks[0].tokens);
    CHECK(task.parents == round.tasks[0].parents);
    CHECK(task.kinds == round.tasks[0].kinds);
    CHECK(task.target_rows == round.tasks[0].target_rows);
    CHECK(std::bit_cast<uint32_t>(task.draft_weights[0]) == 0x8000'0000);
    CHECK(task.draft_weights[1] == std::numeric_limits<float>::denorm_min());
    CHECK(std::bit_cast<uint64_t>(task.draft_masses[1]) == uint64_t{1} << 63);
    CHECK(task.target_scale == round.tasks[0].target_scale);
    CHECK(task.seed == round.tasks[0].seed);
    CHECK(task.target_filters.top_p == 1);
    CHECK(task.draft_filters.top_p == kTopPOff);  // a default
    CHECK(task.coins[0].key.purpose == Purpose::kResidual);
    CHECK(task.coins[0].coin == (uint64_t{1} << 53) - 1);
    CHECK(task.places[2].overrides[0].bias == -100);
    CHECK(task.places[2].forced == 2);
    CHECK(task.places[1].mask_row == -1);
    CHECK(task.token_scores[0].value == -std::numeric_limits<float>::infinity());
    CHECK(task.decisions[0].p_mass == 3);
    CHECK(task.decisions[0].draw_coin == kNoCoin);
    CHECK(task.decisions[1].accept_coin == 0);
    CHECK(again->rows[0].offset == 8192);
  }

  TEST_CASE("a list with a NaN keeps its bits") {
    TraceRound round;
    round.tasks.resize(1);
    round.tasks[0].draft_masses = {std::bit_cast<double>(uint64_t{0x7ff8'0000'0000'0123})};
    const auto again = DecodeTrace<TraceRound>(BytesOf(round));
    REQUIRE(again.ok());
    CHECK(std::bit_cast<uint64_t>(again->tasks[0].draft_masses[0]) == 0x7ff8'0000'0000'0123);
  }

  TEST_CASE("bytes that are no record are refused, and the member is named") {
    const auto refused = [](const std::string& bytes) {
      return std::string(DecodeTrace<TraceEnd>(bytes).status().message());
    };
    CHECK(refused(MapOf("sequenze", "\x01")) ==
          "trace record: \"sequenze\" is no member of this version");
    CHECK(refused(MapOf("reason", "\x05")) == "trace record: \"reason\" is outside 0 .. 4");
    CHECK(refused(MapOf("sequence", "\xff")) ==
          "trace record: \"sequence\" is outside 0 .. 18446744073709551615");
    CHECK(refused(MapOf("kept_tokens", std::string("\xcf\0\0\0\1\0\0\0\0", 9))) ==
          "trace record: \"kept_tokens\" is outside 0 .. 4294967295");
    CHECK(refused(MapOf("time_ns", "\xa1x")) == "trace record: \"time_ns\" is not an integer");
    CHECK(refused(MapOf("time_ns", "\xc3")) == "trace record: \"time_ns\" is not an integer");
    CHECK_FALSE(refused("").empty());
    CHECK_FALSE(refused("\x93\x01\x02\x03").empty());
    CHECK_FALSE(refused("\x81\xa6").empty());
  }

  TEST_CASE("a small record that would fill the memory is refused, and the member is named") {
    // An array of 2^20 - 1 empty maps.
    std::string tasks("\xdd\x00\x0f\xff\xff", 5);
    tasks.append((size_t{1} << 20) - 1, '\x80');
    const auto decoded = DecodeTrace<TraceRound>(MapOf("tasks", tasks));
    REQUIRE_FALSE(decoded.ok());
    CHECK(std::string(decoded.status().message()) ==
          "trace record: \"tasks\" makes the record larger than 512 MiB in memory");
  }

  TEST_CASE("any byte changed gives an error or a record, and the record encodes again") {
    const std::string bytes = BytesOf(SomeRound());
    std::mt19937_64 random(3);
    for (int i = 0; i < 20000; ++i) {
      std::string changed = bytes;
      changed[random() % changed.size()] = static_cast<char>(random());
      if (random() % 4 == 0) changed.resize(random() % changed.size());
      const auto decoded = DecodeTrace<TraceRound>(changed);
      if (!decoded.ok()) continue;
      const std::string again = BytesOf(*decoded);
      const auto twice = DecodeTrace<TraceRound>(again);
      REQUIRE(twice.ok());
      CHECK(BytesOf(*twice) == again);
    }
  }
}

}  // namespace
}  // namespace specd
