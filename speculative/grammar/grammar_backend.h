// GrammarBackend compiles constraints for one tokenizer, and GrammarMatcher follows one sequence.
//
// Two backends exist: specd's own engine (specd_backend.h), and the xgrammar library, loaded at run
// time (xgrammar_backend.h). A round asks a matcher for the mask of a place, advances it over the
// draft token, and rolls it back. A matcher that has ended answers with the mask of the stop ids
// alone. Mask, Accept, AcceptText and Rollback do not throw: where memory is missing, as at other
// limits, a matcher has a fault.
//
// Backends and compiled grammars may be used by any number of threads at once, a matcher by one at
// a time.
//
//   auto compiled = backend->Compile({.kind = GrammarKind::kRegex, .text = "[0-9]+"});
//   auto matcher = (*compiled)->NewMatcher({.stop_ids = {2}});
//   const MaskRow mask = matcher->Mask();      // one bit for each id
//   matcher->Accept(id);                       // false, and unchanged, if the mask forbids the id
//   matcher->Rollback(1);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/types.h"

namespace specd::grammar {

// Values are on the wire and in specd.h.
enum class GrammarKind : uint32_t {
  kNone = 0,
  kJsonSchema = 1,     // text is a JSON Schema
  kJsonObject = 2,     // any JSON object; no text
  kRegex = 3,          // text is a pattern that the whole output matches
  kEbnf = 4,           // text is a grammar in the dialect of GBNF and xgrammar; its root is `root`
  kChoice = 5,         // text is a JSON array of strings
  kStructuralTag = 6,  // text is a JSON object: tags (begin, schema, end) and triggers
};

// The order of the members that a JSON Schema declares. Values are on the wire and in specd.h.
enum class KeyOrder : uint32_t {
  kSchema = 0,  // that of the schema; others come after them
  kAny = 1,     // the model's; others may come between them
};

// Where JSON allows whitespace. Values are on the wire and in specd.h.
enum class Whitespace : uint32_t {
  kFlexible = 0,  // space, tab, newline and carriage return, at most kWhitespaceMax in a row
  kCompact = 1,   // none
};

// A model may emit whitespace for ever; a value that people read has less than this in one place.
inline constexpr uint32_t kWhitespaceMax = 64;

// The backend that a request names. Values are on the wire and in specd.h.
enum class BackendChoice : uint32_t { kAuto = 0, kSpecd = 1, kXgrammar = 2 };

// The longest text of a constraint.
inline constexpr size_t kGrammarTextBytesMax = size_t{4} << 20;

struct GrammarRequest {
  GrammarKind kind = GrammarKind::kNone;
  std::string text;
  Whitespace whitespace = Whitespace::kFlexible;
  KeyOrder key_order = KeyOrder::kSchema;  // of a JSON Schema
  // Drop the parts of a schema that cannot be enforced, and name them in warnings(). Without it
  // such a schema is refused. Formats that the standard does not name are in warnings() either way.
  bool lenient = false;
  BackendChoice backend = BackendChoice::kAuto;

  friend bool operator==(const GrammarRequest&, const GrammarRequest&) = default;
};

// One bit for each id: bit i % 32 of word i / 32, 1 = allowed. Bits past the vocabulary are 0. The
// row lives as long as a MaskRow holds it.
class MaskRow {
 public:
  MaskRow() = default;
  explicit MaskRow(std::shared_ptr<const std::vector<uint32_t>> words) : words_(std::move(words)) {}

  // True if every id is allowed, and no words are there.
  bool IsUnconstrained() const { return words_ == nullptr; }
  std::span<const uint32_t> words() const { return *words_; }
  bool Allows(TokenId id) const {
    return IsUnconstrained() ||
           ((*words_)[static_cast<size_t>(id) / 32] >> (static_cast<uint32_t>(id) % 32) & 1) != 0;
  }

 private:
  std::shared_ptr<const std::vector<uint32_t>> words_;
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
  kLibrary = 4,      // the backend's library failed
  kNoMemory = 5,     // the machine has no memory now
};

class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  // The ids that may come next. After a stop id: the stop ids. With a fault: none.
  virtual MaskRow Mask() = 0;
  // Why the last call had no answer; kNone: it had one. Mask, Accept, AcceptText and IsFinished
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
  // A number for traces: matchers of one compiled grammar that have the same number are in the same
  // state. 0: the backend numbers no states.
  virtual uint64_t StateNumber() const { return 0; }
};

class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;

  // The compiled grammar must outlive its matchers; matchers hold it.
  virtual std::unique_ptr<GrammarMatcher> NewMatcher(const MatcherOptions& options) const = 0;
  // Lists the parts that lenient mode dropped and those that the backend does not enforce.
  virtual std::span<const std::string> warnings() const = 0;
  virtual size_t size_bytes() const = 0;
};

class GrammarBackend {
 public:
  virtual ~GrammarBackend() = default;

  virtual std::string_view name() const = 0;
  // InvalidArgument: the text is wrong (with the offset or the JSON pointer). Unimplemented: it is
  // right, and this backend cannot enforce it. ResourceExhausted: it is past a limit. Unavailable:
  // the machine has no room or time now, and the same request may succeed later. DeadlineExceeded:
  // the compile took too long; it may succeed on another day.
  virtual absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const GrammarRequest& request) const = 0;
};

}  // namespace specd::grammar
