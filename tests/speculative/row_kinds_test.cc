// Which parameters and masks rows of a kind can honour, and which tensors are bound at all.
#include "speculative/sequence/row_kinds.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "tests/speculative/verifier_fixture.h"

namespace specd {
namespace {

using Fixture = VerifierFixture;

std::string RefusalOf(Fixture& f, const SequenceParams& params) {
  const auto info = f.verifier->Open(params);
  return info.ok() ? "" : std::string(info.status().message());
}

TEST_SUITE("unit") {
  TEST_CASE("final probabilities refuse every parameter that would change them, by name") {
    using Set = void (*)(SequenceParams*);
    const std::pair<std::string, Set> fields[] = {
        {"temperature", [](SequenceParams* p) { p->temperature = 0.5; }},
        {"temperature", [](SequenceParams* p) { p->temperature = 0; }},
        {"top_k", [](SequenceParams* p) { p->top_k = 1; }},
        {"top_k", [](SequenceParams* p) { p->top_k = 7; }},
        {"top_p", [](SequenceParams* p) { p->top_p = 1 - 0x1p-53; }},
        {"min_p", [](SequenceParams* p) { p->min_p = 0x1p-100; }},
        {"frequency_penalty", [](SequenceParams* p) { p->frequency_penalty = 1; }},
        {"presence_penalty", [](SequenceParams* p) { p->presence_penalty = -1; }},
        {"repetition_penalty", [](SequenceParams* p) { p->repetition_penalty = 1.1; }},
        {"logit_bias",
         [](SequenceParams* p) {
           p->logit_bias = {{1, 1.0f}};
         }},
        {"allowed_token_ids", [](SequenceParams* p) { p->allowed_token_ids = {1}; }},
        {"disallowed_token_ids", [](SequenceParams* p) { p->disallowed_token_ids = {1}; }},
        {"min_tokens", [](SequenceParams* p) { p->min_tokens = 1; }},
        {"bad_words", [](SequenceParams* p) { p->bad_words = {{1}}; }},
        {"no_repeat_ngram_size", [](SequenceParams* p) { p->no_repeat_ngram_size = 1; }},
        {"thinking_budget",
         [](SequenceParams* p) {
           p->thinking = {0, 1, {2}, kNoToken};
         }},
        {"processors",
         [](SequenceParams* p) {
           p->processors = {{"repeat_run", {}}};
         }},
    };
    for (const auto& [name, set] : fields) {
      const std::string& field = name;
      CAPTURE(field);
      SequenceParams params;
      set(&params);
      Fixture f;
      const SequenceHandle s = f.Open(params);
      const absl::Status bound = f.verifier->BindTarget(f.View(RowKind::kFinalProbabilities));
      CHECK(bound.code() == absl::StatusCode::kFailedPrecondition);
      CHECK(std::string(bound.message()).find(field + ":") == 0);
      CHECK(std::string(bound.message()).find("the bound target rows are") != std::string::npos);
      f.verifier->Close(f.Open(params));  // what was bound before is bound still
      f.verifier->Close(s);
      REQUIRE(f.verifier->BindTarget(f.View(RowKind::kFinalProbabilities)).ok());
      CHECK(RefusalOf(f, params).find(field + ":") == 0);
      CHECK(RefusalOf(f, {}).empty());
    }
  }

  TEST_CASE("draft rows that are final refuse every parameter of the drafter, by name") {
    using Set = void (*)(DraftParams*);
    const std::pair<std::string, Set> fields[] = {
        {"draft_temperature", [](DraftParams* p) { p->temperature = 0.5; }},
        {"draft_top_k", [](DraftParams* p) { p->top_k = 1; }},
        {"draft_top_k", [](DraftParams* p) { p->top_k = 7; }},
        {"draft_top_p", [](DraftParams* p) { p->top_p = 1 - 0x1p-53; }},
        {"draft_min_p", [](DraftParams* p) { p->min_p = 0x1p-100; }},
        {"draft_edits", [](DraftParams* p) { p->edits = true; }},
    };
    Fixture f;
    REQUIRE(f.verifier->BindDraft(f.View(RowKind::kFinalProbabilities)).ok());
    for (const auto& [name, set] : fields) {
      const std::string& field = name;
      CAPTURE(field);
      SequenceParams params;
      set(&params.draft);
      CHECK(RefusalOf(f, params).find(field + ":") == 0);
    }
  }

  TEST_CASE("final rows are bound if every sequence that still reads rows allows them") {
    Fixture f;
    SequenceParams params;
    params.top_p = 0.5;
    params.max_tokens = 1;
    const SequenceHandle changing = f.Open(params);
    f.Open();
    CHECK_FALSE(f.verifier->BindTarget(f.View(RowKind::kFinalProbabilities)).ok());
    f.backend->script = {Confirm(0, {1})};
    REQUIRE(f.Round(changing).finish_reason == FinishReason::kLength);
    CHECK(f.verifier->BindTarget(f.View(RowKind::kFinalProbabilities)).ok());
  }

  TEST_CASE("values that change nothing are taken with final probabilities") {
    Fixture f;
    REQUIRE(f.verifier->BindTarget(f.View(RowKind::kFinalProbabilities)).ok());
    REQUIRE(f.verifier->BindDraft(f.View(RowKind::kFinalProbabilities)).ok());
    for (const int64_t top_k : {-1, 0, 8, 9}) {  // the vocabulary has 8 ids
      CAPTURE(top_k);
      SequenceParams params;
      params.top_k = params.draft.top_k = top_k;
      const auto info = f.verifier->Open(params);
      REQUIRE_MESSAGE(info.ok(), info.status().ToString());
      f.verifier->Close(info->handle);
    }
  }

  TEST_CASE("final probabilities take no mask; draft rows have their own parameters") {
    Fixture f;
    SequenceParams params;
    params.draft.top_p = 0.5;
    const SequenceHandle s = f.Open(params);
    REQUIRE(f.verifier->BindTarget(f.View(RowKind::kFinalProbabilities)).ok());
    const absl::Status draft = f.verifier->BindDraft(f.View(RowKind::kFinalProbabilities));
    CHECK(std::string(draft.message()).find("draft_top_p") == 0);
    const uint32_t words[] = {255};
    f.verifier->BindMask({words, 1, 1});
    const int32_t mask_rows[] = {0, 0, 0, 0};
    SequenceInput input = f.Input(s);
    input.mask_rows = mask_rows;
    const SequenceResult result = f.Round(input);
    CHECK(result.status == RoundStatus::kInvalid);
    CHECK(result.refusal == Refusal::kFinalMask);
    CHECK(RefusalText(result.refusal).find("final probabilities") != std::string_view::npos);
  }

  TEST_CASE("a tensor that contradicts itself is not bound") {
    Fixture f;
    TensorView view = f.View(RowKind::kProbabilities);
    view.rules.cap = 30;
    CHECK(std::string(f.verifier->BindTarget(view).message()).find("cap = 30") !=
          std::string::npos);
    view = f.View(RowKind::kProbabilities);
    view.dtype = DType::kFloat16;
    CHECK(std::string(f.verifier->BindDraft(view).message()).find("float32") != std::string::npos);
    view = f.View();
    view.vocab_size = 9;
    CHECK(std::string(f.verifier->BindTarget(view).message()).find("the session has 8") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace specd
