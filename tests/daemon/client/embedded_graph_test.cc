// An engine whose rounds run inside its CUDA graph, on a pretended device. Forwards, drafts and
// rounds are launched ahead of every answer. The confirmed tokens equal those of an engine that
// waits for each answer and gives every draft token itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/client/graph_device.h"
#include "tests/support/c_drafts.h"

namespace specd {
namespace {

using test::Generator;
using test::Kept;
using test::kMaxDraft;
using test::kSequences;
using test::kSlots;
using test::ParamsOf;
using test::Tensors;

constexpr uint32_t kSteps = 30;

specd_params LaterParams() {
  specd_params params = ParamsOf(1, &Generator::kStopId);
  params.seed = 77;
  params.max_tokens = 25;
  return params;
}

// Waits for each answer, gives each draft token, and takes the counts from the answer. If `later`
// is not null, another sequence takes the last one's place after its end, and its tokens come
// there.
void RunStepByStep(Kept* kept, Kept* later = nullptr) {
  Generator g("embedded:cpu");
  specd_region region = {};
  REQUIRE(specd_alloc(g.engine, sizeof(Tensors), &region) == SPECD_OK);
  g.tensors = static_cast<Tensors*>(region.data);
  g.writes_outputs = true;
  g.BindAll(region.id);
  g.Open();
  for (uint32_t step = 0; step < kSteps; ++step) {
    g.Forward(g.sequences);
    const std::vector<specd_draft> parts = g.Drafts(false);
    if (parts.empty()) break;
    REQUIRE(specd_submit(g.engine, step, parts.data(), static_cast<uint32_t>(parts.size())) ==
            SPECD_OK);
    REQUIRE(g.Poll(step));
    if (later != nullptr && kept[3].tokens.empty() && g.kept[3].finish_reason != 0) {
      kept[3] = g.kept[3];
      REQUIRE(specd_close_sequence(g.engine, g.sequences[3]) == SPECD_OK);
      g.OpenOne(3, LaterParams());
    }
  }
  if (later != nullptr) *later = g.kept[3];
  std::copy_n(g.kept, later != nullptr ? kSequences - 1 : kSequences, kept);
}

struct GraphFixture : test::GraphDevice {
  GraphFixture() { OpenEngine(); }

  int Stage(uint64_t round_id) { return Stage(round_id, g->Drafts(true)); }
  int Stage(uint64_t round_id, const std::vector<specd_draft>& parts) {
    const int code =
        specd_stage_round(g->engine, round_id, parts.data(), static_cast<uint32_t>(parts.size()));
    if (code == SPECD_OK) batches.push_back(g->sequences);
    return code;
  }
  // The engine's CUDA graph: a forward of the batch that was staged for it, then the captured
  // launches.
  void Replay() {
    if (!batches.empty()) {
      g->Forward(batches.front());
      batches.pop_front();
    }
    driver.Replay(driver.others_work[&stream]);
    REQUIRE(driver.fault.ok());
  }

