// KeptStreams makes the events of a stream again, within its bounds.
#include "daemon/text/kept_streams.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// One stream's events, made as a session makes them.
struct Source {
  TokenEvent Open(uint64_t offset = 0) {
    tokens = offset;
    return {.stream = stream,
            .offset = offset,
            .what = StreamOpening{.request_id = "r" + std::to_string(stream),
                                  .stop_strings = {"stop"},
                                  .prompt_tail = {9}}};
  }
  TokenEvent Tokens(std::vector<TokenId> ids, uint32_t accepted) {
    const uint64_t offset = tokens;
    tokens += ids.size();
    return {.stream = stream,
            .offset = offset,
            .what = RoundTokens{.ids = std::move(ids), .accepted = accepted}};
  }
  TokenEvent End(uint64_t offset) const {
    return {.stream = stream,
            .offset = offset,
            .what = StreamEnd{.finish_reason = SPECD_FINISH_LENGTH}};
  }
  uint64_t stream = 1;
  uint64_t tokens = 0;
};

struct Fixture {
  explicit Fixture(const KeepLimits& limits = {}) : kept(limits) {}
  TokenEvent Take(TokenEvent event, int64_t now_ns = 0) {
    kept.Take(&event, now_ns);
    return event;
  }
  std::vector<TokenEvent> From(uint64_t stream, uint64_t offset) const {
    auto answer = kept.Answer({.kind = AskKind::kFrom, .stream = stream, .offset = offset});
    REQUIRE(answer.ok());
    CHECK_FALSE(answer->next.has_value());
    return answer->events;
  }
  std::string WhyNot(uint64_t stream, uint64_t offset) const {
    const auto answer = kept.Answer({.kind = AskKind::kFrom, .stream = stream, .offset = offset});
    return std::string(answer.status().message());
  }
  KeptStreams kept;
};

