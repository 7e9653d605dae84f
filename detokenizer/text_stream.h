// TextStream turns the ids of one sequence into text for the text side. It joins vocabulary, UTF-8
// and stop strings.
//
// Make one TextStream for each sequence and push every confirmed id in order. It releases text as
// soon as the text is certain: a code point when its last byte arrives. It holds back only text
// that may still become a stop string. All released text together equals the decoding of all ids at
// once, cut at the first stop string, however the ids were grouped. If the tokenizer's decoder
// strips leading spaces, or begins a text otherwise than it goes on, that happens where the text
// has a front: where no text comes before it.
//
// A sequence that had tokens before its stream begins with Prime. A copy of a running sequence
// begins with Fork.
//
// Not safe for use by two threads at once; the vocabulary and the stop set are shared and
// read-only. The vocabulary must outlive the TextStream.
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
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "detokenizer/reasoning_end.h"
#include "detokenizer/stop_matcher.h"
#include "detokenizer/utf8_stream.h"
#include "detokenizer/vocabulary.h"
#include "kernels/core/types.h"

namespace specd {

// Some bytes of text of one kind: all came from accepted draft tokens, or all from others, and all
// are of the thought, or all of the answer.
struct TextSpan {
  size_t size_bytes = 0;
  bool accepted_draft = false;
  bool is_reasoning = false;

  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

// Valid UTF-8, and spans that cover it exactly and in order. No two neighbours are alike, and none
// is empty.
struct TextChunk {
  std::string text;
  std::vector<TextSpan> spans;

  // The size of `like` does not matter.
  void Append(std::string_view piece, const TextSpan& like);
  void Clear();  // keeps the memory
};

struct TextOptions {
  bool skip_special_tokens = true;
  bool include_stop = false;  // the text ends with the stop string instead of before it
  uint64_t min_tokens = 0;    // a stop string that completes within this many first tokens is text
  // Text came before that Prime does not get, so spaces at the front are no leading ones.
  bool continues = false;
  // The model's marker, if a thought is open where the stream begins, after all of its prompt and
  // outputs; null: its text is an answer.
  std::shared_ptr<const ReasoningEnd> reasoning = nullptr;
  uint32_t reasoning_progress = 0;  // in the marker
};

enum class TextEnd {
  kFlush,    // held text is released; bytes of an unfinished code point become U+FFFD
  kDiscard,  // held text is dropped
};

class TextStream {
 public:
  // `stops` may be null.
  TextStream(const Vocabulary* vocabulary, std::shared_ptr<const StopSet> stops,
             TextOptions options);

  // Begins the text after these ids, whose own text was given before: the last ids of the prompt,
  // and the last outputs. A code point that they begin is completed by this stream. If it turns out
  // to be ill-formed, its U+FFFD for their bytes was given too. If the decoder strips leading
  // spaces, the text of these ids has lost them. A stop string may have begun in the
  // outputs, and then takes no text back. The prompt is not searched. The ids do not count for
  // min_tokens. REQUIRES: no id was pushed.
  void Prime(std::span<const TokenId> prompt_ids, std::span<const TokenId> output_ids);

  // The stream of a sequence that is opened: after the last ids of its prompt and of the outputs
  // that it was opened with, which are output_tail and those before it. All outputs count for
  // min_tokens.
  struct Begin {
    std::span<const TokenId> prompt_tail = {};
    std::span<const TokenId> output_tail = {};
    uint64_t num_outputs = 0;
  };
  static TextStream After(const Begin& begin, const Vocabulary* vocabulary,
                          std::shared_ptr<const StopSet> stops, TextOptions options);

  // The stream of a copy of the sequence, as it stands. The text of the copy goes on where this
  // stream has released all, and counts its bytes from 0.
  TextStream Fork() const;

  // Appends to `chunk` the text that this token makes certain. A stop string that completes within
  // the token's text ends the stream, unless the token is one of the first min_tokens. The released
  // text then ends before the stop string (or with it), and the return value is the stop string's
  // index in the list. On a stream that has ended the call does nothing, so the caller may push the
  // rest of a burst.
  //
  // A code point belongs to the token that completes it, and so does the U+FFFD for bytes that this
  // token proved ill-formed.
  // The marker that ends a thought is of the thought. What follows it in its token is of the
  // answer.
  std::optional<int> Push(TokenId id, bool accepted_draft, TextChunk* chunk);

