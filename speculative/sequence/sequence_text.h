// SequenceText makes the text of one sequence inside its rounds, and finds its stop strings there.
//
// The text side does the same work after a round, with the same TextStream, so text, cuts and
// reasons are equal. An empty object makes no text and takes no memory. A copy is the text of a
// fork: it goes on where this text was given out, and counts its bytes from 0. Not thread-safe.
//
//   SequenceText text(std::move(stream), {.is_kept = true});
//   std::optional<int32_t> stop = text.Push({.ids = kept, .num_accepted = 2});
//   if (stop) kept = kept.first(*stop);  // the id at which a stop string completed is the last one
//   const SequenceText::Unread& given = text.Read();
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "detokenizer/text_stream.h"
#include "kernels/core/types.h"

namespace specd {

class SequenceText {
 public:
  struct Options {
    bool include_stop = false;
    bool is_kept = false;        // for Read; otherwise only the stop strings matter
    uint64_t num_outputs = 0;    // that the sequence has already
    uint64_t num_reasoning = 0;  // of them, those of the thought
  };
  // The text since the last Read.
  struct Unread {
    std::string text;
    uint64_t byte_offset = 0;      // of the text in the text of the sequence
    uint64_t token_offset = 0;     // output tokens before those of `ends`
    uint64_t reasoning_bytes = 0;  // of the text, at its front: those of the thought
    // For each token: the size of the sequence's text after it, with text that is held back. If a
    // stop string ended the text, none is beyond its end.
    std::vector<uint64_t> ends;
  };
  struct Kept {
    std::span<const TokenId> ids;
    int32_t num_accepted = 0;     // from the first one on
    bool ends_with_stop = false;  // the last id is a stop id or EOS
  };

  SequenceText() = default;
  SequenceText(TextStream begin, const Options& options);
  SequenceText(const SequenceText& other);
  SequenceText(SequenceText&&) = default;
  SequenceText& operator=(SequenceText other) noexcept;

  bool empty() const { return state_ == nullptr; }
  bool is_kept() const { return state_->options.is_kept; }

  // Pushes the tokens that a round keeps. If a stop string completes, the result is the number of
  // tokens up to then, and the later ones are not pushed. The call takes memory as the text needs
  // it; an exception says that none is left, and the text then ends after the tokens that
  // num_pushed() counts. REQUIRES, as do all others: !empty().
  std::optional<int32_t> Push(const Kept& kept);
  // Of the last Push.
  int32_t num_pushed() const { return state_->num_pushed; }

  // The sequence has ended otherwise than by a stop string. Does nothing if the text has ended.
  void Finish();

  // All text since the last call; valid until the next Push or Finish. A call before that gives the
  // same text again.
  const Unread& Read() {
    state_->is_read = true;
    return state_->unread;
  }
  // All output tokens of the thought.
  uint64_t num_reasoning() const { return state_->options.num_reasoning; }
  // The stop string or pattern that ended the text, by its index in the list of strings, followed
  // by the patterns; -1: none.
  int32_t stop_index() const { return state_->stop_index; }
  // REQUIRES: stop_index() >= 0.
  const std::string& stop_string() const;

 private:
  struct State {
    TextStream stream;
    Options options;
    TextChunk chunk = {};  // of the call that runs
    Unread unread = {};
    bool is_read = false;  // `unread` was read, and goes before further text comes
    uint64_t num_tokens = 0;
    int32_t num_pushed = 0;
    int32_t stop_index = -1;
  };
  void DropRead();
  // Adds the chunk to the unread text.
  void Keep();

  std::unique_ptr<State> state_;
};

}  // namespace specd
