// The text of one sequence, token by token: vocabulary, UTF-8 and stop strings put together.
//
// Whoever turns confirmed ids into text makes one TextStream per sequence and pushes every id in
// order. Text comes out as soon as it is certain: a code point when its last byte arrives, and only
// what may still become a stop string is held back. All released text together is what decoding
// the ids at once gives, cut at the first stop string, however the ids were grouped.
//
// Not safe for use by two threads at once; the vocabulary and the stop set are shared and
// read-only. The vocabulary must outlive the stream.
//
//   TextStream stream(&vocabulary, stops, {});
//   TextChunk chunk;
//   for (const Token& token : burst) {
//     if (auto stop = stream.Push(token.id, token.accepted_draft, &chunk)) { ... break; }
//   }
//   Publish(chunk);
//   ...
//   stream.Finish(TextEnd::kFlush, &chunk);   // the sequence ended by EOS, length or abort
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "detokenizer/stop_matcher.h"
#include "detokenizer/utf8_stream.h"
#include "detokenizer/vocabulary.h"
#include "kernels/core/types.h"

namespace specd {

// Some bytes of text that all came from accepted draft tokens, or all from others.
struct TextSpan {
  size_t size_bytes = 0;
  bool accepted_draft = false;

  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

// Valid UTF-8, and spans that cover it exactly, in order, no two alike side by side, none empty.
struct TextChunk {
  std::string text;
  std::vector<TextSpan> spans;

  void Append(std::string_view piece, bool accepted_draft);
  void Clear();  // keeps the memory
};

struct TextOptions {
  bool skip_special_tokens = true;
  bool include_stop = false;  // the text ends with the stop string instead of before it
  uint64_t min_tokens = 0;    // a stop string that completes within so many first tokens is text
};

enum class TextEnd {
  kFlush,    // what was held back is text after all; bytes of an unfinished code point are U+FFFD
  kDiscard,  // what was held back does not exist
};

class TextStream {
 public:
  // `stops` may be null.
  TextStream(const Vocabulary* vocabulary, std::shared_ptr<const StopSet> stops,
             TextOptions options);

  // Appends to `chunk` the text that this token makes certain. If a stop string completes within
  // the token's text, and the token is one behind the first min_tokens, the stream ends there: what
  // was released ends before the stop string (or with it), and the return value is the stop
  // string's place in the list. On a stream that has ended it does nothing, so the rest of a burst
  // may be pushed without harm.
  //
  // A code point belongs to the token that completes it, and so does the U+FFFD for bytes that this
  // token proved ill-formed.
  std::optional<int> Push(TokenId id, bool accepted_draft, TextChunk* chunk);

  // For a stop id or EOS whose text the caller did not ask for. The token adds no text, but a stop
  // string that completes within it still wins, as it does over every other reason at one token.
  std::optional<int> PushWithheld(TokenId id, bool accepted_draft, TextChunk* chunk);

  // Ends the stream. No stop string is looked for in the final U+FFFD: stop strings complete at
  // tokens only. Does nothing on a stream that has ended.
  void Finish(TextEnd how, TextChunk* chunk);

  // Size of all text released so far: the offset in the sequence's text at which the next released
  // byte will stand.
  uint64_t text_offset() const { return text_offset_; }

  bool ended() const { return ended_; }

 private:
  // Text that may be the beginning of a stop string, consumed from the front. Removal only moves a
  // mark, so that a long stop string does not make every token move a long text.
  class HeldText {
   public:
    size_t size_bytes() const { return kept_.text.size() - text_begin_; }
    void Append(std::string_view piece, bool accepted_draft);
    void Release(size_t size_bytes, TextChunk* chunk);
    void Clear();

   private:
    void Compact();

    // What stands before the marks is released; of a span released in part, size_bytes is the rest.
    TextChunk kept_;
    size_t text_begin_ = 0;
    size_t span_begin_ = 0;
  };

  // How a token's text looks to the stream before anything is committed.
  struct Step {
    Utf8Stream utf8;
    StopState stop_state;
    std::string text;
    std::optional<StopMatch> match;
  };
  Step Decode(std::string_view bytes) const;
  int StopAt(const Step& step, bool accepted_draft, TextChunk* chunk);
  void Release(size_t size_bytes, TextChunk* chunk);

  const Vocabulary* vocabulary_;
  std::shared_ptr<const StopSet> stops_;
  TextOptions options_;
  Utf8Stream utf8_;
  StopState stop_state_;
  HeldText held_;
  uint64_t num_tokens_ = 0;  // with the one being pushed
  uint64_t text_offset_ = 0;
  bool pending_accepted_draft_ = false;  // of the token that brought the last pending byte
  bool ended_ = false;
};

}  // namespace specd
