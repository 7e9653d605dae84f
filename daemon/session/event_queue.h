// EventQueue carries the events of one session from the verify thread to the publisher.
//
// One producer (the holder of the session's lock) and one consumer (the publisher thread) use it.
// A round's result is pushed as it is, and leaves as a TokenEvent. Inside the queue, ids and scores
// lie in rings of their own, and an opening is handed over whole. An end therefore takes a few
// bytes, and only sequences with logprobs take room for scores. Events leave in the order in which
// they were pushed. Pushing allocates nothing.
#pragma once

#include <boost/lockfree/spsc_queue.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ipc/events/token_event.h"
#include "kernels/core/sequence_round.h"
#include "kernels/core/token_score.h"

namespace specd {

class EventQueue {
 public:
  struct Capacity {
    size_t events = 0;
    size_t tokens = 0;  // of all events together
    size_t scores = 0;  // of all tokens together
  };
  // What an event of tokens, or an end, has beside ids and scores.
  struct Header {
    TokenEventKind kind = TokenEventKind::kTokens;
    uint32_t finish_reason = 0;
    SequenceHandle sequence = 0;
    uint64_t stream = 0;
    uint64_t offset = 0;
    int64_t time_ns = 0;
    double cumulative_logprob = 0;
    TokenId stop_token = kNoToken;
    uint32_t accepted = 0;
    EndFault fault = {};
    bool has_logprobs = false;  // the first score of each id is its logprob
    uint32_t num_ids = 0;       // filled in by Push, as the next one
    uint32_t num_scores = 0;
  };
  explicit EventQueue(const Capacity& capacity);

  // ---- producer. REQUIRES: each push has room.
  bool HasRoom(const Capacity& wanted);
  void PushOpening(SequenceHandle sequence, std::shared_ptr<const TokenEvent> opening);
  void Push(Header header, std::span<const TokenId> ids = {},
            std::span<const TokenScore> scores = {});

  // ---- consumer
  // False if there is no event. `sequence` becomes the handle that the event was pushed with.
  bool Pop(SequenceHandle* sequence, TokenEvent* event);
  bool empty() const { return headers_.read_available() == 0; }

 private:
  // Tokens, scores and openings are pushed before their header. A consumer that sees a header
  // therefore finds them.
  boost::lockfree::spsc_queue<Header> headers_;
  boost::lockfree::spsc_queue<TokenId> tokens_;
  boost::lockfree::spsc_queue<TokenScore> scores_;
  boost::lockfree::spsc_queue<std::shared_ptr<const TokenEvent>> openings_;
};

}  // namespace specd
