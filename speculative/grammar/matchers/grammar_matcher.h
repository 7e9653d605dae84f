// GrammarMatcher follows one sequence through a constraint, and has the mask of each place.
//
// A round asks a matcher for the mask of a place, advances it over the draft token, and rolls it
// back. StateMatcher is the matcher of a compiled grammar (compiled_grammar.h), and ReasoningGate
// holds one back while a model reasons. A matcher that has ended answers with the mask of the stop
// ids alone. Mask, Accept, AcceptText and Rollback do not throw: where memory is missing, as at
// other limits, a matcher has a fault. One thread at a time.
//
//   auto matcher = compiled->NewMatcher({.stop_ids = {2}});
//   const MaskRow mask = matcher->Mask();      // one bit for each id
//   matcher->Accept(id);                       // false, and unchanged, if the mask forbids the id
//   matcher->Rollback(1);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/types.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/masks/mask_words.h"

namespace specd::grammar {

// One bit for each id: bit i % 32 of word i / 32, 1 = allowed. Bits past the vocabulary are 0. The
// row lives as long as a MaskRow holds it.
class MaskRow {
 public:
  MaskRow() = default;
  explicit MaskRow(std::shared_ptr<const MaskWords> words) : words_(std::move(words)) {}

  // True if every id is allowed, and no words are there.
  bool IsUnconstrained() const { return words_ == nullptr; }
  std::span<const uint32_t> words() const { return *words_; }
  bool Allows(TokenId id) const {
    return IsUnconstrained() ||
           ((*words_)[static_cast<size_t>(id) / 32] >> (static_cast<uint32_t>(id) % 32) & 1) != 0;
  }

 private:
  std::shared_ptr<const MaskWords> words_;
};

struct MatcherOptions {
  // Ids that end the text: EOS ids and the sequence's stop ids. They are allowed exactly where the
  // text may end, and never as text.
  std::vector<TokenId> stop_ids;
};

// Why a matcher has no answer. Limits are those of docs/GRAMMARS.md, "Limits of a sequence".
enum class MatcherFault : uint8_t {
  kNone = 0,
  kTooManyWays = 1,  // the text can go on in more ways than a state may have
  kFull = 2,         // the states that may follow need more memory than there is
  kTooMuchWork = 3,  // the mask takes too long to build
  kNoMemory = 4,     // the machine has no memory now
};

class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  // The ids that may come next. After a stop id: the stop ids. With a fault: none. Nothing, if the
  // slice is used up first: the next call at this place goes on from there.
  virtual std::optional<MaskRow> TryMask(WorkSlice* slice) = 0;
  // The same in one go.
  MaskRow Mask() {
    WorkSlice all;
    return *TryMask(&all);
  }
  // Why the last call had no answer; kNone: it had one. Masks, Accept, AcceptText and IsFinished
  // set it. A fault belongs to its place: after a rollback the matcher goes on.
  virtual MatcherFault fault() const = 0;
  // Advances over an id that Mask() allows. Returns false, and changes nothing, for any other.
  virtual bool Accept(TokenId id) = 0;
  // Advances over bytes, as one accepted id that spells them would. Not after a stop id.
  virtual bool AcceptText(std::string_view text) = 0;
  // Takes back the last `num_tokens` accepted ids. REQUIRES: num_tokens <= num_accepted().
  virtual void Rollback(size_t num_tokens) = 0;
  virtual size_t num_accepted() const = 0;

  // A matcher with the same history, which goes its own way from here.
  virtual std::unique_ptr<GrammarMatcher> Fork() const = 0;

  // The text may end here.
  virtual bool IsAccepting() = 0;
  // The text may end here and cannot continue: the sequence is finished without a stop id (CONTRACT
  // §7).
  virtual bool IsFinished() = 0;
  // A stop id was accepted.
  virtual bool IsTerminated() const = 0;
  // Bytes that every continuation begins with; empty where there is a choice.
  virtual std::string ForcedText() = 0;
  // True while the constraint has not begun, because the model still reasons.
  virtual bool IsWaiting() const { return false; }
  // A number for traces, never 0: matchers of one compiled grammar that have the same number are in
  // the same state.
  virtual uint64_t StateNumber() const = 0;
};

}  // namespace specd::grammar