  // Pushes a stop id or EOS whose text the caller did not ask for. The token adds no text. A stop
  // string that completes within the token still wins, as it does over every other reason at one
  // token.
  std::optional<int> PushWithheld(TokenId id, bool accepted_draft, TextChunk* chunk);

  // Ends the stream. No stop string is looked for in the final U+FFFD, because stop strings
  // complete at tokens only. Does nothing on a stream that has ended.
  void Finish(TextEnd how, TextChunk* chunk);

  // The size of all text released so far: the offset of the next released byte in the sequence's
  // text.
  uint64_t text_offset() const { return text_offset_; }
  // The same with the text that is held back. It does not depend on the stop strings, until one
  // ends the text.
  uint64_t decoded_offset() const { return text_offset_ + held_.size_bytes(); }

  bool ended() const { return ended_; }
  // The next token is of the thought. The token that completes the marker is the last such token.
  bool IsReasoning() const { return options_.reasoning != nullptr; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const StopSet* stops() const { return stops_.get(); }

  // True if no text ended the front yet.
  bool AtFront() const { return is_front_ || stripped_spaces_ > 0; }
  // True if the next token's text depends on bytes or a space that this stream has not given out.
  bool HasPending() const { return utf8_.HasPending() || holds_space_; }

 private:
  // Text that may begin a stop string, consumed from the front. A removal only moves a mark, so a
  // long stop string does not make every token move a long text.
  class HeldText {
   public:
    size_t size_bytes() const { return kept_.text.size() - text_begin_; }
    void Append(std::string_view piece, const TextSpan& like) { kept_.Append(piece, like); }
    void Release(size_t size_bytes, TextChunk* chunk);
    void Clear();

   private:
    void Compact();

    // Text and spans before the marks are released. If a span is released in part, size_bytes is
    // its rest.
    TextChunk kept_;
    size_t text_begin_ = 0;
    size_t span_begin_ = 0;
  };

  // A token's text and its effect on the stream, before anything is committed.
  struct Step {
    Utf8Stream utf8;
    StopState stop_state;
    uint32_t stripped_spaces = 0;
    bool holds_space = false;
    size_t given_size_bytes = 0;      // of this token's text, at its front
    size_t reasoning_size_bytes = 0;  // at its front; the text behind is of the answer
    std::string text = {};
    std::optional<StopMatch> match = {};

    std::string_view NewText(size_t end) const;
  };
  // The bytes of the token's text: none if it is skipped. Updates is_front_.
  std::string_view TakeBytes(TokenId id);
  // Turns the bytes of all ids into text, which loses what Decode would take from its ends.
  std::string PrimedText(std::span<const TokenId> ids);
  bool TakeLastSpace(const Utf8Stream& utf8, std::string* text) const;
  Step Decode(std::string_view bytes, size_t num_answer_bytes) const;
  // Follows the marker through a token, shown or not. Returns how many of its last bytes are of the
  // answer.
  size_t TakeThought(TokenId id);
  // Appends the text of a step up to `end` to a chunk or to held text.
  template <class To>
  static void AppendText(const Step& step, size_t end, bool accepted_draft, To* to);
  static void Strip(std::string* text, uint32_t* stripped_spaces);
  int StopAt(const Step& step, bool accepted_draft, TextChunk* chunk);
  void Release(size_t size_bytes, TextChunk* chunk);

  const Vocabulary* vocabulary_;
  std::shared_ptr<const StopSet> stops_;
  TextOptions options_;
  Utf8Stream utf8_;
  StopState stop_state_;
  uint32_t stripped_spaces_ = 0;  // that the text's front may still lose
  bool is_front_ = false;         // the next token has its FrontBytes
  bool holds_space_ = false;      // the last token ended with a space, text if another one follows
  // The U+FFFD for the bytes that Prime left pending were given before. 0 once these bytes are
  // text.
  size_t given_size_bytes_ = 0;
  HeldText held_;
  uint64_t num_tokens_ = 0;  // includes the token being pushed
  uint64_t text_offset_ = 0;
  bool pending_accepted_draft_ = false;  // of the token that brought the last pending byte
  bool ended_ = false;
};

}  // namespace specd
