// If filters leave little of a row, one warp finds the result in a few of the row's steps. The warp
// lists the elements that lie there, and finds the result of every other team.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/bodies/narrow_list.h"
#include "kernels/bodies/read_ahead.h"
#include "kernels/bodies/sample.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/guarded_bytes.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

// Memory in which one warp has read a row ahead. An access after it faults. If the row has an even
// number of tiles, the list of steps ends where the memory ends.
class RowAhead {
 public:
  explicit RowAhead(int32_t vocab_size)
      : memory_(static_cast<size_t>(AheadRowBytes(vocab_size))),
        ahead_(AheadAt(memory_.data(), 0, vocab_size)) {
    std::memset(memory_.data(), kPoison, static_cast<size_t>(AheadRowBytes(vocab_size)));
  }

  // Reads the row by the warp, which may then continue with it.
  void Read(EmulatedTeam& team, const Row& row, float scale) {
    const int32_t num_tiles = NumTiles(row.view.vocab_size);
    AheadFacts facts;
    facts.max = ReadTiles(team, row, scale, true, ahead_.stats);
    facts.mass = MassOfTiles(team, ahead_.stats, num_tiles, {facts.max, scale});
    team.Publish(facts, ahead_.facts);
    team.Sync();
  }
  const AheadRead& read() const { return ahead_; }

 private:
  GuardedBytes memory_;
  AheadRead ahead_;
};

struct Listed {
  int32_t count = 0;
  std::vector<TokenId> ids;
  std::vector<float> values;
};

Listed ListByWarp(const Row& row, float floor) {
  RowAhead ahead(row.view.vocab_size);
  Listed listed;
  const std::string error = RunEmulatedBlock({.num_threads = 32}, [&](EmulatedThread thread) {
    EmulatedTeam team(thread);
    ahead.Read(team, row, 1.0f);
    Distribution p;
    p.row = row;
    p.stats = ahead.read().stats;
    const int32_t count = ListFrom(team, p, floor, ahead.read().list);
    if (team.leader()) listed.count = count;
  });
  REQUIRE(error == "");
  const ElementList& elements = ahead.read().list.elements;
  listed.ids.assign(elements.ids, elements.ids + std::max(listed.count, 0));
  listed.values.assign(elements.values, elements.values + std::max(listed.count, 0));
  return listed;
}

// A row of zeros with large elements in it.
class Peaks {
 public:
  explicit Peaks(int32_t vocab_size, DType dtype = DType::kFloat32, int64_t offset = 0)
      : matrix_({.dtype = dtype, .vocab_size = vocab_size, .num_rows = 1, .offset = offset}),
        values_(vocab_size) {}
  void Set(TokenId id, double value) { values_[static_cast<size_t>(id)] = value; }
  RowView view() {
    matrix_.Set(0, values_);
    return matrix_.row(0);
  }

 private:
  RowMatrix matrix_;
  std::vector<double> values_;
};

void CheckList(const Row& row, float floor) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < row.view.vocab_size; ++id) {
    if (ElementOf(row, id) >= floor) ids.push_back(id);
  }
  const Listed listed = ListByWarp(row, floor);
  REQUIRE(listed.count == static_cast<int32_t>(ids.size()));
  REQUIRE(listed.ids == ids);
  for (size_t i = 0; i < ids.size(); ++i) CHECK(listed.values[i] == ElementOf(row, ids[i]));
}

Filters RandomFilters(std::mt19937_64& random) {
  Filters filters;
  const uint64_t kinds = 1 + random() % 7;
  if ((kinds & 1) != 0) filters.top_k = static_cast<int32_t>(1 + random() % 120);
  if ((kinds & 2) != 0) filters.top_p = kTopPOff / 100 * (1 + random() % 99);
  if ((kinds & 4) != 0) filters.min_p = -0.5f * static_cast<float>(1 + random() % 20);
  filters.joint = random() % 4 == 0;
  return filters;
}

