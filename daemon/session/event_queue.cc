#include "daemon/session/event_queue.h"

#include <utility>

#include "kernels/core/check.h"

namespace specd {

EventQueue::EventQueue(const Capacity& capacity)
    : headers_(capacity.events),
      tokens_(capacity.tokens),
      scores_(capacity.scores),
      openings_(capacity.events) {}

bool EventQueue::HasRoom(const Capacity& wanted) {
  return headers_.write_available() >= wanted.events &&
         tokens_.write_available() >= wanted.tokens && scores_.write_available() >= wanted.scores;
}

void EventQueue::PushOpening(SequenceHandle sequence, std::shared_ptr<const TokenEvent> opening) {
  SPECD_CHECK(opening->opening() != nullptr);
  SPECD_CHECK(openings_.push(std::move(opening)));
  SPECD_CHECK(headers_.push({.kind = TokenEventKind::kOpen, .sequence = sequence}));
}

void EventQueue::Push(Header header, std::span<const TokenId> ids,
                      std::span<const TokenScore> scores) {
  SPECD_CHECK(header.kind != TokenEventKind::kOpen);
  // Pop takes ids and scores for a round alone.
  SPECD_CHECK(header.kind != TokenEventKind::kEnd || (ids.empty() && scores.empty()));
  SPECD_CHECK(tokens_.push(ids.data(), ids.size()) == ids.size());
  SPECD_CHECK(scores_.push(scores.data(), scores.size()) == scores.size());
  header.num_ids = static_cast<uint32_t>(ids.size());
  header.num_scores = static_cast<uint32_t>(scores.size());
  SPECD_CHECK(headers_.push(header));
}

bool EventQueue::Pop(SequenceHandle* sequence, TokenEvent* event) {
  Header header;
  if (!headers_.pop(header)) return false;
  *sequence = header.sequence;
  if (header.kind == TokenEventKind::kOpen) {
    std::shared_ptr<const TokenEvent> opening;
    SPECD_CHECK(openings_.pop(opening));
    *event = *opening;
    return true;
  }
  *event = {.stream = header.stream,
            .offset = header.offset,
            .time_ns = static_cast<uint64_t>(header.time_ns)};
  if (header.kind == TokenEventKind::kEnd) {
    event->what = StreamEnd{.finish_reason = header.finish_reason,
                            .stop_token = header.stop_token,
                            .fault = header.fault,
                            .cumulative_logprob = header.cumulative_logprob};
    return true;
  }
  RoundTokens& tokens = *event->tokens();
  tokens.accepted = header.accepted;
  tokens.stop_token = header.stop_token;
  tokens.ids.resize(header.num_ids);
  SPECD_CHECK(tokens_.pop(tokens.ids.data(), header.num_ids) == header.num_ids);
  tokens.scores.resize(header.num_scores);
  SPECD_CHECK(scores_.pop(tokens.scores.data(), header.num_scores) == header.num_scores);
  for (uint32_t i = 0; header.has_logprobs && i < header.num_ids; ++i) {
    tokens.logprobs.push_back(tokens.scores[i * (header.num_scores / header.num_ids)].value);
  }
  return true;
}

}  // namespace specd
