// Trees whose answers can be written down: ids that no place can keep, and rows that an engine
// changes while its tree is verified.
#include <doctest/doctest.h>

#include <cmath>
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
