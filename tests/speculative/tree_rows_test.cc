// Rows of trees that are no distributions: a row counts only where the walk needs it, and the
// result names the row of the place after the path.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "speculative/verifier.h"
#include "tests/speculative/kept_tokens.h"
#include "tests/support/verify_round.h"

namespace specd {
namespace {

constexpr int32_t kVocab = 4;
constexpr int32_t kNodes = 4;

// Nodes 0 and 1 follow the kept tokens, node 2 follows node 0, and node 3 follows node 1. Every
// target row wants the path of nodes 1 and 3. Row 9 - i of the tensors is that of place i.
struct Tree {
  Tree() : target(10 * kVocab), draft(10 * kVocab) {
    VerifierOptions options;
    options.limits = {kVocab, 1, kNodes};
    options.max_sequences = 1;
    verifier = *Verifier::Create(options, *MakeBackend("cpu"));
    for (const auto& [rows, values] : {std::pair{"target", &target}, {"draft", &draft}}) {
      TensorView view;
      view.data = values->data();
      view.num_rows = 10;
      view.row_stride = view.vocab_size = kVocab;
      const bool is_target = rows == std::string_view("target");
      REQUIRE((is_target ? verifier->BindTarget(view) : verifier->BindDraft(view)).ok());
    }
    const TokenId wanted[] = {1, 3, 2, 3, 3};
    for (int place = 0; place <= kNodes; ++place) RowOf(target, place)[wanted[place]] = 60;
  }
  static float* RowOf(std::vector<float>& rows, int place) { return &rows[(9 - place) * kVocab]; }

  SequenceResult Verify(VerifyMethod method) {
    SequenceParams params;
    params.verify = method;
    params.max_tokens = 9;
    SequenceInput input;
    input.sequence = verifier->Open(params)->handle;
    const uint32_t target_rows[] = {9, 8, 7, 6, 5};
    const uint32_t draft_rows[] = {9, 9, 8, 7};
    const DraftKind kinds[] = {DraftKind::kSampled, DraftKind::kSampled, DraftKind::kSampled,
                               DraftKind::kSampled};
    input.draft = {.num_nodes = kNodes,
                   .tokens = tokens,
                   .parents = parents,
                   .kinds = kinds,
                   .target_rows = target_rows,
                   .draft_rows = draft_rows};
    SequenceResult result;
    VerifyRound(verifier, {&input, 1}, {&result, 1});
    REQUIRE(verifier->Close(input.sequence));
    return result;
  }

  const TokenId tokens[kNodes] = {0, 1, 3, 2};
  const int32_t parents[kNodes] = {kRoot, kRoot, 0, 1};
  std::vector<float> target;
  std::vector<float> draft;
  std::unique_ptr<Verifier> verifier;
};

TEST_SUITE("unit") {
  TEST_CASE("a bad row of a tree counts where it is needed, and is named by its place") {
    for (const VerifyMethod method : {VerifyMethod::kExactMatch, VerifyMethod::kTree,
                                      VerifyMethod::kTraversal, VerifyMethod::kTargetOnly}) {
      CAPTURE(static_cast<int>(method));
      Tree good;
      SequenceResult result = good.Verify(method);
      CHECK(result.status == RoundStatus::kOk);
      CHECK(Kept(result) == std::vector<TokenId>{1, 2, 3});

      Tree target;
      Tree::RowOf(target.target, 2)[0] = NAN;
      result = target.Verify(method);
      CHECK(result.status == RoundStatus::kBadDistribution);
      CHECK(result.refusal == Refusal::kTargetNan);
      CHECK(result.bad_row == 7);
      CHECK(Kept(result) == std::vector<TokenId>{1});
      CHECK(result.path[0] == 1);

      // The branch of node 0 does not stand.
      Tree other;
      Tree::RowOf(other.target, 1)[0] = NAN;
      CHECK(other.Verify(method).status == RoundStatus::kOk);

      Tree draft;
      Tree::RowOf(draft.draft, 2)[0] = NAN;
      result = draft.Verify(method);
      const bool reads_it = ReadsDraftRows(method);
      CHECK((result.refusal == Refusal::kDraftNan) == reads_it);
      CHECK(result.bad_row == (reads_it ? 7 : kNoRow));
      CHECK(result.num_kept == (reads_it ? 1 : 3));
    }
  }
}

}  // namespace
}  // namespace specd
