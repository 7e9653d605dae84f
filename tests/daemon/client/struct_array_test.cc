// Arrays of C structs whose elements are wider than those that the library knows, as a caller with
// a newer header has them.
#include "daemon/client/struct_array.h"

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::ForBothModes;

// A struct of a later version: the fields that the library knows, and two that it does not.
template <class T>
struct Wider {
  T known = {};
  std::array<uint64_t, 2> later = {};
};

template <class T>
std::vector<Wider<T>> WiderArray(size_t count, const T& known) {
  std::vector<Wider<T>> array(count, {.known = known});
  for (Wider<T>& element : array) element.known.struct_size = sizeof(element);
  return array;
}

// Elements for the library to fill. Their bytes are not zero before the call.
template <class T>
std::vector<Wider<T>> Unfilled(size_t count) {
  std::vector<Wider<T>> array(count);
  for (Wider<T>& element : array) {
    std::memset(static_cast<void*>(&element), 0x5a, sizeof(element));
    element.known.struct_size = sizeof(element);
  }
  return array;
}

constexpr std::array<uint64_t, 2> kZero = {};

// Two sequences that choose the greatest logit: row r has it at id r + 1.
struct TwoSequences {
  explicit TwoSequences(EmbeddedEngine& engine)
      : f(engine),
        sequences{f.Open(EmbeddedEngine::Params(), "a"), f.Open(EmbeddedEngine::Params(), "b")} {
    for (uint32_t row = 0; row < 4; ++row) {
      std::vector<float> values(EmbeddedEngine::kVocab, 0);
      values[row + 1] = 5;
      EmbeddedEngine::SetRow(f.target, row, values);
      EmbeddedEngine::SetRow(f.draft, row, values);
    }
  }
  std::vector<Wider<specd_draft>> Drafts() const {
    std::vector<Wider<specd_draft>> drafts = WiderArray(2, specd_draft{});
    for (size_t i = 0; i < 2; ++i) {
      drafts[i].known.sequence = sequences[i];
      drafts[i].known.target_rows = f.rows + 1 + i;
    }
    return drafts;
  }
  int Submit(const std::vector<Wider<specd_draft>>& drafts) const {
    return specd_submit(f.engine, 7, &drafts[0].known, uint32_t(drafts.size()));
  }

  EmbeddedEngine& f;
  std::array<specd_sequence, 2> sequences;
};

