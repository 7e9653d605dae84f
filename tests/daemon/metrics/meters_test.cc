// What a daemon counts for its operators, against rounds that are scripted: every number here was
// added up by hand.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/metrics/daemon_meters.h"
#include "daemon/metrics/metric_table.h"
#include "daemon/session/session.h"
#include "ipc/counters/counter_snapshot.h"
#include "ipc/counters/open_metrics.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

// A session that counts, and what an operator reads.
struct MeteredSession {
  MeteredSession() {
    auto made = DaemonMeters::Create(
        {.path = path, .epoch = 77, .version = "1", .device = "a \"b\"", .models = {"", "m"}});
    REQUIRE_MESSAGE(made.ok(), std::string(made.status().message()));
    meters = *std::move(made);
    SessionOptions options = f.session->options();
    options.meters = meters->OfModel("m");
    auto owned = std::make_unique<ScriptedBackend>();
    f.backend = owned.get();
    f.Attach(options, std::move(owned));
  }

  CounterValues Read(const std::string& name, const std::string& labels = "model=\"m\"") const {
    const auto seen = ReadCounters(path);
    REQUIRE_MESSAGE(seen.ok(), std::string(seen.status().message()));
    const CounterValues* const found = seen->Find(name, labels);
    CAPTURE(name);
    REQUIRE(found != nullptr);
    return *found;
  }
  uint64_t Value(const std::string& name) const { return Read(name).value(); }
  uint64_t At(const std::string& position) const {
    return Read("specd:spec_decode_num_accepted_tokens_per_pos",
                "model=\"m\",position=\"" + position + "\"")
        .value();
  }

  const std::string path =
      std::filesystem::temp_directory_path() / ("specd-meters-" + std::to_string(getpid()));
  std::unique_ptr<DaemonMeters> meters;
  SessionFixture f;
};

