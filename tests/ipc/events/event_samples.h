// SampleBatch and SampleText are events with every field, for tests that encode and decode them.
// Any thread may call.
#pragma once

#include "ipc/events/text_event.h"
#include "ipc/events/token_event.h"
#include "ipc/include/specd/specd.h"

namespace specd {

inline TokenBatch SampleBatch() {
  const TokenEvent open = {.stream = 5,
                           .time_ns = 100,
                           .what = StreamOpening{.request_id = "req-1",
                                                 .stop_strings = {"\n", "END"},
                                                 .skip_special_tokens = false,
                                                 .include_stop = true,
                                                 .min_tokens = 9}};
  const TokenEvent tokens = {
      .stream = 5, .time_ns = 200, .what = RoundTokens{.ids = {1, 50256, 0}, .accepted = 2}};
  const TokenEvent last = {
      .stream = 5, .offset = 3, .time_ns = 200, .what = RoundTokens{.ids = {7}, .stop_token = 7}};
  const TokenEvent end = {.stream = 5,
                          .offset = 4,
                          .time_ns = 300,
                          .what = StreamEnd{.finish_reason = SPECD_FINISH_STOP, .stop_token = 7}};
  return {~uint64_t{0}, 12, {open, tokens, last, end}};
}

inline TextEvent SampleText() {
  TextEvent event;
  event.kind = TextEventKind::kEnd;
  event.epoch = 9;
  event.seq = 10;
  event.stream = 12;
  event.request_id = "req-1";
  event.token_offset = 3;
  event.tokens = 6;
  event.byte_offset = 20;
  event.text = "h\xc3\xa4llo";
  event.spans = {{3, true}, {3, false}};
  event.finish_reason = SPECD_FINISH_STOP;
  event.stop_string = "END";
  event.rounds = 4;
  event.accepted = 2;
  event.late = 1;
  return event;
}

}  // namespace specd
