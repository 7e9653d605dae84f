// An embedded round of several pieces: specd_poll returns between two of them if its time is over.
//
// Bug that this would catch: specd_poll ran the round to its end, whatever its time was.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/support/c_drafts.h"

namespace specd {
namespace {

constexpr uint32_t kVocab = uint32_t{1} << 20;
constexpr uint32_t kDrafts = 64;
constexpr uint32_t kPlaces = kDrafts + 1;
constexpr int32_t kBest = 7;

// One thread takes at most 32 rows of this width in a piece (32 * kPieceWork of
// speculative/round/round_pieces.h), so a round of 65 places has three pieces.
constexpr int kPieces = 3;

struct LongRound {
  LongRound() {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.max_batch = 1;
    options.max_sequences = 2;
    options.max_draft = kDrafts;
    options.threads = 1;
    options.timeout_ms = 1;
    REQUIRE(specd_open("embedded:cpu", &options, &engine) == SPECD_OK);
    specd_region region;
    REQUIRE(specd_alloc(engine, kVocab * sizeof(float), &region) == SPECD_OK);
    static_cast<float*>(region.data)[kBest] = 50.0f;
    tensor.region = region.id;
    REQUIRE(specd_bind(engine, SPECD_TARGET_ROWS, &tensor) == SPECD_OK);
  }
  ~LongRound() { specd_close(engine); }

  specd_sequence Open(const char* name) {
    specd_params params;
    specd_params_init(&params);
    params.temperature = 0;
    params.max_tokens = 1000;
    specd_sequence_info info = Sized<specd_sequence_info>();
    REQUIRE(specd_open_sequence(engine, name, &params, &info) == SPECD_OK);
    return info.sequence;
  }

  void Submit() {
    const specd_draft draft = ChainDraft(Open("long"), kDrafts, tokens.data(), rows.data());
    REQUIRE(specd_submit(engine, 1, &draft, 1) == SPECD_OK);
  }

  static specd_tensor OneRow() {
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.num_rows = 1;
    return tensor;
  }

  specd_engine* engine = nullptr;
  specd_tensor tensor = OneRow();
  std::vector<int32_t> tokens = std::vector<int32_t>(kDrafts, kBest);
  std::vector<uint32_t> rows = std::vector<uint32_t>(kPlaces, 0);
};

TEST_SUITE("unit") {
  TEST_CASE("a poll without time does one piece of an embedded round, and the last one answers") {
    LongRound f;
    f.Submit();
    specd_completion done = SizedCompletion();
    for (int piece = 1; piece < kPieces; ++piece) {
      CAPTURE(piece);
      REQUIRE(specd_poll(f.engine, &done, 0) == SPECD_EMPTY);
      // Between two pieces the engine is at the caller's service, but for the round's rows.
      const specd_sequence other = f.Open("other");
      CHECK(specd_close_sequence(f.engine, other) == SPECD_OK);
      CHECK(specd_bind(f.engine, SPECD_TARGET_ROWS, &f.tensor) == SPECD_ERROR_STATE);
    }
    REQUIRE(specd_poll(f.engine, &done, 0) == SPECD_OK);
    REQUIRE(done.results[0].num_kept == kPlaces);
    CHECK(std::vector<int32_t>(done.results[0].tokens, done.results[0].tokens + kPlaces) ==
          std::vector<int32_t>(kPlaces, kBest));
    CHECK(specd_bind(f.engine, SPECD_TARGET_ROWS, &f.tensor) == SPECD_OK);
  }

  TEST_CASE("a poll without limit does an embedded round to its end") {
    LongRound f;
    f.Submit();
    specd_completion done = SizedCompletion();
    REQUIRE(specd_poll(f.engine, &done, -1) == SPECD_OK);
    CHECK(done.results[0].num_kept == kPlaces);
  }

  TEST_CASE("an embedded engine may be closed between two pieces") {
    LongRound f;
    f.Submit();
    specd_completion done = SizedCompletion();
    CHECK(specd_poll(f.engine, &done, 0) == SPECD_EMPTY);
  }

  TEST_CASE("timeout_ms of the engine ends no embedded call, which does the work itself") {
    LongRound f;
    specd_score_request request = Sized<specd_score_request>();
    const std::vector<int32_t> ids(kPlaces, kBest);
    request.rows = f.rows.data();
    request.ids = ids.data();
    request.num_ids = kPlaces;
    request.mode = SPECD_RAW_LOGIT;
    specd_score_result result = Sized<specd_score_result>();
    const int code = specd_score(f.engine, &request, 1, &result);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
    REQUIRE(result.num_scored == kPlaces);
    CHECK(result.scores[kPlaces - 1].value == 50.0f);
  }
}

}  // namespace
}  // namespace specd