TEST_SUITE("unit") {
  TEST_CASE("rounds of a session give exact sums, by the names that vLLM has") {
    MeteredSession m;
    const SequenceHandle a = m.f.Open("a");
    const SequenceHandle b = m.f.Open("b", 2);
    m.f.backend->script = {Confirm(2, {1, 2, 5}), Confirm(0, {4}), Confirm(3, {1, 2, 3, 4}),
                           Confirm(3, {1, 2, 3, 4})};
    REQUIRE(m.f.Submit({a, b}) == PushResult::kOk);
    StepSession(m.f.session);
    REQUIRE(m.f.Submit({a, b}, 2) == PushResult::kOk);
    StepSession(m.f.session);
    // b may keep 2 tokens: 1 in its first round, so 1 of its second, an accepted draft token.
    CHECK(m.Value("specd:rounds") == 2);
    CHECK(m.Value("specd:sequence_rounds") == 4);
    CHECK(m.Value("specd:spec_decode_num_drafts") == 4);
    CHECK(m.Value("specd:spec_decode_num_draft_tokens") == 4 * 3);
    CHECK(m.Value("specd:spec_decode_num_accepted_tokens") == 2 + 0 + 3 + 1);
    CHECK(m.Value("specd:kept_tokens") == 3 + 1 + 4 + 1);
    CHECK(m.At("0") == 3);
    CHECK(m.At("1") == 2);
    CHECK(m.At("2") == 1);
    CHECK(m.At("3") == 0);
    CHECK(m.Read("specd:rounds", "").value() == 0);  // of the model without a name
    CHECK(m.meters->Sums() == m.f.session->counters());
  }

  TEST_CASE("a round without drafts is no draft") {
    MeteredSession m;
    SequenceInput input;
    input.sequence = m.f.Open("a");
    input.draft = {.num_nodes = 0, .target_rows = m.f.rows};
    m.f.backend->script = {Confirm(0, {4})};
    REQUIRE(m.f.engine->Submit(1, {&input, 1}, 0) == PushResult::kOk);
    StepSession(m.f.session);
    CHECK(m.Value("specd:sequence_rounds") == 1);
    CHECK(m.Value("specd:spec_decode_num_drafts") == 0);
    CHECK(m.Value("specd:kept_tokens") == 1);
  }

  TEST_CASE("refused records are counted by their reason") {
    MeteredSession m;
    const SequenceHandle a = m.f.Open("a");
    m.f.backend->script = {Confirm(0, {4})};
    REQUIRE(m.f.Submit({a, a}) == PushResult::kOk);  // one sequence twice
    StepSession(m.f.session);
    CHECK(m.Value("specd:invalid_records") == 1);
    const auto seen = ReadCounters(m.path);
    CHECK(seen->SumOf("specd:refused_records") == 1);
    CHECK(m.Read("specd:refused_records", "model=\"m\",reason=\"SPECD_DETAIL_TWICE\"").value() ==
          1);
    CHECK(seen->SumOf("specd:bad_rows") == 0);
  }

  TEST_CASE("a round's wait and work are measured from its submission to its answer") {
    MeteredSession m;
    const SequenceHandle a = m.f.Open("a");
    m.f.backend->script = {Confirm(2, {1, 2, 5}), Confirm(2, {1, 2, 5})};
    m.f.backend->inspect = [&](const RoundBatch&) { m.f.clock.AdvanceNs(5'000); };
    m.f.clock.AdvanceNs(2'999);  // 3000 now
    REQUIRE(m.f.Submit({a}) == PushResult::kOk);
    StepSession(m.f.session);
    for (const std::pair<const char*, uint64_t>& wanted :
         {std::pair{"specd:round_wait_seconds", uint64_t{3'000}},
          {"specd:round_verify_seconds", 5'000},
          {"specd:round_commit_seconds", 0}}) {
      CAPTURE(wanted.first);
      CHECK(m.Read(wanted.first).count() == 1);
      CHECK(m.Read(wanted.first).sum_ns() == wanted.second);
    }
    CHECK(m.Read("specd:round_wait_seconds").values[2] == 1);    // 2 .. 4 us
    CHECK(m.Read("specd:round_verify_seconds").values[3] == 1);  // 4 .. 8 us
    CHECK(m.Read("specd:round_mask_seconds").count() == 0);      // no constraint
    // An engine that names a time to come: its round did not wait.
    SequenceInput input;
    input.sequence = a;
    input.draft = {.num_nodes = 3, .tokens = m.f.tokens, .target_rows = m.f.rows};
    REQUIRE(m.f.engine->Submit(2, {&input, 1}, ~uint64_t{0} >> 1) == PushResult::kOk);
    StepSession(m.f.session);
    CHECK(m.Read("specd:round_wait_seconds").count() == 2);
    CHECK(m.Read("specd:round_wait_seconds").sum_ns() == 3'000);
  }

  TEST_CASE("each duration has the bucket whose bound it keeps to") {
    const auto count_of = [](int64_t ns) {
      auto times = std::make_unique<Times>();
      times->Add(ns);
      std::vector<uint64_t> values(kTimesValues);
      std::memcpy(values.data(), times.get(), sizeof(Times));
      for (uint32_t i = 0; i <= kTimesBounds; ++i) {
        if (values[i] == 1) return i;
      }
      return kTimesValues;
    };
    CHECK(count_of(-5) == 0);
    CHECK(count_of(0) == 0);
    CHECK(count_of(1'000) == 0);
    for (uint32_t i = 0; i < kTimesBounds; ++i) {
      const auto bound_ns = static_cast<int64_t>(TimesBoundNs(i));
      CHECK(count_of(bound_ns) == i);
      CHECK(count_of(bound_ns + 1) == i + 1);
    }
    CHECK(count_of(INT64_MAX) == kTimesBounds);
  }

  TEST_CASE("two writers never share a cache line, and each value has one series") {
    const DaemonMeters::Options options = {.path = "", .models = {"", "m"}};
    const CounterPlan plan = PlanMeters(options);
    std::set<uint64_t> taken;
    for (const CounterSeries& series : plan.series) {
      for (uint64_t i = 0; i < series.num_values; ++i) {
        CHECK(taken.insert(series.first_value + i).second);
        CHECK(series.first_value + i < plan.num_values);
      }
    }
    CHECK(sizeof(DaemonMeters::Meters) % kCounterLineBytes == 0);
    CHECK(sizeof(RoundMeters) % kCounterLineBytes == 0);
    CHECK(offsetof(DaemonMeters::Meters, control) % kCounterLineBytes == 0);
    CHECK(offsetof(DaemonMeters::Meters, publisher) % kCounterLineBytes == 0);
  }

  TEST_CASE("the text of a daemon names its device, and the families are whole") {
    const MeteredSession m;
    m.meters->CountCompile(true, 3'000);
    m.meters->SetPhase(DaemonPhase::kDraining);
    const std::string text = OpenMetrics(*ReadCounters(m.path));
    CHECK(text.find("specd:daemon_info{version=\"1\",device=\"a \\\"b\\\"\"} 1\n") !=
          std::string::npos);
    CHECK(text.find("specd:compile_seconds_count 1\n") != std::string::npos);
    CHECK(text.find("specd:refused_constraints_total 1\n") != std::string::npos);
    CHECK(text.find("specd:state 2\n") != std::string::npos);
    for (const MetricRow& row : MetricTable()) {
      CAPTURE(row.name);
      const std::string head = "# TYPE " + std::string(row.name) + " ";
      const size_t at = text.find(head);
      REQUIRE(at != std::string::npos);
      CHECK(text.find(head, at + 1) == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace specd