TEST_SUITE("unit") {
  TEST_CASE("kept: a stream from an offset on is the rounds that were published") {
    Fixture f;
    Source s;
    f.Take(s.Open(3));
    const TokenEvent first = f.Take(s.Tokens({1, 2, 3}, 2));
    const TokenEvent second = f.Take(s.Tokens({4}, 0));
    // FNV-1a of the ids 1, 2, 3, 4 as little-endian int32, by Python's integers.
    const TokenEvent end = f.Take(s.End(7));
    CHECK(end.end()->checksum == 0x84c39a079fc08121u);
    for (const uint64_t offset : {0, 3}) {
      const std::vector<TokenEvent> all = f.From(1, offset);
      REQUIRE(all.size() == 4);
      CHECK(all[0].kind() == TokenEventKind::kOpen);
      CHECK(all[0].opening()->stop_strings == std::vector<std::string>{"stop"});
      CHECK(all[0].opening()->prompt_tail == std::vector<TokenId>{9});
      CHECK(all[1].offset == 3);
      CHECK(all[1].tokens()->ids == first.tokens()->ids);
      CHECK(all[1].tokens()->accepted == 2);
      CHECK(all[2].tokens()->ids == second.tokens()->ids);
      CHECK(all[3].kind() == TokenEventKind::kEnd);
      CHECK(all[3].end()->checksum == end.end()->checksum);
    }
    CHECK(f.From(1, 4).size() == 3);  // the round that has token 4, whole
    CHECK(f.From(1, 6).size() == 2);
    CHECK(f.From(1, 7).size() == 1);
  }

  TEST_CASE("kept: an end before the last tokens cuts them, and the checksum is of the rest") {
    Fixture f;
    Source s;
    f.Take(s.Open());
    f.Take(s.Tokens({1, 2}, 2));
    f.Take(s.Tokens({3, 4, 5, 6}, 4));
    f.Take(s.Tokens({7}, 0));
    const TokenEvent end = f.Take(s.End(4));
    CHECK(end.end()->checksum == 0x84c39a079fc08121u);
    const std::vector<TokenEvent> all = f.From(1, 0);
    REQUIRE(all.size() == 4);
    CHECK(all[2].tokens()->ids == std::vector<TokenId>{3, 4});
    CHECK(all[2].tokens()->accepted == 2);
    // Bug: a reader that has the tokens which became void was refused the end.
    for (const uint64_t offset : {5, 7}) {
      const std::vector<TokenEvent> rest = f.From(1, offset);
      REQUIRE(rest.size() == 1);
      CHECK(rest[0].kind() == TokenEventKind::kEnd);
      CHECK(rest[0].offset == 4);
    }
  }

  TEST_CASE("kept: the end of a fork may be before its opening, and all its tokens are void") {
    // Bug: the tokens and their checksum stayed.
    Fixture f;
    Source s;
    f.Take(s.Open(5));
    f.Take(s.Tokens({1, 2}, 0));
    const TokenEvent end = f.Take(s.End(3));
    CHECK(end.end()->checksum == 0xcbf29ce484222325u);  // FNV-1a of nothing
    const std::vector<TokenEvent> all = f.From(1, 0);
    REQUIRE(all.size() == 2);
    CHECK(all[1].offset == 3);
  }

  TEST_CASE("kept: a fork that gives up its source's tokens is announced as a fork") {
    // Bug: its opening looked like that of a stream that begins there, and a text side looked for
    // stop strings from its first token on.
    Fixture f({.bytes_max = 20'000});
    Source s;
    f.Take(s.Open());
    f.Take(s.Tokens({1, 2}, 0));
    Source fork = {.stream = 2};
    TokenEvent opening = fork.Open(2);
    opening.opening()->forked_from = 1;
    opening.opening()->prompt_tail = {};
    f.Take(opening);
    for (int i = 0; i < 1000; ++i) f.Take(s.Tokens(std::vector<TokenId>(60, 1), 0));
    for (int i = 0; i < 1000; ++i) f.Take(fork.Tokens(std::vector<TokenId>(60, 1), 0));
    CHECK_FALSE(f.kept.IsWhole(2));
    const auto answer = f.kept.Answer({.kind = AskKind::kStreams, .stream = 2});
    REQUIRE(answer->events.size() == 2);
    CHECK(answer->events[0].opening()->forked_from == 1);
    CHECK(answer->events[0].opening()->prompt_tail.empty());
    CHECK(answer->events[0].opening()->earlier.empty());
    CHECK(answer->events[1].offset == 60'002);
  }

  TEST_CASE("kept: a fork has the tokens of its source, as far as it was copied") {
    Fixture f;
    Source s;
    f.Take(s.Open());
    f.Take(s.Tokens({1, 2}, 0));
    Source fork = {.stream = 2};
    TokenEvent opening = fork.Open(2);
    opening.opening()->forked_from = 1;
    opening.opening()->prompt_tail = {};
    f.Take(opening);
    f.Take(s.Tokens({3}, 0));
    f.Take(fork.Tokens({4}, 0));
    const std::vector<TokenEvent> all = f.From(2, 0);
    REQUIRE(all.size() == 2);
    CHECK(all[0].opening()->forked_from == 0);
    CHECK(all[0].offset == 2);
    CHECK(all[0].opening()->earlier == std::vector<TokenId>{1, 2});
    CHECK(all[0].opening()->prompt_tail == std::vector<TokenId>{9});
    CHECK(all[1].tokens()->ids == std::vector<TokenId>{4});
    Source lost = {.stream = 3};
    opening = lost.Open(2);
    opening.opening()->forked_from = 77;
    f.Take(opening);
    CHECK_FALSE(f.kept.IsWhole(3));
    CHECK(f.kept.IsWhole(2));
  }

  TEST_CASE("kept: logprobs are kept and scores are not") {
    Fixture f;
    Source s;
    f.Take(s.Open());
    TokenEvent scored = s.Tokens({1, 2}, 0);
    scored.tokens()->logprobs = {-0.5, -1.25};
    scored.tokens()->scores = {{.id = 1, .value = -0.5F, .rank = 1},
                               {.id = 2, .value = -1.25F, .rank = 1}};
    f.Take(scored);
    const std::vector<TokenEvent> all = f.From(1, 0);
    CHECK(all[1].tokens()->logprobs == scored.tokens()->logprobs);
    CHECK(all[1].tokens()->scores.empty());
  }

  TEST_CASE("kept: answers of many pages have every id once") {
    Fixture f;
    Source a;
    Source b = {.stream = 5};
    for (Source* s : {&a, &b}) f.Take(s->Open());
    for (TokenId id = 0; id < 6000; ++id) {
      f.Take(a.Tokens({id}, 0));
      f.Take(b.Tokens({id + 1}, 0));
    }
    Ask ask;
    std::vector<TokenId> ids[2];
    size_t pages = 0;
    for (;; ++pages) {
      const auto answer = f.kept.Answer(ask);
      REQUIRE(answer.ok());
      std::string bytes;
      AppendAnswer(*answer, &bytes);
      CHECK(bytes.size() < 2 * kAnswerBytes);
      for (const TokenEvent& event : answer->events) {
        std::vector<TokenId>& to = ids[event.stream == 1 ? 0 : 1];
        if (event.opening() != nullptr) continue;
        CHECK(event.offset == to.size());
        to.insert(to.end(), event.tokens()->ids.begin(), event.tokens()->ids.end());
      }
      if (!answer->next.has_value()) break;
      ask.stream = answer->next->stream;
      ask.offset = answer->next->offset;
    }
    CHECK(pages > 2);
    for (size_t i = 0; i < 2; ++i) {
      REQUIRE(ids[i].size() == 6000);
      for (size_t k = 0; k < 6000; ++k) REQUIRE(ids[i][k] == static_cast<TokenId>(k + i));
    }
  }

  TEST_CASE("kept: live and ended streams are asked for apart, and by name") {
    Fixture f;
    for (uint64_t stream = 1; stream <= 3; ++stream) f.Take(Source{.stream = stream}.Open());
    f.Take(Source{.stream = 2}.End(0));
    CHECK(f.kept.Answer({.kind = AskKind::kStreams})->events.size() == 2);
    CHECK(f.kept.Answer({.kind = AskKind::kStreams, .stream = 2})->events.size() == 1);
    CHECK(f.kept.Answer({.kind = AskKind::kEnded})->events.size() == 2);
    const auto named = f.kept.Answer({.kind = AskKind::kStreams, .request_id = "r3"});
    REQUIRE(named->events.size() == 1);
    CHECK(named->events[0].stream == 3);
  }
}

TEST_SUITE("fault") {
  TEST_CASE("kept: a stream that goes between two pages is refused by its name") {
    // Bug: the answer continued with the next stream, and nobody heard that the rest is missing.
    Fixture f({.ended_ns = 60 * kSecondNs});
    Source a;
    Source b = {.stream = 2};
    for (Source* s : {&a, &b}) {
      f.Take(s->Open());
      for (TokenId id = 0; id < 6000; ++id) f.Take(s->Tokens({id}, 0));
    }
    f.Take(a.End(6000));
    f.Take(b.End(6000), kSecondNs);
    Ask ask = {.kind = AskKind::kEnded};
    const auto page = f.kept.Answer(ask);
    REQUIRE(page->next.has_value());
    REQUIRE(page->next->stream == 1);
    f.kept.Expire(60 * kSecondNs);
    ask.stream = page->next->stream;
    ask.offset = page->next->offset;
    const absl::Status status = f.kept.Answer(ask).status();
    CHECK(absl::IsNotFound(status));
    CHECK(Mentions(std::string(status.message()), "stream = 1 is not kept any more"));
    CHECK(f.kept.Answer({.kind = AskKind::kEnded, .stream = 2})->events[0].stream == 2);
  }

  TEST_CASE("kept: a stream that is opened a second time has its own end and its own time") {
    Fixture f({.ended_ns = 60 * kSecondNs});
    for (const int64_t now_s : {0, 50}) {
      Source s;
      f.Take(s.Open());
      f.Take(s.End(0), now_s * kSecondNs);
    }
    f.kept.Expire(70 * kSecondNs);  // of the first
    CHECK(f.From(1, 0).size() == 2);
    f.kept.Expire(110 * kSecondNs);
    CHECK(f.kept.bytes() == 0);
  }

  TEST_CASE("kept: what cannot be given is refused by its name") {
    Fixture f;
    Source s;
    f.Take(s.Open());
    f.Take(s.Tokens({1, 2}, 0));
    CHECK(Mentions(f.WhyNot(9, 0), "stream = 9 is not kept"));
    CHECK(Mentions(f.WhyNot(1, 3), "offset = 3 is outside 0 .. 2"));
    CHECK(Mentions(f.WhyNot(1, UINT64_MAX), "is outside 0 .. 2"));
  }

  TEST_CASE("kept: ended streams go after their time") {
    Fixture f({.ended_ns = 60 * kSecondNs});
    Source s;
    f.Take(s.Open());
    f.Take(s.End(0), 5 * kSecondNs);
    f.kept.Expire(65 * kSecondNs - 1);
    CHECK(f.From(1, 0).size() == 2);
    f.kept.Expire(65 * kSecondNs);
    CHECK(Mentions(f.WhyNot(1, 0), "--keep_ended"));
    CHECK(f.kept.bytes() == 0);
  }

  TEST_CASE("kept: streams without end take no more bytes than they may") {
    const KeepLimits limits = {.bytes_max = 100'000};
    Fixture f(limits);
    Source ended = {.stream = 1};
    f.Take(ended.Open());
    f.Take(ended.Tokens(std::vector<TokenId>(60, 1), 0));
    f.Take(ended.End(60));
    Source s = {.stream = 2};
    f.Take(s.Open());
    for (int i = 0; i < 1000; ++i) {
      f.Take(s.Tokens(std::vector<TokenId>(60, 1), 0));
      REQUIRE(f.kept.bytes() <= limits.bytes_max);
    }
    CHECK(Mentions(f.WhyNot(1, 0), "is not kept"));  // it gave way
    CHECK_FALSE(f.kept.IsWhole(2));
    CHECK(Mentions(f.WhyNot(2, 0), "were not kept"));
    // The end is checked all the same, and a reader that has all ids gets it.
    const TokenEvent end = f.Take(s.End(60'000));
    CHECK(end.end()->checksum != 0);
    CHECK(f.From(2, 60'000).size() == 1);
    // A text side that begins hears of the gap.
    Source late = {.stream = 3};
    f.Take(late.Open());
    for (int i = 0; i < 1000; ++i) f.Take(late.Tokens(std::vector<TokenId>(60, 1), 0));
    const auto answer = f.kept.Answer({.kind = AskKind::kStreams});
    REQUIRE(answer->events.size() == 2);
    CHECK(answer->events[1].offset == 60'000);
    for (uint64_t stream = 10; stream < 1000; ++stream) {
      f.Take(Source{.stream = stream}.Open());
      REQUIRE(f.kept.bytes() <= limits.bytes_max);
    }
  }
}

}  // namespace
}  // namespace specd
