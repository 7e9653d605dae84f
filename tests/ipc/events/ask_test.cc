// Asks and answers survive their encoding, and hostile ones are refused by name.
#include "ipc/events/ask.h"

#include <doctest/doctest.h>

#include <string>

#include "ipc/include/specd/specd.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

std::string Encoded(const Ask& ask) {
  std::string bytes;
  AppendAsk(ask, &bytes);
  return bytes;
}

TokenEvent Tokens(std::vector<TokenId> ids) {
  return {.stream = 7, .offset = 5, .what = RoundTokens{.ids = std::move(ids), .accepted = 1}};
}

TEST_SUITE("unit") {
  TEST_CASE("ask: each kind keeps its fields") {
    const Ask from = {.kind = AskKind::kFrom, .stream = 7, .offset = 300, .by_tokens = true};
    auto read = DecodeAsk(Encoded(from));
    REQUIRE(read.ok());
    CHECK(read->kind == AskKind::kFrom);
    CHECK(read->stream == 7);
    CHECK(read->offset == 300);
    CHECK(read->by_tokens);
    read = DecodeAsk(Encoded({.kind = AskKind::kAbort, .request_id = "r"}));
    REQUIRE(read.ok());
    CHECK(read->kind == AskKind::kAbort);
    CHECK(read->request_id == "r");
    for (const AskKind kind : {AskKind::kStreams, AskKind::kEnded}) {
      read = DecodeAsk(Encoded({.kind = kind, .stream = 1}));
      REQUIRE(read.ok());
      CHECK(read->kind == kind);
      CHECK(read->request_id.empty());
    }
  }

  TEST_CASE("ask: an answer has its events and where to ask again") {
    TokenAnswer sent = {.epoch = 1, .seq = 2, .next = AskPosition{.stream = 7, .offset = 9}};
    sent.profiles = {"", "toy"};
    sent.tokenizers = {0, UINT64_MAX};
    const StreamOpening open = {.earlier = {4, 5}};
    const StreamEnd end = {.finish_reason = SPECD_FINISH_STOP, .checksum = 0xffffffffffffffff};
    sent.events = {{.stream = 7, .what = open}, Tokens({1, 2, 3}), {.what = end}};
    std::string bytes;
    AppendAnswer(sent, &bytes);
    const auto read = DecodeTokenAnswer(bytes);
    REQUIRE(read.ok());
    CHECK(read->epoch == 1);
    CHECK(read->seq == 2);
    REQUIRE(read->events.size() == 3);
    CHECK(read->events[0].opening()->earlier == open.earlier);
    CHECK(read->events[1].tokens()->ids == sent.events[1].tokens()->ids);
    CHECK(read->events[2].end()->checksum == end.checksum);
    CHECK(read->profiles == sent.profiles);
    CHECK(read->tokenizers == sent.tokenizers);
    REQUIRE(read->next.has_value());
    CHECK(read->next->stream == 7);
    CHECK(read->next->offset == 9);

    TextAnswer texts = {.epoch = 1, .seq = 2};
    texts.events.emplace_back();
    texts.events[0].text = "text";
    texts.events[0].spans = {{4, true}};
    bytes.clear();
    AppendAnswer(texts, &bytes);
    const auto text = DecodeTextAnswer(bytes);
    REQUIRE(text.ok());
    CHECK(text->events[0].text == "text");
    CHECK_FALSE(text->next.has_value());
  }

  TEST_CASE("ask: a refusal is a sentence, and not an answer without events") {
    std::string bytes;
    AppendRefusal(absl::NotFoundError("offset = 9 is \xff wrong"), &bytes);
    const auto read = DecodeTokenAnswer(bytes);
    CHECK(absl::IsNotFound(read.status()));
    CHECK(Mentions(read.status(), "offset = 9 is"));
  }
}

TEST_SUITE("fault") {
  TEST_CASE("ask: what is no ask is refused by the name of its field") {
    const std::string good = Encoded({.kind = AskKind::kFrom, .stream = 7, .offset = 3});
    for (size_t size = 0; size < good.size(); ++size) {
      CHECK_FALSE(DecodeAsk(std::string_view(good).substr(0, size)).ok());
    }
    std::string other = good;
    other.replace(other.find("from"), 4, "form");
    CHECK(Mentions(DecodeAsk(other).status(), "ask"));
    CHECK(Mentions(
        DecodeAsk(Encoded({.kind = AskKind::kAbort, .request_id = std::string(129, 'r')})).status(),
        "rid"));
  }
}

}  // namespace
}  // namespace specd
