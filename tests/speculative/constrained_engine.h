// ConstrainedEngine is a verifier for tests of constraints, over a vocabulary of 16 short tokens.
//
// Its rows are a function of the tokens before them. Two engines that differ in their drafts
// therefore see the same model. One thread.
//
//   ConstrainedEngine engine;
//   const SequenceHandle sequence = engine.Open(Constrained(GrammarKind::kRegex, "(ab|c)*12?"));
//   const SequenceResult result = engine.Round(sequence, kept, drafts);
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "kernels/backend.h"
#include "speculative/verifier.h"
#include "tests/speculative/kept_tokens.h"
#include "tests/support/verify_round.h"

namespace specd {

using Ids = std::vector<TokenId>;
using grammar::GrammarKind;

inline constexpr TokenId kEos = 0;
inline constexpr int32_t kVocab = 20;
inline constexpr int32_t kDraft = 5;
// Id 1 + i is piece i; id 0 ends the text, and 17 to 19 are columns without a token.
inline const std::vector<std::string> kPieces = {"a", "b", "c",  "ab", "bc", "abc", "(",  ")",
                                                 "1", "2", "12", "+",  " ",  "(a",  "b)", "+1"};

inline Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  builder.Set(kEos, "</s>", {.added = true, .special = true});
  for (size_t i = 0; i < kPieces.size(); ++i) {
    builder.Set(static_cast<TokenId>(i + 1), kPieces[i], {});
  }
  return std::move(builder).Build();
}

inline TokenId IdOf(const std::string& piece) {
  const auto found = std::find(kPieces.begin(), kPieces.end(), piece);
  REQUIRE(found != kPieces.end());
  return static_cast<TokenId>(found - kPieces.begin() + 1);
}

inline std::string TextOf(const Ids& ids) {
  std::string text;
  for (const TokenId id : ids) {
    if (id != kEos && static_cast<size_t>(id) <= kPieces.size())
      text += kPieces[static_cast<size_t>(id - 1)];
  }
  return text;
}

inline SequenceParams Constrained(GrammarKind kind, const std::string& text) {
  SequenceParams params;
  params.grammar_kind = kind;
  params.grammar_text = text;
  params.seed = 5;
  params.has_seed = true;
  params.max_tokens = 30;
  return params;
}

// A verifier over rows that are a function of the tokens before them.
class ConstrainedEngine {
 public:
  explicit ConstrainedEngine(const std::string& reasoning_end = "")
      : vocabulary_(MakeVocabulary()), logits_(kVocab * (kDraft + 1)) {
    VerifierOptions options;
    options.limits = {kVocab, 4, kDraft};
    options.max_sequences = 4;
    options.eos_token_ids = {kEos};
    options.grammars = std::make_shared<grammar::GrammarCompiler>(
        grammar::GrammarCompilerOptions{.vocabulary = &vocabulary_,
                                        .vocab_size = kVocab,
                                        .reasoning = {.start = "", .end = reasoning_end}});
    verifier_ = *Verifier::Create(options, *MakeBackend("cpu"));
    REQUIRE(verifier_->BindTarget(View(logits_)).ok());
    draft_logits_ = logits_;
    REQUIRE(verifier_->BindDraft(View(draft_logits_)).ok());
  }

  SequenceHandle Open(const SequenceParams& params, const Ids& outputs = {}) {
    const auto info = verifier_->Open(params, {{}, outputs});
    REQUIRE_MESSAGE(info.ok(), info.status().ToString());
    return info->handle;
  }
  Verifier& verifier() { return *verifier_; }
  std::vector<float>& logits() { return logits_; }
  std::vector<float>& draft_logits() { return draft_logits_; }

  // Rows of this place's tokens: what a model might say, pure in its arguments.
  static void FillRow(const Ids& tokens, uint32_t salt, float* row) {
    uint32_t state = 99 + salt;
    const size_t first = tokens.size() > 3 ? tokens.size() - 3 : 0;
    for (size_t i = first; i < tokens.size(); ++i) {
      state = state * 31 + static_cast<uint32_t>(tokens[i] + 2);
    }
    std::mt19937 random(state);
    for (int32_t v = 0; v < kVocab; ++v) row[v] = static_cast<float>(random() % 512) / 100.0f;
  }

  // Every row wants the draft token of its place.
  void Want(const Ids& drafts) {
    std::fill(logits_.begin(), logits_.end(), 0.0f);
    for (size_t i = 0; i < drafts.size(); ++i) {
      logits_[i * kVocab + static_cast<size_t>(drafts[i])] = 9;
    }
  }

  // Without parents the draft is a chain.
  SequenceResult Round(SequenceHandle sequence, const Ids& kept, const Ids& drafts,
                       DraftKind kind = DraftKind::kOneHot, uint32_t draft_salt = 1,
                       const std::vector<int32_t>& parents = {}) {
    for (size_t i = 0; i <= drafts.size(); ++i) {
      Ids tokens;
      for (size_t place = i; place > 0;) {
        tokens.insert(tokens.begin(), drafts[place - 1]);
        place = parents.empty() ? place - 1 : static_cast<size_t>(parents[place - 1] + 1);
      }
      tokens.insert(tokens.begin(), kept.begin(), kept.end());
      FillRow(tokens, 0, &logits_[i * kVocab]);
      FillRow(tokens, draft_salt, &draft_logits_[i * kVocab]);
    }
    return RoundOverRows(sequence, drafts, kind, parents);
  }

  // A draft row is that of its token's place.
  SequenceResult RoundOverRows(SequenceHandle sequence, const Ids& drafts,
                               DraftKind kind = DraftKind::kOneHot,
                               const std::vector<int32_t>& parents = {}) {
    const uint32_t rows[] = {0, 1, 2, 3, 4, 5};
    std::vector<uint32_t> draft_rows(rows, rows + drafts.size());
    for (size_t i = 0; i < parents.size(); ++i) {
      draft_rows[i] = static_cast<uint32_t>(parents[i] + 1);
    }
    const std::vector<DraftKind> kinds(drafts.size(), kind);
    SequenceInput input;
    input.sequence = sequence;
    input.draft.num_nodes = static_cast<int32_t>(drafts.size());
    input.draft.tokens = drafts.data();
    input.draft.kinds = kinds.data();
    input.draft.target_rows = rows;
    input.draft.draft_rows = draft_rows.data();
    if (!parents.empty()) input.draft.parents = parents.data();
    SequenceResult result;
    VerifyRound(verifier_, {&input, 1}, {&result, 1});
    return result;
  }

 private:
  static TensorView View(std::vector<float>& rows) {
    TensorView view;
    view.data = rows.data();
    view.num_rows = kDraft + 1;
    view.row_stride = kVocab;
    view.vocab_size = kVocab;
    return view;
  }

  Vocabulary vocabulary_;
  std::vector<float> logits_;
  std::vector<float> draft_logits_;
  std::unique_ptr<Verifier> verifier_;
};

}  // namespace specd
