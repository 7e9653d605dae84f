// PlaceRows where a place has no distribution.
#include "tools/replay/place_rows.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <vector>

#include "tools/replay/named_backend.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {
namespace {

constexpr int32_t kVocab = 64;
constexpr char kTrace[] = SPECD_SOURCE_DIR "/tests/data/traces/chains.mcap";
constexpr TokenId kOnly = 5;  // the id that the mask allows

// The first task of a recorded round, run again; the tests then change its edits.
class Rebuilt {
 public:
  Rebuilt() : reader_({kTrace}), backend_(*MakeNamedBackend("scalar"), 1), rebuilder_(kVocab) {
    while (round_.number != 2) {
      REQUIRE(*reader_.Next(&item_));
      if (const auto* round = std::get_if<TraceRound>(&item_.record)) round_ = *round;
    }
    rebuilder_.Rebuild(round_, *reader_.Rows());
    REQUIRE_FALSE(rebuilder_.tasks().empty());
    REQUIRE(backend_.Run(&rebuilder_).ok());
    REQUIRE(task().places == nullptr);
    REQUIRE(task().draft.target_rows != nullptr);
  }

  Task& task() { return rebuilder_.task(0); }
  const RoundRebuilder& round() const { return rebuilder_; }
  ReplayBackend* backend() { return &backend_; }

  // A mask that allows kOnly, whose logit is -inf.
  void ForbidEverything() {
    words_ = {uint32_t{1} << kOnly, 0};
    places_.resize(static_cast<size_t>(task().draft.num_nodes) + 1);
    for (PlaceEdits& place : places_) place.grammar_mask = words_.data();
    edit_.id = kOnly;
    edit_.bias = -INFINITY;
    task().places = places_.data();
    task().edits.edits = &edit_;
    task().edits.num_edits = 1;
  }

 private:
  TraceReader reader_;
  TraceItem item_;
  TraceRound round_;
  ReplayBackend backend_;
  RoundRebuilder rebuilder_;
  std::array<uint32_t, 2> words_ = {};
  std::vector<PlaceEdits> places_;
  TokenEdit edit_;
};

TEST_SUITE("replay") {
  TEST_CASE("if a mask leaves ids without probability, the best forbidden ids are named") {
    // They were listed as candidates that nothing forbids.
    Rebuilt rebuilt;
    rebuilt.ForbidEverything();
    PlaceRows rows(rebuilt.backend());
    REQUIRE(rows.Read(rebuilt.round(), 0, 0).ok());
    CHECK_FALSE(rows.has_p());
    CHECK(rows.num_allowed() == 1);
    const std::vector<Candidate> best = rows.BestForbidden(3);
    REQUIRE(best.size() == 3);
    for (const Candidate& c : best) {
      CHECK(c.id != kOnly);
      CHECK(c.is_forbidden);
      CHECK(c.free_p > 0);
      CHECK(c.p == 0);
    }
    CHECK(best[0].free_p >= best[1].free_p);
    CHECK_FALSE(rows.At(kOnly).is_forbidden);
    CHECK(rows.Best(3, {kOnly}).empty());
  }

  TEST_CASE("a place with an argmax id has no forbidden ids, though the place before had") {
    Rebuilt rebuilt;
    rebuilt.ForbidEverything();
    PlaceRows rows(rebuilt.backend());
    REQUIRE(rows.Read(rebuilt.round(), 0, 0).ok());
    REQUIRE_FALSE(rows.BestForbidden(3).empty());
    rebuilt.task().draft.target_rows = nullptr;
    REQUIRE(rows.Read(rebuilt.round(), 0, 0).ok());
    CHECK_FALSE(rows.has_p());
    CHECK(rows.BestForbidden(3).empty());
    CHECK_FALSE(rows.At(kOnly + 1).is_forbidden);
    CHECK(rows.Best(3, {kOnly}).empty());
  }
}

}  // namespace
}  // namespace specd::replay
