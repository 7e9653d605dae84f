// Makes a verifier over a scripted backend: 8 tokens, up to 4 sequences, up to 3 drafts. Target and
// draft rows are bound, though the backend never reads them. One thread.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "speculative/verifier.h"
#include "tests/speculative/kept_tokens.h"
#include "tests/support/scripted_backend.h"
#include "tests/support/verify_round.h"

namespace specd {

struct VerifierFixture {
  static constexpr BackendLimits kLimits = {8, 4, 3};

  // A sequence with 3 drafts is 32 of piece_work.
  explicit VerifierFixture(const grammar::MaskPool::NowNs& now_ns = {}, int64_t piece_work = 0);
  ~VerifierFixture();

  TensorView View(RowKind kind = RowKind::kLogits) const {
    TensorView view;
    view.data = elements;
    view.num_rows = 5;
    view.row_stride = 8;
    view.vocab_size = 8;
    view.rules.kind = kind;
    return view;
  }

  TensorView DraftView() const {
    TensorView view = View();
    view.data = draft_elements;
    return view;
  }

  SequenceHandle Open(const SequenceParams& params, const SequenceHistory& history = {}) {
    auto info = verifier->Open(params, history);
    REQUIRE_MESSAGE(info.ok(), info.status().ToString());
    return info->handle;
  }
  SequenceHandle Open(int64_t max_tokens = 100) {
    SequenceParams params;
    params.max_tokens = max_tokens;
    return Open(params);
  }
  // Opens a sequence whose constraint is the matcher's.
  SequenceHandle OpenUnder(std::unique_ptr<grammar::GrammarMatcher> matcher,
                           const SequenceParams& params = {}) {
    auto built = verifier->opening().Build(params, {});
    REQUIRE_MESSAGE(built.ok(), built.status().ToString());
    built->grammar = *SequenceGrammar::Create(std::move(matcher), {}, kLimits);
    auto info = verifier->Insert(*std::move(built));
    REQUIRE_MESSAGE(info.ok(), info.status().ToString());
    return info->handle;
  }

  SequenceInput Input(SequenceHandle sequence, int32_t num_drafts = 3) const {
    SequenceInput input;
    input.sequence = sequence;
    input.draft.num_nodes = num_drafts;
    input.draft.tokens = drafts;
    input.draft.kinds = kinds;
    input.draft.target_rows = rows;
    input.draft.draft_rows = rows;
    return input;
  }

  SequenceResult Round(const SequenceInput& input) {
    SequenceResult result;
    VerifyRound(verifier, {&input, 1}, {&result, 1});
    return result;
  }
  SequenceResult Round(SequenceHandle sequence) { return Round(Input(sequence)); }

  float elements[40] = {};
  float draft_elements[40] = {};
  TokenId drafts[3] = {1, 2, 3};
  DraftKind kinds[3] = {};
  const uint32_t rows[4] = {0, 1, 2, 3};
  ScriptedBackend* backend = nullptr;
  std::unique_ptr<Verifier> verifier;
};

}  // namespace specd
