// A row that is no distribution is named: the row, its place in the draft, and what is wrong with
// it. A role that was never bound is named at submission. Embedded and attached.
//
// Bugs that this would catch: NaN, no mass and a wrong sum had one status and no word that told
// them apart; and a forgotten specd_bind came back as a row index that was too large.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/c_drafts.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::ForBothModes;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint32_t kBadRow = 6;

// Row 0 gives id 1 for certain, in the target and in the draft tensor. Row kBadRow of `tensor` has
// the values.
void SetRows(EmbeddedEngine& f, float* tensor, const std::vector<float>& values) {
  for (float* rows : {f.target, f.draft}) {
    for (uint32_t row = 0; row < EmbeddedEngine::kRows; ++row) {
      std::fill_n(rows + row * EmbeddedEngine::kVocab, EmbeddedEngine::kVocab, 0.0f);
      rows[row * EmbeddedEngine::kVocab + 1] = 1.0f;
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    tensor[kBadRow * EmbeddedEngine::kVocab + i] = values[i];
  }
}

struct Fault {
  std::vector<float> row;  // of all eight ids
  uint32_t kind = SPECD_LOGITS;
  uint32_t target_detail = 0;
  uint32_t draft_detail = 0;
};

const std::vector<Fault> kFaults = {
    {{0, 0, 0, 0, 0, 0, 0, kNan}, SPECD_LOGITS, SPECD_DETAIL_TARGET_NAN, SPECD_DETAIL_DRAFT_NAN},
    {std::vector<float>(8, -kInf), SPECD_LOGITS, SPECD_DETAIL_TARGET_NO_MASS,
     SPECD_DETAIL_DRAFT_NO_MASS},
    {{0.5f, 0.25f, 0, 0, 0, 0, 0, 0},
     SPECD_PROBABILITIES,
     SPECD_DETAIL_TARGET_SUM,
     SPECD_DETAIL_DRAFT_SUM},
    {{0.5f, 0.25f, 0.375f, -0.125f, 0, 0, 0, 0},
     SPECD_PROBABILITIES,
     SPECD_DETAIL_TARGET_NAN,
     SPECD_DETAIL_DRAFT_NAN},
    // The sum takes NaN as 0 and is wrong too: NaN is named first.
    {{0.5f, kNan, 0, 0, 0, 0, 0, 0},
     SPECD_PROBABILITIES,
     SPECD_DETAIL_TARGET_NAN,
     SPECD_DETAIL_DRAFT_NAN},
    {std::vector<float>(8, 0.0f), SPECD_PROBABILITIES, SPECD_DETAIL_TARGET_NO_MASS,
     SPECD_DETAIL_DRAFT_NO_MASS},
    {{0.5f, kNan, 0, 0, 0, 0, 0, 0.5f},
     SPECD_FINAL_PROBABILITIES,
     SPECD_DETAIL_TARGET_NAN,
     SPECD_DETAIL_DRAFT_NAN},
};

void CheckNamed(const specd_result& result, uint32_t detail, uint32_t row) {
  CHECK(result.status == SPECD_STATUS_BAD_DISTRIBUTION);
  CHECK(result.finish_reason == SPECD_FINISH_ERROR);
  CHECK(result.detail == detail);
  CHECK(result.num_kept == 1);  // place 1 is bad
  CHECK(result.bad_row == row);
}

// A draft of two tokens whose first stands. Its second place is bad.
specd_draft TwoTokens(specd_sequence sequence, const uint32_t* target_rows,
                      const uint32_t* draft_rows) {
  static const int32_t tokens[] = {1, 1};
  static const uint8_t kinds[] = {SPECD_SAMPLED, SPECD_SAMPLED};
  specd_draft part = ChainDraft(sequence, 2, tokens, target_rows);
  if (draft_rows != nullptr) {
    part.kinds = kinds;
    part.draft_rows = draft_rows;
  }
  return part;
}

TEST_SUITE("unit") {
  TEST_CASE("a bad target row is named with its place and its fault") {
    ForBothModes([](EmbeddedEngine& f) {
      for (const Fault& fault : kFaults) {
        for (const uint32_t method : {SPECD_VERIFY_GREEDY, SPECD_VERIFY_EXACT_MATCH,
                                      SPECD_VERIFY_TOKEN, SPECD_VERIFY_BLOCK}) {
          // Nothing may change final probabilities, the temperature included.
          const bool is_final = fault.kind == SPECD_FINAL_PROBABILITIES;
          if (is_final && method == SPECD_VERIFY_GREEDY) continue;
          CAPTURE(fault.target_detail);
          CAPTURE(method);
          SetRows(f, f.target, fault.row);
          REQUIRE(f.Bind(SPECD_TARGET_ROWS, 1, fault.kind) == SPECD_OK);
          specd_params params = EmbeddedEngine::Params(method == SPECD_VERIFY_GREEDY ? 0 : 1);
          if (fault.kind == SPECD_LOGITS) {
            for (uint32_t row = 0; row < EmbeddedEngine::kRows; ++row) {
              float* const values = f.target + row * EmbeddedEngine::kVocab;
              if (row != kBadRow) std::fill_n(values, EmbeddedEngine::kVocab, -kInf);
              if (row != kBadRow) values[1] = 0;
            }
          }
          params.verify = method;
          const uint32_t target_rows[] = {0, kBadRow, 2};
          const specd_sequence sequence = f.Open(params);
          CheckNamed(f.Round(TwoTokens(sequence, target_rows, nullptr)), fault.target_detail,
                     kBadRow);
          REQUIRE(specd_close_sequence(f.engine, sequence) == SPECD_OK);
        }
      }
    });
  }

  TEST_CASE("a bad draft row is named, and not as a target row") {
    ForBothModes([](EmbeddedEngine& f) {
      for (const Fault& fault : kFaults) {
        for (const uint32_t method : {SPECD_VERIFY_TOKEN, SPECD_VERIFY_BLOCK}) {
          CAPTURE(fault.draft_detail);
          CAPTURE(method);
          SetRows(f, f.draft, fault.row);
          REQUIRE(f.Bind(SPECD_TARGET_ROWS, 1, SPECD_PROBABILITIES) == SPECD_OK);
          REQUIRE(f.Bind(SPECD_DRAFT_ROWS, 2, fault.kind) == SPECD_OK);
          specd_params params = EmbeddedEngine::Params(1);
          params.verify = method;
          if (fault.kind == SPECD_LOGITS) {
            for (uint32_t i = 0; i < EmbeddedEngine::kVocab; ++i) f.draft[i] = i == 1 ? 0 : -kInf;
          }
          const uint32_t target_rows[] = {0, 1, 2};
          const uint32_t draft_rows[] = {0, kBadRow};
          const specd_sequence sequence = f.Open(params);
          CheckNamed(f.Round(TwoTokens(sequence, target_rows, draft_rows)), fault.draft_detail,
                     kBadRow);
          REQUIRE(specd_close_sequence(f.engine, sequence) == SPECD_OK);
        }
      }
    });
  }

  TEST_CASE("a side channel out of range is named, and no row is blamed") {
    ForBothModes([](EmbeddedEngine& f) {
      struct Share {
        float weight;
        double mass;
      };
      for (const Share& bad :
           {Share{kNan, 1}, Share{-1, 1}, Share{kInf, 1}, Share{1, 0}, Share{1, 1e39}}) {
        SetRows(f, f.target, {});
        REQUIRE(f.Bind(SPECD_TARGET_ROWS, 1, SPECD_PROBABILITIES) == SPECD_OK);
        specd_params params = EmbeddedEngine::Params(1);
        params.verify = SPECD_VERIFY_TOKEN;
        const uint32_t rows[] = {0, 1, 2};
        const float weights[] = {1, bad.weight};
        const double masses[] = {1, bad.mass};
        const specd_sequence sequence = f.Open(params);
        specd_draft part = TwoTokens(sequence, rows, rows);
        part.draft_weights = weights;
        part.draft_masses = masses;
        CheckNamed(f.Round(part), SPECD_DETAIL_DRAFT_SHARE, SPECD_NO_ROW);
        REQUIRE(specd_close_sequence(f.engine, sequence) == SPECD_OK);
      }
    });
  }

  TEST_CASE("a row without a fault has none, and a mask that forbids all is no mass") {
    ForBothModes([](EmbeddedEngine& f) {
      SetRows(f, f.target, {});
      const specd_result good = f.Sample(f.Open(EmbeddedEngine::Params(), "good"));
      CHECK(good.status == SPECD_STATUS_OK);
      CHECK(good.detail == SPECD_DETAIL_NONE);
      CHECK(good.bad_row == SPECD_NO_ROW);
      f.mask[3] = 0xff;
      f.mask[4] = 0;
      const int32_t masks[] = {3, 4, 3};
      const uint32_t rows[] = {0, kBadRow, 2};
      specd_draft part = TwoTokens(f.Open(EmbeddedEngine::Params(), "bad"), rows, nullptr);
      part.mask_rows = masks;
      CheckNamed(f.Round(part), SPECD_DETAIL_TARGET_NO_MASS, kBadRow);
    });
  }

  TEST_CASE("calls between rounds name the fault of a row too") {
    ForBothModes([](EmbeddedEngine& f) {
      SetRows(f, f.draft, {kNan});
      std::fill_n(f.target + kBadRow * EmbeddedEngine::kVocab, EmbeddedEngine::kVocab, -kInf);
      specd_draft_request request = Sized<specd_draft_request>();
      request.sequence = f.Open(EmbeddedEngine::Params(1));
      request.mask_row = -1;
      request.num_children = 1;
      request.row = kBadRow;
      specd_draft_children children = Sized<specd_draft_children>();
      REQUIRE(specd_sample_draft(f.engine, &request, 1, &children) == SPECD_OK);
      CHECK(children.status == SPECD_STATUS_BAD_DISTRIBUTION);
      CHECK(children.detail == SPECD_DETAIL_DRAFT_NAN);
      const uint32_t rows[] = {0, kBadRow};
      const int32_t ids[] = {1, 1};
      specd_score_request score = Sized<specd_score_request>();
      score.rows = rows;
      score.ids = ids;
      score.num_ids = 2;
      specd_score_result scored = Sized<specd_score_result>();
      REQUIRE(specd_score(f.engine, &score, 1, &scored) == SPECD_OK);
      CHECK(scored.status == SPECD_STATUS_BAD_DISTRIBUTION);
      CHECK(scored.num_scored == 1);
      CHECK(scored.detail == SPECD_DETAIL_TARGET_NO_MASS);
    });
  }

  TEST_CASE("every detail has a text") {
    for (uint32_t detail = SPECD_DETAIL_SEQUENCE; detail <= SPECD_DETAIL_SLOT_PARENTS; ++detail) {
      CAPTURE(detail);
      const std::string text = specd_detail_text(detail);
      CHECK(text != "unknown");
      CHECK(text != "none");
    }
    CHECK(std::string(specd_detail_text(SPECD_DETAIL_SLOT_PARENTS + 1)) == "unknown");
  }
}

// ---- specd_bind was forgotten

// An engine that has bound the roles in `bound`, and one sequence.
struct HalfBound {
  HalfBound(const std::string& uri, const std::vector<int>& bound) {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = EmbeddedEngine::kVocab;
    options.max_draft = EmbeddedEngine::kMaxDraft;
    REQUIRE(specd_open(uri.c_str(), &options, &engine) == SPECD_OK);
    specd_region region;
    REQUIRE(specd_alloc(engine, 4096, &region) == SPECD_OK);
    for (const int role : bound) {
      specd_tensor tensor;
      specd_tensor_init(&tensor);
      tensor.region = region.id;
      tensor.num_rows = 16;
      REQUIRE(specd_bind(engine, role, &tensor) == SPECD_OK);
    }
    const specd_params params = EmbeddedEngine::Params();
    specd_sequence_info info = Sized<specd_sequence_info>();
    const std::string name = "bound-" + std::to_string(bound.size());
    REQUIRE(specd_open_sequence(engine, name.c_str(), &params, &info) == SPECD_OK);
    sequence = info.sequence;
  }
  ~HalfBound() { specd_close(engine); }
  HalfBound(const HalfBound&) = delete;
  HalfBound& operator=(const HalfBound&) = delete;

  specd_engine* engine = nullptr;
  specd_sequence sequence = 0;
};

void ForBothUris(const std::function<void(const std::string&)>& test) {
  test("embedded:cpu");
  const specd::test::EngineHost host;
  test(host.uri);
}

TEST_SUITE("unit") {
  TEST_CASE("specd_submit names the role that was never bound, and the remedy") {
    ForBothUris([](const std::string& uri) {
      const uint32_t rows[] = {0, 1};
      const int32_t tokens[] = {1};
      const uint8_t sampled[] = {SPECD_SAMPLED};
      const int32_t masks[] = {-1, 0};
      const int32_t no_masks[] = {-1, -1};
      const auto refused = [&](HalfBound& f, const specd_draft& part, const char* role) {
        CAPTURE(role);
        CHECK(specd_submit(f.engine, 1, &part, 1) == SPECD_ERROR_STATE);
        CHECK(LastErrorHas(role));
        CHECK(LastErrorHas("is not bound; call specd_bind"));
        // Nothing is in flight.
        specd_completion done = SizedCompletion();
        CHECK(specd_poll(f.engine, &done, 0) == SPECD_EMPTY);
      };
      HalfBound nothing(uri, {});
      specd_draft part = ChainDraft(nothing.sequence, 1, tokens, rows);
      refused(nothing, part, "SPECD_TARGET_ROWS");
      // What needs no row is taken.
      const int32_t argmax[] = {1, 2};
      part.target_rows = nullptr;
      part.target_argmax = argmax;
      CHECK(specd_submit(nothing.engine, 1, &part, 1) == SPECD_OK);
      specd_completion done = SizedCompletion();
      REQUIRE(specd_poll(nothing.engine, &done, 10000) == SPECD_OK);
      CHECK(done.results[0].num_kept == 2);

      HalfBound f(uri, {SPECD_TARGET_ROWS});
      part = ChainDraft(f.sequence, 1, tokens, rows);
      part.kinds = sampled;
      part.draft_rows = rows;
      refused(f, part, "SPECD_DRAFT_ROWS");
      part = ChainDraft(f.sequence, 1, tokens, rows);
      part.mask_rows = masks;
      refused(f, part, "SPECD_GRAMMAR_MASK");
      part = ChainDraft(f.sequence, 1, nullptr, rows);
      part.flags = SPECD_DRAFTS_BY_SLOT;
      refused(f, part, "SPECD_DRAFT_TOKENS");
      part = ChainDraft(f.sequence, 1, tokens, rows);
      part.mask_rows = no_masks;
      CHECK(specd_submit(f.engine, 2, &part, 1) == SPECD_OK);
      REQUIRE(specd_poll(f.engine, &done, 10000) == SPECD_OK);
      CHECK(done.results[0].status == SPECD_STATUS_OK);
    });
  }
}

}  // namespace
}  // namespace specd