TEST_SUITE("unit") {
  TEST_CASE("wider drafts with zero tails are verified; wider results come with zero tails") {
    ForBothModes([](EmbeddedEngine& f) {
      const TwoSequences two(f);
      REQUIRE(two.Submit(two.Drafts()) == SPECD_OK);
      Wider<specd_completion> done = Unfilled<specd_completion>(1)[0];
      done.known.result_size = sizeof(Wider<specd_result>);
      REQUIRE(specd_poll(f.engine, &done.known, 10000) == SPECD_OK);
      CHECK(done.known.struct_size == sizeof(done));
      CHECK(done.known.round_id == 7);
      CHECK(done.later == kZero);
      REQUIRE(done.known.num_results == 2);
      const auto* results = reinterpret_cast<const Wider<specd_result>*>(done.known.results);
      for (size_t i = 0; i < 2; ++i) {
        CHECK(results[i].known.sequence == two.sequences[i]);
        CHECK(results[i].known.status == SPECD_STATUS_OK);
        REQUIRE(results[i].known.num_kept == 1);
        CHECK(results[i].known.tokens[0] == int32_t(i + 2));
        CHECK(results[i].later == kZero);
      }
    });
  }

  TEST_CASE("a tail with a value that the library does not know refuses the whole array") {
    ForBothModes([](EmbeddedEngine& f) {
      const TwoSequences two(f);
      for (size_t element = 0; element < 2; ++element) {
        for (size_t field = 0; field < 2; ++field) {
          CAPTURE(element);
          std::vector<Wider<specd_draft>> drafts = two.Drafts();
          drafts[element].later[field] = uint64_t{1} << 56;  // the last byte alone
          CHECK(two.Submit(drafts) == SPECD_ERROR_UNSUPPORTED);
          CHECK(LastErrorHas(element == 0 ? "drafts[0] has a field" : "drafts[1] has a field"));
        }
      }
      // Nothing was submitted.
      specd_completion done = SizedCompletion();
      CHECK(specd_poll(f.engine, &done, 0) == SPECD_EMPTY);
      std::vector<Wider<specd_draft_request>> requests = WiderArray(2, specd_draft_request{});
      requests[1].later[0] = 1;
      auto children = Unfilled<specd_draft_children>(2);
      CHECK(specd_sample_draft(f.engine, &requests[0].known, 2, &children[0].known) ==
            SPECD_ERROR_UNSUPPORTED);
      CHECK(LastErrorHas("requests[1] has a field"));
    });
  }

  TEST_CASE("wider requests and results of calls") {
    ForBothModes([](EmbeddedEngine& f) {
      const TwoSequences two(f);
      std::vector<Wider<specd_draft_request>> requests = WiderArray(2, specd_draft_request{});
      for (uint32_t i = 0; i < 2; ++i) {
        requests[i].known.sequence = two.sequences[i];
        requests[i].known.row = 3 - i;
        requests[i].known.mask_row = -1;
        requests[i].known.num_children = 1;
        requests[i].known.sampling = SPECD_TOP_K_CHILDREN;
      }
      auto drawn = Unfilled<specd_draft_children>(2);
      REQUIRE(specd_sample_draft(f.engine, &requests[0].known, 2, &drawn[0].known) == SPECD_OK);
      for (uint32_t i = 0; i < 2; ++i) {
        CHECK(drawn[i].known.struct_size == sizeof(drawn[i]));
        CHECK(drawn[i].known.sequence == two.sequences[i]);
        REQUIRE(drawn[i].known.num_children == 1);
        CHECK(drawn[i].known.children[0].id == int32_t(4 - i));
        CHECK(drawn[i].later == kZero);
      }

      const int32_t ids[] = {3, 4};
      std::vector<Wider<specd_score_request>> asked = WiderArray(2, specd_score_request{});
      for (uint32_t i = 0; i < 2; ++i) {
        asked[i].known.rows = f.rows + 2 + i;
        asked[i].known.ids = ids + i;
        asked[i].known.num_ids = 1;
      }
      auto scored = Unfilled<specd_score_result>(2);
      REQUIRE(specd_score(f.engine, &asked[0].known, 2, &scored[0].known) == SPECD_OK);
      for (uint32_t i = 0; i < 2; ++i) {
        CHECK(scored[i].known.struct_size == sizeof(scored[i]));
        REQUIRE(scored[i].known.num_scored == 1);
        CHECK(scored[i].known.scores[0].id == ids[i]);
        CHECK(scored[i].known.scores[0].rank == 1);
        CHECK(scored[i].later == kZero);
      }
    });
  }

  TEST_CASE("an opening fills wider elements, one for each sequence") {
    ForBothModes([](EmbeddedEngine& f) {
      specd_params params = EmbeddedEngine::Params(1.0);  // n samples need a choice
      params.n = 3;
      auto infos = Unfilled<specd_sequence_info>(3);
      REQUIRE(specd_open_sequence(f.engine, "many", &params, &infos[0].known) == SPECD_OK);
      for (size_t i = 0; i < 3; ++i) {
        const Wider<specd_sequence_info>& info = infos[i];
        CHECK(info.known.seed == params.seed + i);
        CHECK(info.known.struct_size == sizeof(info));
        CHECK(info.known.verify == SPECD_VERIFY_AUTO);
        specd_sequence_state state;
        CHECK(specd_get_sequence_state(f.engine, info.known.sequence, &state) == SPECD_OK);
        CHECK(info.later == kZero);
      }
      CHECK(infos[0].known.sequence != infos[1].known.sequence);
      CHECK(infos[1].known.sequence != infos[2].known.sequence);
    });
  }

  TEST_CASE("an array's elements have one size, which some version of the struct can have") {
    EmbeddedEngine f;
    const TwoSequences two(f);
    std::vector<Wider<specd_draft>> drafts = two.Drafts();
    drafts[1].known.struct_size -= 8;
    CHECK(two.Submit(drafts) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("drafts[1].struct_size"));
    for (const size_t size :
         {size_t{0}, sizeof(specd_draft) - 8, sizeof(specd_draft) + 4, size_t{65536} + 8}) {
      CAPTURE(size);
      drafts = two.Drafts();
      drafts[0].known.struct_size = uint32_t(size);
      CHECK(two.Submit(drafts) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("drafts[0].struct_size"));
    }
    auto children = Unfilled<specd_draft_children>(2);
    children[1].known.struct_size += 8;
    const std::vector<Wider<specd_draft_request>> requests = WiderArray(2, specd_draft_request{});
    CHECK(specd_sample_draft(f.engine, &requests[0].known, 2, &children[0].known) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("results[1].struct_size"));
  }
}

}  // namespace
}  // namespace specd
