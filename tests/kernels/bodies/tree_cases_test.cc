// Trees whose answers can be written down: ids that no place can keep, and rows that an engine
// changes while its tree is verified.
#include <doctest/doctest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/kernels/bodies/row_law.h"
#include "tests/kernels/bodies/run_chain.h"

namespace specd {
namespace {

constexpr TokenId kVocab = 4;

// Scale 1 takes logits to the base 2.
RowMatrix RowsOfWeights(const std::vector<std::vector<double>>& weights) {
  RowMatrix rows({.vocab_size = kVocab, .num_rows = static_cast<int64_t>(weights.size())});
  for (size_t i = 0; i < weights.size(); ++i) {
    std::vector<double> logits;
    for (const double weight : weights[i]) logits.push_back(std::log2(weight));
    rows.Set(static_cast<int64_t>(i), logits);
  }
  return rows;
}

// Rejects every draft token, and changes row 0 of `draft` when coin `when` is asked for.
struct ChangingCoins {
  RowMatrix* draft = nullptr;
  const std::vector<double>* row = nullptr;
  int* num_left = nullptr;

  uint64_t operator()(const CoinKey& key) const {
    if ((*num_left)-- == 0) draft->Set(0, *row);
    return key.purpose == Purpose::kAccept ? kCoinEnd - 1 : kCoinEnd / 3;
  }
};

TEST_SUITE("unit") {
  TEST_CASE("ids outside the vocabulary count at every place of the path") {
    // Nodes 0, 1 and 2 follow the root, nodes 3 and 4 node 2, and node 5 node 1. Every row wants 2.
    const std::vector<int32_t> parents = {kRoot, kRoot, kRoot, 2, 2, 1};
    const RowMatrix target = RowsOfWeights(std::vector<std::vector<double>>(7, {0, 0, 1, 0}));
    for (const VerifyMethod method :
         {VerifyMethod::kGreedy, VerifyMethod::kExactMatch, VerifyMethod::kTree,
          VerifyMethod::kTraversal, VerifyMethod::kTargetOnly}) {
      CAPTURE(static_cast<int>(method));
      ChainCase tree(method, {kVocab, kNoToken, 2, kVocab + 9, 1, kVocab}, DraftKind::kOneHot);
      tree.task.draft.parents = parents.data();
      const ChainResult result =
          RunScalar(tree.task, target.view(), target.view(), FixedCoins{.accept = kCoinEnd / 2});
      CHECK(result.tokens == std::vector<TokenId>{2, 2});
      CHECK(result.path == std::vector<int32_t>{2});
      CHECK(result.outcome.invalid_drafts == 2);  // nodes 0 and 3; node 5 has no place on the path
    }
  }

  // Node 0 follows the root, node 1 node 0, and node 2 is a sibling of node 1.
  TEST_CASE("a side channel: a draft row is read after a rejection, and not before") {
    const std::vector<int32_t> parents = {kRoot, 0, 0};
    const std::vector<uint32_t> draft_rows = {0, 1, 1};
    const std::vector<float> weights = {1, 2, 0};  // of mass 2: d is 1/2, 1, and not looked at
    const std::vector<double> masses = {2, 2, 0};
    const RowMatrix target = RowsOfWeights(std::vector<std::vector<double>>(4, {1, 1, 1, 1}));
    RowMatrix nans({.vocab_size = kVocab, .num_rows = 2});
    for (int row : {0, 1}) nans.Set(row, std::vector<double>(kVocab, NAN));
    struct Case {
      std::vector<uint64_t> accept;  // the coin of each node
      size_t num_tree;               // tokens before the bad row; 3: no draft row was read
      size_t num_traversal;
    };
    constexpr uint64_t kHigh = kCoinEnd - 1;
    for (const Case& c : {Case{{0, 0, 0}, 3, 3}, Case{{0, kHigh, 0}, 1, 1},
                          Case{{kHigh, 0, 0}, 0, 3}, Case{{kHigh, kHigh, 0}, 0, 0}}) {
      for (const VerifyMethod method : {VerifyMethod::kTree, VerifyMethod::kTraversal}) {
        for (const DraftKind kind : {DraftKind::kSampled, DraftKind::kSampledRest}) {
          CAPTURE(static_cast<int>(method));
          ChainCase tree(method, {0, 1, 2}, {kind, kind, DraftKind::kOneHot});
          tree.task.draft.parents = parents.data();
          tree.task.draft.draft_rows = draft_rows.data();
          tree.task.draft.draft_weights = weights.data();
          tree.task.draft.draft_masses = masses.data();
          const ChainResult result =
              RunScalar(tree.task, target.view(), nans.view(), [&](const CoinKey& key) {
                return key.purpose == Purpose::kAccept ? c.accept[key.node - 1] : 0;
              });
          const size_t num = method == VerifyMethod::kTree ? c.num_tree : c.num_traversal;
          CHECK(result.tokens.size() == num);
          const bool is_bad = result.outcome.status == OutcomeStatus::kBadDraftRow;
          CHECK(is_bad == (num < 3));
          if (is_bad) CHECK(result.outcome.fault == RowFault::kNan);
        }
      }
    }
  }

  TEST_CASE("a side channel out of range is a bad draft row, where it is looked at") {
    const std::vector<int32_t> parents(2, kRoot);
    const std::vector<uint32_t> draft_rows(2, 0);
    const RowMatrix rows = RowsOfWeights(std::vector<std::vector<double>>(3, {1, 1, 1, 1}));
    const std::pair<float, double> wrong[] = {{-1, 4}, {INFINITY, 4}, {NAN, 4}, {1, 0},
                                              {1, -4}, {1, NAN},      {1, 4e38}};
    for (const auto& [weight, mass] : wrong) {
      for (const VerifyMethod method :
           {VerifyMethod::kTree, VerifyMethod::kTraversal, VerifyMethod::kTargetOnly}) {
        ChainCase tree(method, {0, 1}, DraftKind::kSampled);
        const std::vector<float> weights = {weight, 1};
        const std::vector<double> masses = {mass, 4};
        tree.task.draft.parents = parents.data();
        tree.task.draft.draft_rows = draft_rows.data();
        tree.task.draft.draft_weights = weights.data();
        tree.task.draft.draft_masses = masses.data();
        const ChainResult result =
            RunScalar(tree.task, rows.view(), rows.view(), FixedCoins{.accept = kCoinEnd - 1});
        const bool reads_q = method != VerifyMethod::kTargetOnly;
        CHECK((result.outcome.status == OutcomeStatus::kBadDraftRow) == reads_q);
        CHECK(result.outcome.fault == (reads_q ? RowFault::kShare : RowFault::kNone));
      }
    }
  }

  // Node 0 is a one-hot child of the root, and node 1 its sibling, which is drawn from the rest.
  TEST_CASE("a sibling holds the id of a point mass: nothing is left to draw from") {
    constexpr double kInf = INFINITY;
    struct Case {
      std::vector<double> row;
      TokenId forced;
      TokenId held;  // by node 0
      bool is_left;
    };
    const Case cases[] = {
        {{0, 1, 2, 3}, 1, 1, false},        {{0, 1, 2, 3}, 1, 2, true},
        {{NAN, 1, kInf, 3}, 3, 3, false},   {{NAN, 1, kInf, 3}, 3, 2, true},
        {{0, kInf, 2, 3}, -1, 1, false},    {{0, kInf, 2, 3}, -1, 2, true},
        {{0, kInf, 2, kInf}, -1, 1, false},  // the lowest infinite id has all mass
        {{0, kInf, 2, kInf}, -1, 3, true},
    };
    const RowMatrix target = RowsOfWeights(std::vector<std::vector<double>>(3, {1, 1, 1, 1}));
    const std::vector<int32_t> parents(2, kRoot);
    const std::vector<uint32_t> draft_rows(2, 0);
    const std::vector<float> weights(2, 1);
    const std::vector<double> masses(2, 1);
    for (const Case& c : cases) {
      RowMatrix draft({.vocab_size = kVocab, .num_rows = 1});
      draft.Set(0, c.row);
      std::vector<PlaceEdits> places(3);
      places[0].forced = c.forced;
      for (int bits = 0; bits < 16; ++bits) {
        const bool has_side = (bits & 1) != 0;
        const bool is_high = (bits & 2) != 0;
        ChainCase tree((bits & 4) != 0 ? VerifyMethod::kTree : VerifyMethod::kTraversal,
                       {c.held, 0}, {DraftKind::kOneHot, DraftKind::kSampledRest});
        tree.task.draft.parents = parents.data();
        tree.task.draft.draft_rows = draft_rows.data();
        tree.task.draft_edits = true;
        tree.task.places = places.data();
        if (has_side) tree.task.draft.draft_weights = weights.data();
        if (has_side) tree.task.draft.draft_masses = masses.data();
        if ((bits & 8) != 0) tree.task.draft_filters.top_k = 2;
        CAPTURE(bits);
        CAPTURE(c.forced);
        CAPTURE(c.held);
        const FixedCoins coins{.accept = is_high ? kCoinEnd - 1 : 0};
        const ChainResult result = RunScalar(tree.task, target.view(), draft.view(), coins);
        // With a side channel the row is read once node 1 falls. A forced place has p = 0 for it.
        const bool is_read = !has_side || is_high || c.forced != kNoToken;
        const bool is_bad = !c.is_left && is_read;
        CHECK(result.outcome.status == (is_bad ? OutcomeStatus::kBadDraftRow : OutcomeStatus::kOk));
        CHECK(result.outcome.fault == (is_bad ? RowFault::kNoMass : RowFault::kNone));
        CHECK(result.tokens.empty() == is_bad);
        CHECK(RunEmulated(tree.task, target.view(), draft.view(), coins, {}) == result);
      }
    }
  }

  // The answer is unspecified, but there is one, whatever the row has become and whenever it did.
  TEST_CASE("a draft row that changes between two siblings ends no process") {
    const std::vector<double> before = {.4, .3, .2, .1};
    const std::vector<std::vector<double>> rows = {
        {0, 0, 0, kInfinity}, {kInfinity, 0, 0, 0}, {0, -kInfinity, -kInfinity, -kInfinity},
        {NAN, 0, 0, 0},       {-9, 9, -9, 9},       {300, -300, 300, -300}};
    const RowMatrix target = RowsOfWeights(std::vector<std::vector<double>>(4, {.1, .2, .3, .4}));
    const std::vector<int32_t> parents(3, kRoot);
    const std::vector<uint32_t> draft_rows(3, 0);
    for (const VerifyMethod method : {VerifyMethod::kTree, VerifyMethod::kTraversal}) {
      for (const DraftKind kind : {DraftKind::kSampled, DraftKind::kSampledRest}) {
        ChainCase tree(method, {0, 1, 2}, kind);
        tree.task.draft.parents = parents.data();
        tree.task.draft.draft_rows = draft_rows.data();
        for (const std::vector<double>& row : rows) {
          for (int when = 0; when < 4; ++when) {
            CAPTURE(static_cast<int>(method));
            CAPTURE(when);
            RowMatrix draft = RowsOfWeights({before});
            int num_left = when;
            const ChainResult result = RunScalar(tree.task, target.view(), draft.view(),
                                                 ChangingCoins{&draft, &row, &num_left});
            REQUIRE(result.tokens.size() <= 2);
            for (const TokenId token : result.tokens) CHECK(uint32_t(token) < uint32_t(kVocab));
            const bool is_ok = result.outcome.status == OutcomeStatus::kOk;
            CHECK(is_ok == (result.outcome.num_tokens > result.outcome.num_accepted));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd
