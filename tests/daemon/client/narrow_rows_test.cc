// Narrow draft rows over the C interface, embedded and attached: draws and rounds are those of full
// rows, and maps and rows that do not fit are refused by name.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::ForBothModes;
using test::TokensOf;

constexpr uint32_t kColumns = 3;
constexpr int32_t kIds[kColumns] = {6, 1, 4};

// A region with `elements`, and the tensor that names it as a map.
template <class Element>
specd_tensor MapOf(EmbeddedEngine& f, const std::vector<Element>& elements) {
  specd_region region;
  REQUIRE(specd_alloc(f.engine, elements.size() * sizeof(Element), &region) == SPECD_OK);
  std::memcpy(region.data, elements.data(), elements.size() * sizeof(Element));
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.dtype = sizeof(Element) == 8 ? SPECD_INT64 : SPECD_INT32;
  tensor.num_rows = 1;
  tensor.columns = static_cast<uint32_t>(elements.size());
  return tensor;
}

// The draft rows of a fresh region, with these columns.
float* BindDraft(EmbeddedEngine& f, uint32_t columns, int* code) {
  specd_region region;
  REQUIRE(specd_alloc(f.engine, 4 * EmbeddedEngine::kVocab * sizeof(float), &region) == SPECD_OK);
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = 4;
  tensor.columns = columns;
  *code = specd_bind(f.engine, SPECD_DRAFT_ROWS, &tensor);
  return static_cast<float*>(region.data);
}

// Draws two tokens one after another and has them verified, for many seeds. The draft model's rows
// are `values` at kIds and nothing elsewhere.
std::vector<std::vector<int32_t>> Run(EmbeddedEngine& f, float* draft, uint32_t columns) {
  for (uint32_t row = 0; row < 4; ++row) {
    const float x = static_cast<float>(row) * 0.4f;
    const float values[kColumns] = {x, 1 - x, 0.3f};
    for (uint32_t i = 0; i < columns; ++i) draft[row * columns + i] = -INFINITY;
    for (uint32_t i = 0; i < kColumns; ++i) {
      draft[row * columns + (columns == kColumns ? i : uint32_t(kIds[i]))] = values[i];
    }
    EmbeddedEngine::SetRow(f.target, row, {0, 0.8f, x, 0, 0.9f, 0, 0.7f + x, 0});
  }
  std::vector<std::vector<int32_t>> all;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    specd_params params = EmbeddedEngine::Params(1.0);
    params.has_seed = 1;
    params.seed = seed;
    params.verify = seed % 2 == 0 ? SPECD_VERIFY_TOKEN : SPECD_VERIFY_BLOCK;
    const specd_sequence s = f.Open(params);
    int32_t tokens[2] = {};
    for (uint32_t i = 0; i < 2; ++i) {
      specd_draft_request request = Sized<specd_draft_request>();
      request.sequence = s;
      request.mask_row = -1;
      request.num_children = 1;
      request.row = i;
      request.prefix = tokens;
      request.num_prefix = i;
      specd_draft_children drawn = Sized<specd_draft_children>();
      REQUIRE(specd_sample_draft(f.engine, &request, 1, &drawn) == SPECD_OK);
      REQUIRE(drawn.num_children == 1);
      CHECK(drawn.children[0].kind == SPECD_SAMPLED);
      tokens[i] = drawn.children[0].id;
    }
    const uint8_t kinds[2] = {SPECD_SAMPLED, SPECD_SAMPLED};
    specd_draft part = ChainDraft(s, 2, tokens, f.rows);
    part.kinds = kinds;
    part.draft_rows = f.rows;
    const specd_result result = f.Round(part);
    REQUIRE(result.status == SPECD_STATUS_OK);
    std::vector<int32_t> kept = TokensOf(result);
    kept.insert(kept.end(), tokens, tokens + 2);
    all.push_back(kept);
    REQUIRE(specd_close_sequence(f.engine, s) == SPECD_OK);
  }
  return all;
}

