// Handles of another engine are refused by name, embedded and attached.
//
// Bug that this would catch: a handle whose slot and generation were those of a sequence here was
// verified as that sequence.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::EngineHost;

bool IsNamed() { return LastErrorHas("another engine opened it"); }

// Gives the handle to every function that takes one.
void CheckRefused(EmbeddedEngine& f, specd_sequence own, specd_sequence foreign) {
  REQUIRE(specd_sequence_slot(foreign) == specd_sequence_slot(own));
  REQUIRE(foreign != own);
  const uint32_t rows[] = {0, 1};
  std::vector<specd_draft> parts = {ChainDraft(foreign, 0, nullptr, rows),
                                    ChainDraft(own, 0, nullptr, rows)};
  REQUIRE(specd_submit(f.engine, 1, parts.data(), 2) == SPECD_OK);
  specd_completion done = SizedCompletion();
  REQUIRE(specd_poll(f.engine, &done, 10000) == SPECD_OK);
  CHECK(done.results[0].status == SPECD_STATUS_INVALID);
  CHECK(done.results[0].detail == SPECD_DETAIL_SEQUENCE);
  CHECK(done.results[0].num_kept == 0);
  CHECK(done.results[1].status == SPECD_STATUS_OK);
  CHECK(done.results[1].total_kept == 1);
  CHECK(std::string(specd_detail_text(SPECD_DETAIL_SEQUENCE)).find("another engine") !=
        std::string::npos);
  CHECK(f.Stats().invalid_records == 1);

  specd_sequence_state state;
  CHECK(specd_get_sequence_state(f.engine, foreign, &state) == SPECD_ERROR_NOT_FOUND);
  CHECK(IsNamed());
  CHECK(specd_abort(f.engine, foreign) == SPECD_ERROR_NOT_FOUND);
  CHECK(IsNamed());
  CHECK(specd_close_sequence(f.engine, foreign) == SPECD_ERROR_NOT_FOUND);
  CHECK(IsNamed());
  specd_sequence_info info = Sized<specd_sequence_info>();
  CHECK(specd_fork(f.engine, foreign, "fork", nullptr, &info) == SPECD_ERROR_NOT_FOUND);
  CHECK(IsNamed());
  CHECK(specd_set_coins(f.engine, foreign, nullptr, 0) == SPECD_ERROR_NOT_FOUND);
  CHECK(IsNamed());
  specd_draft_request request = Sized<specd_draft_request>();
  request.sequence = foreign;
  request.mask_row = -1;
  request.num_children = 1;
  specd_draft_children children = Sized<specd_draft_children>();
  CHECK(specd_sample_draft(f.engine, &request, 1, &children) == SPECD_ERROR_INVALID_ARGUMENT);
  CHECK(IsNamed());
  int32_t ids[2];
  uint32_t num_ids = 0;
  CHECK(specd_forced_tokens(f.engine, foreign, nullptr, 0, ids, 2, &num_ids) ==
        SPECD_ERROR_INVALID_ARGUMENT);
  CHECK(IsNamed());
  // Nothing of this changed the sequence here.
  REQUIRE(specd_get_sequence_state(f.engine, own, &state) == SPECD_OK);
  CHECK(state.finish_reason == SPECD_FINISH_NONE);
}

void CheckBoth(EmbeddedEngine& a, EmbeddedEngine& b) {
  const specd_sequence of_a = a.Open(EmbeddedEngine::Params(), "a");
  const specd_sequence of_b = b.Open(EmbeddedEngine::Params(), "b");
  CheckRefused(a, of_a, of_b);
  CheckRefused(b, of_b, of_a);
}

TEST_SUITE("unit") {
  TEST_CASE("a handle of another engine is refused: two embedded engines") {
    EmbeddedEngine a;
    EmbeddedEngine b;
    CheckBoth(a, b);
  }

  TEST_CASE("a handle of another engine is refused: two engines of one daemon") {
    const EngineHost host;
    EmbeddedEngine a(host.uri);
    EmbeddedEngine b(host.uri);
    CheckBoth(a, b);
  }

  TEST_CASE("a handle of another engine is refused: an embedded engine and an attached one") {
    const EngineHost host;
    EmbeddedEngine a(host.uri);
    EmbeddedEngine b;
    CheckBoth(a, b);
  }
}

}  // namespace
}  // namespace specd
