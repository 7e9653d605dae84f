// ReasoningGate holds a constraint back while a model reasons: it begins after the end marker.
//
// A ReasoningMarkers belongs to a model: the text that opens a thought and the text that closes it.
// A ReasoningGate is the matcher of one sequence. Until the end marker every id is allowed and the
// constraint's own matcher waits. The marker is found in the tokens' bytes. It may therefore be one
// token or several, lie anywhere in a draft, and end inside a token: the constraint then follows
// from the next byte on. The state is kept for each token, so rollback and fork are as those of
// the matcher inside (vLLM pulls 36138, 44297).
//
//   const ReasoningTexts texts = {.start = "<think>", .end = "</think>"};
//   auto markers = ReasoningMarkers::Create(texts, vocabulary, vocab_size);
//   auto inside = compiled->NewMatcher(options);
//   auto gate = std::make_unique<ReasoningGate>(*markers, std::move(inside), prompt);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "detokenizer/reasoning_end.h"
#include "detokenizer/vocabulary.h"
#include "speculative/grammar/matchers/grammar_matcher.h"

namespace specd::grammar {

struct ReasoningTexts {
  std::string start = {};  // may be empty: a thought is open from the start
  std::string end = {};    // empty: the model does not reason
};

class ReasoningMarkers {
 public:
  // INVALID_ARGUMENT: a marker is longer than kMarkerBytesMax, or no token sequence can spell it.
  static constexpr size_t kMarkerBytesMax = ReasoningEnd::kMarkerBytesMax;
  static absl::StatusOr<std::shared_ptr<const ReasoningMarkers>> Create(
      const ReasoningTexts& texts, const Vocabulary* vocabulary, int32_t vocab_size);

  static constexpr uint32_t kOver = ReasoningEnd::kOver;
  uint32_t AfterPrompt(std::span<const TokenId> prompt) const {
    return end_.AfterPrompt(prompt, vocabulary_);
  }
  using Advance = ReasoningEnd::Advance;
  Advance After(uint32_t progress, TokenId id) const { return end_.After(progress, Bytes(id)); }

  // True if the end marker lies in the text of these tokens.
  bool AreEnd(std::span<const TokenId> ids) const;
  const ReasoningTexts& texts() const { return texts_; }

  std::string_view Bytes(TokenId id) const { return vocabulary_.Bytes(id); }
  int32_t vocab_size() const { return vocab_size_; }

  // The tokens that complete the marker at this progress and have bytes after it.
  std::span<const TokenId> Crossing(uint32_t progress) const { return crossing_[progress]; }

  // The row of a gate with a fault.
  const MaskRow& no_ids() const { return no_ids_; }

 private:
  ReasoningMarkers(const ReasoningTexts& texts, const Vocabulary* vocabulary, int32_t vocab_size);

  const ReasoningTexts texts_;
  const Vocabulary& vocabulary_;
  const int32_t vocab_size_;
  const ReasoningEnd end_;
  std::vector<std::vector<TokenId>> crossing_;
  MaskRow no_ids_;
};

class ReasoningGate : public GrammarMatcher {
 public:
  ReasoningGate(std::shared_ptr<const ReasoningMarkers> markers,
                std::unique_ptr<GrammarMatcher> inside, std::span<const TokenId> prompt);

  std::optional<MaskRow> TryMask(WorkSlice* slice) override;
  MatcherFault fault() const override { return fault_; }
  bool Accept(TokenId id) override;
  bool AcceptText(std::string_view text) override;
  void Rollback(size_t num_tokens) override;
  size_t num_accepted() const override;
  std::unique_ptr<GrammarMatcher> Fork() const override;
  bool IsAccepting() override { return is_open() ? inside_->IsAccepting() : true; }
  bool IsFinished() override;
  bool IsTerminated() const override { return is_open() && inside_->IsTerminated(); }
  std::string ForcedText() override { return is_open() ? inside_->ForcedText() : std::string(); }
  bool IsWaiting() const override { return !is_open(); }
  // The numbers of specd's own states begin at 2^32.
  uint64_t StateNumber() const override {
    return is_open() ? inside_->StateNumber() : uint64_t{progress_.back()} + 1;
  }

 private:
  MaskRow BuildRow(uint32_t progress);
  bool Keep(bool answer) {
    fault_ = inside_->fault();
    return answer;
  }
  // The bytes of a token that follow the marker.
  std::string_view RestOf(TokenId id, const ReasoningMarkers::Advance& after) const;
  bool is_open() const { return progress_.back() == ReasoningMarkers::kOver; }

  std::shared_ptr<const ReasoningMarkers> markers_;
  std::unique_ptr<GrammarMatcher> inside_;
  // Before the first token, and after each until the gate is open.
  std::vector<uint32_t> progress_;
  // The rows before the constraint, by progress, where a token may cross the marker. Few tokens do:
  // most progress has none.
  std::vector<std::pair<uint32_t, MaskRow>> rows_;
  MatcherFault fault_ = MatcherFault::kNone;
  bool has_rest_ = false;  // the token that opened the gate gave the constraint its first bytes
};

}  // namespace specd::grammar
