// Vocabulary gives the bytes of each token id, for every text stream of a model.
//
// A loader (tokenizer_file.h) builds one for each tokenizer file. It never changes afterwards, so
// any number of threads may read it. An id that the file does not name may be a hole, past the end,
// or negative. Such an id is a token of zero width and never an error. Models have more embedding
// rows than their tokenizer has tokens, and one such id must not end a stream.
//
//   Vocabulary::Builder builder;
//   builder.Set(0, "Hello", {});
//   builder.Set(7, "<eos>", {.added = true, .special = true});
//   const Vocabulary vocabulary = std::move(builder).Build();   // size() == 8, ids 1..6 are holes
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "detokenizer/utf8_stream.h"
#include "kernels/core/types.h"

namespace specd {

struct TokenFlags {
  bool added = false;    // from the file's added_tokens: added by people, not by training
  bool special = false;  // control text that skip_special_tokens hides
};

// Ends the front of a text, where a token has its FrontBytes.
enum class FrontEnd : uint8_t {
  kToken,  // the first token that has bytes, at the front or elsewhere
  kText,   // the first token that has FrontBytes
};

// The changes that a tokenizer's decoder makes to a text after it joined the bytes of its tokens.
struct TextRules {
  // SentencePiece's decoders replace each byte of an unfinished code point.
  Utf8Replacement replacement = Utf8Replacement::kSubpart;
  // The spaces that are taken from the front of a text, where it has so many.
  uint32_t stripped_spaces = 0;
  FrontEnd front_end = FrontEnd::kToken;
  // The space at the end of a token is text only if another token follows.
  bool holds_last_space = false;
};

class Vocabulary {
 public:
  class Builder;

  // The longest token; real vocabularies stay under 1 KiB.
  static constexpr size_t kTokenSizeBytesMax = 65535;

  // The highest id plus one, holes included, to compare with a model's vocabulary size.
  int32_t size() const { return static_cast<int32_t>(entries_.size()); }

  // The fewest columns that a row of the model's logits can have. Training gave each model token a
  // column. Added tokens may lie past the columns: such an id is never drawn. The time is
  // proportional to their number.
  int32_t MinColumns() const;

  // Returns nothing for an id that the vocabulary does not contain.
  std::string_view Bytes(TokenId id) const {
    if (!InRange(id)) return {};
    const Entry& entry = entries_[id];
    return {blob_.data() + entry.offset, entry.size_bytes};
  }

  // The token's bytes where no token with text precedes it. Most tokens have the same everywhere.
  std::string_view FrontBytes(TokenId id) const {
    if (id < 0 || static_cast<size_t>(id) >= fronts_.size()) return Bytes(id);
    const Entry& entry = fronts_[id];
    if ((entry.flags & kPresent) == 0) return Bytes(id);
    return {blob_.data() + entry.offset, entry.size_bytes};
  }

  // True if a text depends on where its front ends.
  bool HasFront() const { return !fronts_.empty() || text_rules_.stripped_spaces > 0; }

  bool Contains(TokenId id) const { return InRange(id) && Has(id, kPresent); }
  bool IsAdded(TokenId id) const { return InRange(id) && Has(id, kAdded); }
  bool IsSpecial(TokenId id) const { return InRange(id) && Has(id, kSpecial); }

  const TextRules& text_rules() const { return text_rules_; }

  // Tells vocabularies apart: FNV-1a with 64 bits over the ids in order. Each has its length as
  // four bytes, lowest first, and its bytes; an id that is not there has the length 2^32 - 1. Flags
  // and FrontBytes do not count. 0 is the hash of no vocabulary. The time is proportional to the
  // bytes.
  uint64_t Hash() const;

  // Returns the lowest id of an added token with exactly this content, as in FindAdded("</think>").
  // The time is proportional to size(): for start-up.
  std::optional<TokenId> FindAdded(std::string_view content) const;

 private:
  enum : uint8_t { kPresent = 1, kAdded = 2, kSpecial = 4 };

  struct Entry {
    uint32_t offset = 0;
    uint16_t size_bytes = 0;
    uint8_t flags = 0;
  };
  static_assert(sizeof(Entry) == 8, "eight entries to a cache line");

  bool InRange(TokenId id) const { return id >= 0 && id < size(); }
  bool Has(TokenId id, uint8_t flag) const { return (entries_[id].flags & flag) != 0; }

  std::vector<Entry> entries_;
  std::vector<Entry> fronts_;  // an entry that is not present is the one of entries_
  std::string blob_;
  TextRules text_rules_;
};

// Collects tokens in any order. Its limits are checked, not reported: a loader has already refused
// a file that breaks them, and named the file's field.
class Vocabulary::Builder {
 public:
  // REQUIRES: 0 <= id < kVocabSizeMax, bytes.size() <= kTokenSizeBytesMax, id not set before, and
  // less than 4 GiB in total.
  void Set(TokenId id, std::string_view bytes, TokenFlags flags);

  // Gives a token that was set other bytes for the front of a text. The same limits hold.
  void SetFront(TokenId id, std::string_view bytes);

  bool Contains(TokenId id) const { return vocabulary_.Contains(id); }

  void SetTextRules(const TextRules& rules) { vocabulary_.text_rules_ = rules; }

  Vocabulary Build() &&;

 private:
  Entry Append(std::string_view bytes);

  Vocabulary vocabulary_;
};

}  // namespace specd