// Reads a row with these filters by one warp. True if the warp finds and draws the same as the
// scalar team. False if it gives up.
bool IsFound(const RowView& view, const Filters& filters, float scale, uint64_t coin) {
  const Row row = PlainRow(view);
  const OwnedWorkspace workspace(view.vocab_size);
  ScalarTeam<CpuTarget::kBaseline> scalar;
  const Distribution expected = ReadDistribution(scalar, row, scale, filters, workspace->target);
  const TokenId drawn = Sample(scalar, expected, coin);
  const TokenId other = Sample(scalar, expected, coin, drawn);

  RowAhead ahead(view.vocab_size);
  const OwnedWorkspace of_warp(view.vocab_size);
  RowWorkspace warp_workspace = of_warp->target;
  warp_workspace.ahead = ahead.read();
  bool is_wide = false;
  const std::string error = RunEmulatedBlock({.num_threads = 32}, [&](EmulatedThread thread) {
    EmulatedTeam team(thread);
    ahead.Read(team, row, scale);
    const Distribution p = ReadDistribution<true>(team, row, scale, filters, warp_workspace);
    if (team.leader()) is_wide = p.wide;
    if (p.wide) return;
    const bool same = p.total == expected.total && p.mass == expected.mass &&
                      p.row.cut.value == expected.row.cut.value &&
                      p.row.cut.last == expected.row.cut.last && Sample(team, p, coin) == drawn &&
                      Sample(team, p, coin, drawn) == other;
    if (team.leader()) CHECK(same);
  });
  REQUIRE(error == "");
  return !is_wide;
}