TEST_SUITE("unit") {
  TEST_CASE("narrow draft rows: the draws and rounds of full rows, by ids and by offsets") {
    ForBothModes([](EmbeddedEngine& f) {
      int code = 0;
      float* const full = BindDraft(f, 0, &code);
      REQUIRE(code == SPECD_OK);
      const auto expected = Run(f, full, EmbeddedEngine::kVocab);

      specd_tensor map = MapOf(f, std::vector<int32_t>{kIds, kIds + kColumns});
      REQUIRE(specd_bind(f.engine, SPECD_DRAFT_MAP, &map) == SPECD_OK);
      REQUIRE(specd_unregister(f.engine, map.region) == SPECD_OK);  // it was copied
      float* narrow = BindDraft(f, kColumns, &code);
      REQUIRE(code == SPECD_OK);
      CHECK(Run(f, narrow, kColumns) == expected);

      map = MapOf(f, std::vector<int64_t>{kIds[0], kIds[1] - 1, kIds[2] - 2});
      map.kind = SPECD_MAP_OFFSETS;
      REQUIRE(specd_bind(f.engine, SPECD_DRAFT_MAP, &map) == SPECD_OK);
      narrow = BindDraft(f, kColumns, &code);
      REQUIRE(code == SPECD_OK);
      CHECK(Run(f, narrow, kColumns) == expected);

      // Full rows are full rows, whatever map is bound.
      float* const again = BindDraft(f, EmbeddedEngine::kVocab, &code);
      REQUIRE(code == SPECD_OK);
      CHECK(Run(f, again, EmbeddedEngine::kVocab) == expected);
    });
  }

  TEST_CASE("narrow draft rows without their map, and maps that do not fit, are refused by name") {
    ForBothModes([](EmbeddedEngine& f) {
      int code = 0;
      BindDraft(f, kColumns, &code);
      CHECK(code == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("SPECD_DRAFT_MAP is not bound"));
      specd_tensor map = MapOf(f, std::vector<int32_t>{1, 2, 3, 4});
      REQUIRE(specd_bind(f.engine, SPECD_DRAFT_MAP, &map) == SPECD_OK);
      BindDraft(f, kColumns, &code);
      CHECK(code == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("SPECD_DRAFT_MAP has 4"));
      BindDraft(f, EmbeddedEngine::kVocab + 1, &code);
      CHECK(code == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("columns = 9"));

      // Only draft rows may be narrow.
      specd_tensor rows = map;
      rows.dtype = SPECD_FLOAT32;
      CHECK(specd_bind(f.engine, SPECD_TARGET_ROWS, &rows) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("SPECD_TARGET_ROWS"));

      map = MapOf(f, std::vector<int32_t>{1, 2, 1});
      CHECK(specd_bind(f.engine, SPECD_DRAFT_MAP, &map) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("columns 0 and 2 have the id 1"));
      map.num_rows = 2;
      CHECK(specd_bind(f.engine, SPECD_DRAFT_MAP, &map) == SPECD_ERROR_INVALID_ARGUMENT);
    });
  }

  TEST_CASE("a map unbinds the draft rows, and a sampled token is then refused") {
    ForBothModes([](EmbeddedEngine& f) {
      specd_tensor map = MapOf(f, std::vector<int32_t>{1, 2, 3});
      REQUIRE(specd_bind(f.engine, SPECD_DRAFT_MAP, &map) == SPECD_OK);
      const specd_sequence s = f.Open(EmbeddedEngine::Params(1.0));
      const int32_t token = 1;
      const uint8_t kind = SPECD_SAMPLED;
      specd_draft part = ChainDraft(s, 1, &token, f.rows);
      part.kinds = &kind;
      part.draft_rows = f.rows;
      CHECK(specd_submit(f.engine, 1, &part, 1) != SPECD_OK);
      CHECK(LastErrorHas("SPECD_DRAFT_ROWS"));
    });
  }
}

}  // namespace
}  // namespace specd
