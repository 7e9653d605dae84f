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
  SPECD_CHECK(opening->kind == TokenEventKind::kOpen);
  SPECD_CHECK(openings_.push(std::move(opening)));
  SPECD_CHECK(headers_.push({.kind = TokenEventKind::kOpen, .sequence = sequence}));
}

void EventQueue::Push(SequenceHandle sequence, const TokenEvent& event) {
  SPECD_CHECK(event.kind != TokenEventKind::kOpen);
  const bool has_logprobs = !event.logprobs.empty();
  SPECD_CHECK(!has_logprobs || event.logprobs.size() == event.ids.size());
  for (size_t i = 0; i < event.ids.size(); ++i) {
    SPECD_CHECK(
        tokens_.push({.id = event.ids[i],
                      .logprob = has_logprobs ? static_cast<float>(event.logprobs[i]) : 0.0f}));
  }
  SPECD_CHECK(scores_.push(event.scores.data(), event.scores.size()) == event.scores.size());
  SPECD_CHECK(headers_.push({.kind = event.kind,
                             .finish_reason = event.finish_reason,
                             .sequence = sequence,
                             .stream = event.stream,
                             .offset = event.offset,
                             .time_ns = event.time_ns,
                             .cumulative_logprob = event.cumulative_logprob,
                             .stop_token = event.stop_token,
                             .num_ids = static_cast<uint32_t>(event.ids.size()),
                             .num_scores = static_cast<uint32_t>(event.scores.size()),
                             .accepted = event.accepted,
                             .fault = event.fault,
                             .has_logprobs = has_logprobs}));
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
  *event = {};
  event->kind = header.kind;
  event->stream = header.stream;
  event->offset = header.offset;
  event->time_ns = header.time_ns;
  event->accepted = header.accepted;
  event->stop_token = header.stop_token;
  event->finish_reason = header.finish_reason;
  event->fault = header.fault;
  event->cumulative_logprob = header.cumulative_logprob;
  event->ids.reserve(header.num_ids);
  if (header.has_logprobs) event->logprobs.reserve(header.num_ids);
  for (uint32_t i = 0; i < header.num_ids; ++i) {
    Token token;
    SPECD_CHECK(tokens_.pop(token));
    event->ids.push_back(token.id);
    if (header.has_logprobs) event->logprobs.push_back(token.logprob);
  }
  event->scores.resize(header.num_scores);
  SPECD_CHECK(scores_.pop(event->scores.data(), header.num_scores) == header.num_scores);
  return true;
}

}  // namespace specd