TEST_SUITE("unit") {
  TEST_CASE("a warp lists what is not below a floor, of rows of every type that begin anywhere") {
    std::mt19937_64 random(91);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const int32_t vocab_size : {1, 300, 40 * kTileSize, 40 * kTileSize + 1777}) {
        for (int64_t offset = 0; offset < 3; ++offset) {
          Peaks peaks(vocab_size, dtype, offset);
          const auto size = static_cast<uint64_t>(vocab_size);
          for (int i = 0; i < 90; ++i) {
            peaks.Set(static_cast<TokenId>(random() % size), 10.0 + static_cast<double>(i % 8));
          }
          peaks.Set(vocab_size - 1, 17.0);
          for (const float floor : {10.0f, 13.0f, 17.0f, 18.0f}) {
            CAPTURE(static_cast<int>(dtype));
            CAPTURE(vocab_size);
            CAPTURE(offset);
            CAPTURE(floor);
            CheckList(PlainRow(peaks.view()), floor);
          }
        }
      }
    }
  }

  TEST_CASE("a warp lists a row as its mask and its edits leave it") {
    std::mt19937_64 random(92);
    constexpr int32_t kVocabSize = 30 * kTileSize + 9;
    Peaks peaks(kVocabSize);
    std::vector<TokenEdit> edits;
    std::vector<uint32_t> mask((kVocabSize + 31) / 32, 0xFFFFFFFFu);
    for (TokenId id = 100; id < kVocabSize; id += 500 + static_cast<TokenId>(random() % 900)) {
      peaks.Set(id, 10.0 + static_cast<double>(id % 5));
      TokenEdit edit;
      edit.id = id + static_cast<TokenId>(random() % 2);
      edit.bias = id % 2 == 0 ? 11.0f : -11.0f;
      edit.flags = id % 3 == 0 ? kEditDisallowed : 0u;
      edits.push_back(edit);
      if (random() % 4 == 0) mask[static_cast<size_t>(id / 32)] = 0;
    }
    Row row = PlainRow(peaks.view());
    for (const bool masked : {false, true}) {
      for (const int32_t num_edits : {0, static_cast<int32_t>(edits.size())}) {
        row.mask = masked ? mask.data() : nullptr;
        row.sequence.edits = edits.data();
        row.sequence.num_edits = num_edits;
        CAPTURE(masked);
        CAPTURE(num_edits);
        CheckList(row, 10.0f);
        CheckList(row, 13.0f);
      }
    }
  }

  TEST_CASE("a warp lists a row as edits that raise elements leave it") {
    // 300 edits in 24 steps, beside each other for lanes of several turns.
    constexpr int32_t kVocabSize = 30 * kTileSize + 9;
    Peaks peaks(kVocabSize);
    std::vector<TokenEdit> edits;
    std::vector<TokenEdit> overrides;
    for (TokenId id = 3000; id < 9000; id += 20) {
      TokenEdit edit;
      edit.id = id;
      edit.bias = id % 60 == 0 ? 5.0f : -5.0f;
      edit.count = id % 100 == 0 ? 8 : 0;
      edits.push_back(edit);
      if (id % 300 != 0) continue;
      edit.bias = id % 900 == 0 ? -5.0f : 7.0f;
      overrides.push_back(edit);
    }
    for (TokenId id = 40; id < kVocabSize; id += 4000) peaks.Set(id, 6.0);
    Row row = PlainRow(peaks.view());
    row.sequence.edits = edits.data();
    row.sequence.num_edits = static_cast<int32_t>(edits.size());
    row.place.overrides = overrides.data();
    for (const float frequency : {0.0f, 0.25f, -0.5f}) {
      for (const size_t num_overrides : {size_t{0}, overrides.size()}) {
        row.sequence.penalties.frequency = frequency;
        row.place.num_overrides = static_cast<int32_t>(num_overrides);
        CAPTURE(frequency);
        CAPTURE(num_overrides);
        for (const float floor : {3.0f, 4.0f, 5.0f, 7.0f}) CheckList(row, floor);
      }
    }
  }

  TEST_CASE("ids that edits raise, but not to the floor, take no place in a list") {
    constexpr size_t kNumEdits = kNarrowListMax + 1;
    Peaks peaks(40 * kTileSize);
    std::vector<TokenEdit> edits(kNumEdits);
    for (size_t i = 0; i < kNumEdits; ++i) {
      edits[i].id = static_cast<TokenId>(i);
      edits[i].bias = 1.0f;
      if (i % kLanes == 0) peaks.Set(edits[i].id, 2.5);
    }
    Row row = PlainRow(peaks.view());
    row.sequence.edits = edits.data();
    row.sequence.num_edits = static_cast<int32_t>(kNumEdits);
    CheckList(row, 3.0f);
  }

  TEST_CASE("a warp lists a row as its rules and its columns leave it") {
    // The last step has nine elements. Those after the row's end are -inf, which a negative scale
    // would make the largest.
    constexpr int32_t kVocabSize = 20 * kTileSize + 9;
    Peaks peaks(kVocabSize, DType::kBFloat16);
    std::vector<int32_t> columns(kVocabSize);
    for (TokenId id = 0; id < kVocabSize; ++id) {
      columns[static_cast<size_t>(id)] = id % 3 == 0 ? -1 : (id * 7 + 11) % kVocabSize;
    }
    for (TokenId id = 2; id < kVocabSize; id += 1000) peaks.Set(id, id % 2 == 0 ? -4.0 : 4.0);
    for (const bool mapped : {false, true}) {
      for (const ElementRules rules : {ElementRules{}, ElementRules{.scale = -2.0f},
                                       ElementRules{.scale = 3.0f, .cap = 2.0f}}) {
        // An id without a column is -inf, so a negative scale would list too many.
        if (mapped && rules.scale < 0) continue;
        Row row = PlainRow(peaks.view());
        row.view.rules = rules;
        row.view.columns = mapped ? columns.data() : nullptr;
        CAPTURE(mapped);
        CAPTURE(rules.scale);
        CheckList(row, 1.5f);
        TokenEdit edit;
        edit.id = kVocabSize - 1;
        edit.bias = 9.0f;
        row.sequence.edits = &edit;
        row.sequence.num_edits = 1;
        CheckList(row, 1.5f);
      }
    }
  }

  TEST_CASE("a list that is full to the last place holds all, and one more is too many") {
    constexpr int32_t kVocabSize = 40 * kTileSize;
    Peaks dense(kVocabSize);
    for (TokenId id = 0; id < kNarrowListMax; ++id) dense.Set(5000 + id, 3.0);
    CheckList(PlainRow(dense.view()), 3.0f);
    dense.Set(0, 3.0);
    CHECK(ListByWarp(PlainRow(dense.view()), 3.0f).count == -1);

    TokenEdit edit;
    edit.id = 7;
    edit.bias = 1.0f;
    for (const int32_t num_edits : {0, 1}) {
      CAPTURE(num_edits);
      Peaks sparse(kVocabSize);
      for (int32_t step = 0; step < kNarrowStepsMax; ++step) sparse.Set(2 * step * kLanes + 7, 3.0);
      Row row = PlainRow(sparse.view());
      row.sequence.edits = &edit;
      row.sequence.num_edits = num_edits;
      CheckList(row, 3.0f);
      sparse.Set(kVocabSize - 1, 3.0);
      row.view = sparse.view();
      CHECK(ListByWarp(row, 3.0f).count == -1);
    }
  }

  TEST_CASE("one warp finds of filtered rows what a CPU finds, or it says that it is much") {
    std::mt19937_64 random(93);
    constexpr int32_t kVocabSize = 20 * kTileSize + 100;
    RowMatrix matrix({.vocab_size = kVocabSize, .num_rows = 1});
    int num_found = 0;
    int num_wide = 0;
    for (int round = 0; round < 200; ++round) {
      matrix.Set(0, RandomLogits(random, kVocabSize, round % 2 == 0 ? 4.0 : 1.0));
      const Filters filters = RandomFilters(random);
      const float scale = 1.0f + static_cast<float>(random() % 3);
      const bool found = IsFound(matrix.row(0), filters, scale, random() >> 11);
      (found ? num_found : num_wide) += 1;
    }
    CHECK(num_found >= 50);
    CHECK(num_wide >= 20);
  }

  TEST_CASE("a warp that cannot hold what min_p leaves does not take a part of it for all") {
    // 611 elements reach min_p, and top_p of their mass ends among the last 600 of them. Only 11
    // elements are 2^-8 or more.
    constexpr int32_t kVocabSize = 40 * kTileSize;
    RowMatrix matrix({.vocab_size = kVocabSize, .num_rows = 1});
    std::vector<double> logits(kVocabSize, -100.0);
    for (size_t i = 0; i < 600; ++i) logits[3000 + i] = -9.0;
    for (size_t i = 0; i < 10; ++i) logits[40 * i] = -1.0;
    logits[77] = 0.0;
    matrix.Set(0, logits);
    Filters filters;
    filters.min_p = -10.0f;
    filters.top_p = static_cast<uint64_t>(0.9 * kTopPOff);
    CHECK_FALSE(IsFound(matrix.row(0), filters, 1.0f, 1));
    filters.min_p = -8.0f;
    CHECK(IsFound(matrix.row(0), filters, 1.0f, 1));
  }

  TEST_CASE("a warp that gives up one filter does not go on with the others") {
    // The elements that min_p leaves fit into the list. top_p judges all of the row, and ends among
    // the elements of 2^-8.5. These lie in more steps than a warp looks at for top_p.
    constexpr int32_t kVocabSize = 20 * kTileSize;
    RowMatrix matrix({.vocab_size = kVocabSize, .num_rows = 1});
    std::vector<double> logits(kVocabSize, -40.0);
    for (int32_t step = 0; step < 125; ++step) {
      logits[static_cast<size_t>(step * kLanes + 3)] = step < 100 ? -7.9 : -8.5;
    }
    logits[5] = 0.0;
    matrix.Set(0, logits);
    Filters filters;
    filters.min_p = -9.0f;
    filters.joint = true;
    CHECK(IsFound(matrix.row(0), filters, 1.0f, 1));
    filters.top_p = static_cast<uint64_t>(0.99 * kTopPOff);
    CHECK_FALSE(IsFound(matrix.row(0), filters, 1.0f, 1));
  }
}

}  // namespace
}  // namespace specd
