// Streams of several models in one text side: each has the text of its own tokenizer.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/text/text_streams.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

Vocabulary Letters(char first, const TextRules& rules = {}) {
  Vocabulary::Builder builder;
  for (int i = 0; i < 26; ++i) {
    builder.Set(i, std::string(1, static_cast<char>(first + i)), {});
  }
  builder.Set(26, " z", {});
  builder.SetTextRules(rules);
  return std::move(builder).Build();
}

struct Fixture {
  Vocabulary small = Letters('a');
  Vocabulary capitals = Letters('A', {.stripped_spaces = 1});
  TextStreams streams{{{"", &small}, {"capitals", &capitals}}};
  std::vector<TextEvent> texts = {};
  std::vector<AbortRequest> aborts = {};

  void Open(uint64_t stream, std::string profile, std::vector<std::string> stops = {},
            uint64_t offset = 0) {
    const TokenEvent event = {
        .stream = stream,
        .offset = offset,
        .what = StreamOpening{.stop_strings = std::move(stops), .profile = std::move(profile)}};
    streams.Apply(event, &texts, &aborts);
  }

  void Tokens(uint64_t stream, uint64_t offset, std::vector<TokenId> ids) {
    const TokenEvent event = {
        .stream = stream, .offset = offset, .what = RoundTokens{.ids = std::move(ids)}};
    streams.Apply(event, &texts, &aborts);
  }

  std::string Text(uint64_t stream) const {
    std::string text;
    for (const TextEvent& event : texts) {
      if (event.stream == stream) text += event.text;
    }
    return text;
  }
};

TEST_SUITE("unit") {
  TEST_CASE("streams of two models have the text of their own tokenizers") {
    Fixture f;
    f.Open(1, "");
    f.Open(2, "capitals", {"B"});
    f.Tokens(1, 0, {0, 1});
    f.Tokens(2, 0, {0, 1});
    CHECK(f.Text(1) == "ab");
    CHECK(f.Text(2) == "A");
    REQUIRE(f.aborts.size() == 1);
    CHECK(f.aborts[0].stream == 2);
    CHECK(f.aborts[0].finish_reason == SPECD_FINISH_STOP);
  }

  TEST_CASE("a text of a model that the text side lacks ends with an error") {
    Fixture f;
    f.Open(1, "other");
    f.Tokens(1, 0, {0, 1});
    REQUIRE(f.texts.size() == 2);
    CHECK(f.texts[0].kind == TextEventKind::kOpen);
    CHECK(f.texts[1].kind == TextEventKind::kEnd);
    CHECK(f.texts[1].finish_reason == SPECD_FINISH_ERROR);
    CHECK(f.Text(1).empty());
    CHECK(f.aborts.empty());
    f.Open(2, "other", {"B"});
    REQUIRE(f.aborts.size() == 1);
    CHECK(f.aborts[0].stream == 2);
    CHECK(f.aborts[0].finish_reason == SPECD_FINISH_ABORT);
    CHECK(f.streams.num_live() == 0);
  }

  TEST_CASE("a stream that begins behind tokens keeps the space that a first text would lose") {
    Fixture f;
    f.Open(1, "capitals");
    f.Tokens(1, 0, {26, 26});
    CHECK(f.Text(1) == "z z");
    f.Open(2, "capitals", {}, 3);
    f.Tokens(2, 3, {26, 26});
    CHECK(f.Text(2) == " z z");
  }
}

}  // namespace
}  // namespace specd
