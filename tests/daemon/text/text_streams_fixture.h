// TextStreamsFixture holds TextStreams over a small vocabulary, applies events to them, and keeps
// the text events and abort requests that follow.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/text/text_streams.h"

namespace specd {

// One letter per id, and a few longer tokens.
inline Vocabulary MakeLetters() {
  Vocabulary::Builder builder;
  for (int i = 0; i < 26; ++i) builder.Set(i, std::string(1, static_cast<char>('a' + i)), {});
  builder.Set(26, " world", {});
  builder.Set(27, "\xe2\x82", {});  // the first two bytes of the euro sign
  builder.Set(28, "\xac", {});      // its last byte
  builder.Set(30, "<eos>", {.added = true, .special = true});
  return std::move(builder).Build();
}

struct TextStreamsFixture {
  static constexpr TokenId kEos = 30;

  Vocabulary vocabulary = MakeLetters();
  TextStreams streams{{{"", &vocabulary}}};
  std::vector<TextEvent> texts;
  std::vector<AbortRequest> aborts;

  void Open(uint64_t stream, std::vector<std::string> stops = {}, bool include_stop = false,
            uint64_t offset = 0, uint32_t min_tokens = 0) {
    Open(stream, offset,
         {.request_id = "r" + std::to_string(stream),
          .stop_strings = std::move(stops),
          .include_stop = include_stop,
          .min_tokens = min_tokens});
  }
  void Open(uint64_t stream, uint64_t offset, StreamOpening opening) {
    Apply({.stream = stream, .offset = offset, .what = std::move(opening)});
  }

  void Tokens(uint64_t stream, uint64_t offset, std::vector<TokenId> ids, uint32_t accepted = 0,
              TokenId stop_token = kNoToken) {
    Apply({.stream = stream,
           .offset = offset,
           .what =
               RoundTokens{.ids = std::move(ids), .accepted = accepted, .stop_token = stop_token}});
  }

  void End(uint64_t stream, uint64_t offset, uint32_t finish, TokenId stop_token = kNoToken) {
    Apply({.stream = stream,
           .offset = offset,
           .what = StreamEnd{.finish_reason = finish, .stop_token = stop_token}});
  }
  void Apply(const TokenEvent& event) { streams.Apply(event, &texts, &aborts); }

  // The text of a client that appends every event at its offset.
  std::string Text(uint64_t stream) const {
    std::string text;
    for (const TextEvent& event : texts) {
      if (event.request_id != "r" + std::to_string(stream)) continue;
      if (event.kind != TextEventKind::kOpen) CHECK(event.byte_offset == text.size());
      text += event.text;
    }
    return text;
  }
};

}  // namespace specd