  int stream = 0;                        // only its address is used
  std::deque<Generator::Batch> batches;  // staged and not launched
};

TEST_SUITE("unit") {
  TEST_CASE("a graph that runs rounds ahead of every answer confirms what a patient engine does") {
    Kept expected[kSequences];
    RunStepByStep(expected);
    for (uint32_t i = 0; i < kSequences; ++i) {
      CAPTURE(i);
      REQUIRE(expected[i].tokens.size() > 10);
      // Drafts are accepted in some rounds, and rejected in others.
      CHECK(*std::max_element(expected[i].accepted.begin(), expected[i].accepted.end()) > 0);
      CHECK(*std::min_element(expected[i].accepted.begin(), expected[i].accepted.end()) <
            kMaxDraft);
    }
    CHECK(expected[3].finish_reason == SPECD_FINISH_LENGTH);

    for (const uint32_t ahead : {0u, 1u, 3u}) {
      CAPTURE(ahead);
      GraphFixture f;
      f.BindAll();
      f.g->Open();
      REQUIRE(specd_enqueue_staged(f.g->engine, kSequences, &f.stream) == SPECD_OK);
      uint32_t staged = 0;
      for (uint32_t step = 0; step < kSteps; ++step) {
        for (; staged <= std::min(step + ahead, kSteps - 1); ++staged) {
          REQUIRE(f.Stage(staged) == SPECD_OK);
        }
        CHECK_FALSE(f.g->Poll(step, 0));  // not run yet
        f.Replay();
        REQUIRE(f.g->Poll(step));
      }
      for (uint32_t i = 0; i < kSequences; ++i) {
        CAPTURE(i);
        CHECK(f.g->kept[i].tokens == expected[i].tokens);
        CHECK(f.g->kept[i] == expected[i]);
        if (f.g->kept[i].finish_reason != SPECD_FINISH_NONE) continue;
        CHECK(f.g->tensors->next_tokens[f.g->SlotOf(i)] == expected[i].tokens.back());
        CHECK(f.g->tensors->total_kept[f.g->SlotOf(i)] == int64_t(expected[i].tokens.size()));
      }
    }
  }

  TEST_CASE("sequences come and go while rounds of those before them are under way") {
    Kept expected[kSequences];
    Kept expected_later;
    RunStepByStep(expected, &expected_later);
    REQUIRE(expected_later.tokens.size() > 10);

    GraphFixture f;
    f.BindAll();
    f.g->Open();
    REQUIRE(specd_enqueue_staged(f.g->engine, kSequences, &f.stream) == SPECD_OK);
    Kept last;
    const uint32_t slot = f.g->SlotOf(3);
    uint32_t staged = 0;
    for (uint32_t step = 0; step < kSteps; ++step) {
      for (; staged <= std::min(step + 2, kSteps - 1); ++staged) {
        REQUIRE(f.Stage(staged) == SPECD_OK);
      }
      f.Replay();
      REQUIRE(f.g->Poll(step));
      if (last.tokens.empty() && f.g->kept[3].finish_reason != SPECD_FINISH_NONE) {
        last = f.g->kept[3];
        REQUIRE(specd_close_sequence(f.g->engine, f.g->sequences[3]) == SPECD_OK);
        f.g->OpenOne(3, LaterParams());
        // Two rounds of the old sequence are under way, and will write at its slot.
        CHECK(f.g->SlotOf(3) != slot);
      }
    }
    CHECK(last == expected[3]);
    for (uint32_t i = 0; i < 3; ++i) CHECK(f.g->kept[i] == expected[i]);
    // The sequence began some rounds later than with an engine that waits, so it has fewer tokens.
    const Kept& later = f.g->kept[3];
    REQUIRE(later.tokens.size() > 5);
    REQUIRE(later.tokens.size() <= expected_later.tokens.size());
    CHECK(std::equal(later.tokens.begin(), later.tokens.end(), expected_later.tokens.begin()));
  }

  TEST_CASE("a graph that runs with nothing staged does nothing, and loses no later round") {
    GraphFixture f;
    f.BindAll();
    f.g->Open();
    REQUIRE(specd_enqueue_staged(f.g->engine, 1, &f.stream) == SPECD_OK);
    f.g->tensors->next_tokens[0] = 5;
    f.Replay();
    CHECK(f.g->tensors->next_tokens[0] == 5);
    REQUIRE(f.Stage(8) == SPECD_OK);
    f.Replay();
    f.Replay();
    CHECK(f.g->Poll(8));
    CHECK(f.g->kept[0].accepted.size() == 1);
  }

  TEST_CASE("four rounds may be staged, and none beside those of specd_submit") {
    GraphFixture f;
    f.BindAll();
    f.g->Open();
    REQUIRE(specd_enqueue_staged(f.g->engine, kSequences, &f.stream) == SPECD_OK);
    for (uint64_t round = 0; round < 4; ++round) REQUIRE(f.Stage(round) == SPECD_OK);
    CHECK(f.Stage(4) == SPECD_FULL);
    const std::vector<specd_draft> parts = f.g->Drafts(false);
    const auto count = static_cast<uint32_t>(parts.size());
    CHECK(specd_submit(f.g->engine, 9, parts.data(), count) == SPECD_ERROR_STATE);
    for (uint64_t round = 0; round < 4; ++round) {
      f.Replay();
      CHECK(f.g->Poll(round));
    }
    // The other way round.
    REQUIRE(specd_submit(f.g->engine, 9, parts.data(), count) == SPECD_OK);
    CHECK(f.Stage(10) == SPECD_ERROR_STATE);
    CHECK(f.g->Poll(9));
    REQUIRE(f.Stage(10) == SPECD_OK);
    f.Replay();
    CHECK(f.g->Poll(10));
  }

  TEST_CASE("what a graph cannot read is refused before anything is staged") {
    GraphFixture f;
    f.BindAll();
    f.g->Open();
    specd_region region = {};
    REQUIRE(specd_alloc(f.g->engine, sizeof(Tensors), &region) == SPECD_OK);
    f.g->Bind(SPECD_NEXT_TOKEN, region.id, f.g->tensors, f.g->tensors->next_tokens, kSlots);
    CHECK(f.Stage(1) == SPECD_ERROR_STATE);
    CHECK(std::string(specd_last_error()).find("SPECD_NEXT_TOKEN") != std::string::npos);
    CHECK(specd_enqueue_staged(f.g->engine, 1, &f.stream) == SPECD_ERROR_STATE);
    f.BindAll();
    CHECK(specd_enqueue_staged(f.g->engine, 0, &f.stream) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_enqueue_staged(f.g->engine, kSequences + 1, &f.stream) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_enqueue_staged(f.g->engine, 1, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    f.driver.devices_of_streams[&f.stream] = 1;
    CHECK(specd_enqueue_staged(f.g->engine, 1, &f.stream) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(std::string(specd_last_error()).find("is of device 1") != std::string::npos);
    CHECK(f.driver.others_work.empty());
  }
}

}  // namespace

}  // namespace specd
