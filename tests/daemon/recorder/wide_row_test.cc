// Narrow draft rows in a trace: rows of all ids, from which the CPU decides each round again.
#include "daemon/recorder/wide_row.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "kernels/core/elements.h"
#include "tests/daemon/recorder/traced_session.h"
#include "tests/support/rows.h"
#include "tests/support/sealed_memory.h"

namespace specd::test {
namespace {

// Binds a map of `ids` in a region of its own, and draft rows behind it. Returns the rows' address.
std::unique_ptr<Mapping> BindNarrow(TracedSession* traced, const std::vector<int32_t>& ids) {
  const uint64_t map_bytes = ids.size() * sizeof(int32_t);
  const uint64_t size = map_bytes * (1 + TracedSession::kNumRows);
  UniqueFd fd = SealedMemory(size);
  auto mapped = Mapping::Map(fd.get(), size, MapAccess::kReadWrite);
  REQUIRE(mapped.ok());
  std::memcpy(mapped->data(), ids.data(), map_bytes);
  const auto region = traced->session->RegisterRegion(std::move(fd), size);
  REQUIRE(region.ok());
  TensorSpec map{.dtype = SPECD_INT32, .num_rows = 1, .columns = ids.size()};
  REQUIRE(traced->session->Bind(TensorRole::kDraftMap, *region, map).ok());
  TensorSpec rows{
      .offset_bytes = map_bytes, .num_rows = TracedSession::kNumRows, .columns = ids.size()};
  REQUIRE(traced->session->Bind(TensorRole::kDraftRows, *region, rows).ok());
  return std::make_unique<Mapping>(*std::move(mapped));
}

TEST_SUITE("unit") {
  TEST_CASE("a narrow row is written as a row of all ids, in every type") {
    const std::vector<int32_t> columns = {-1, 2, 0, -1, 1, -1};
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const RowKind kind : {RowKind::kLogits, RowKind::kProbabilities}) {
        if (kind != RowKind::kLogits && dtype != DType::kFloat32) continue;
        RowMatrix narrow({.dtype = dtype, .vocab_size = 3, .num_rows = 1, .rules = {.kind = kind}});
        narrow.Set(0, {0.5, 0.25, 2});
        TensorView rows = narrow.view();
        rows.vocab_size = 6;
        std::vector<std::byte> wide(6 * size_t(SizeBytes(dtype)));
        WidenRow(rows, columns.data(), static_cast<const std::byte*>(rows.data), wide.data());
        const RowView view{wide.data(), dtype, 6, {}};
        const float absent = kind == RowKind::kLogits ? -INFINITY : 0;
        const std::vector<float> expected = {absent, 2, 0.5f, absent, 0.25f, absent};
        for (TokenId id = 0; id < 6; ++id) CHECK(LoadElement(view, id) == expected[size_t(id)]);
      }
    }
  }

  TEST_CASE("a check finds nothing in rounds with narrow draft rows") {
    TracedSession traced({.trace_options = "level=rows,check=1"});
    std::mt19937_64 random(6);
    std::vector<int32_t> ids(TracedSession::kVocab);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    ids.resize(20);
    const std::unique_ptr<Mapping> narrow = BindNarrow(&traced, ids);
    float* const rows = static_cast<float*>(narrow->data()) + ids.size();
    std::vector<SequenceHandle> sequences;
    for (const VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      SequenceParams params;
      params.verify = method;
      params.max_tokens = 100'000;
      params.ignore_eos = true;  // rounds go on
      params.draft.top_k = method == VerifyMethod::kToken ? 9 : 0;
      sequences.push_back(traced.Open("s" + std::to_string(sequences.size()), params));
    }
    std::normal_distribution<float> normal(0, 1);
    for (int round = 0; round < 60; ++round) {
      traced.FillRows(random(), 1.0f);
      for (size_t i = 0; i < ids.size() * TracedSession::kNumRows; ++i) rows[i] = normal(random);
      std::vector<DraftOf> drafts;
      for (const SequenceHandle s : sequences) {
        drafts.push_back(TracedSession::Sampled(
            s, {ids[random() % ids.size()], ids[random() % ids.size()], ids[0]}));
      }
      for (const SequenceResult& result : traced.Round(drafts)) {
        REQUIRE(result.status == RoundStatus::kOk);
      }
    }
    traced.Finish();
    CHECK(traced.lines.size() == 0);
    const ReadTraceResult trace = traced.Read();
    REQUIRE(trace.rounds.size() == 60);
    CHECK(trace.rounds.back().tasks[0].decisions[0].q_mass > 0);
  }
}

}  // namespace
}  // namespace specd::test
