// KeptStreams makes the events of a stream again, within its bounds.
#include "daemon/text/kept_streams.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// One stream's events, made as a session makes them.
struct Source {
  TokenEvent Open(uint64_t offset = 0) {
    tokens = offset;
    TokenEvent event;
    event.kind = TokenEventKind::kOpen;
    event.stream = stream;
    event.offset = offset;
    event.request_id = "r" + std::to_string(stream);
    event.stop_strings = {"stop"};
    event.prompt_tail = {9};
    return event;
  }
  TokenEvent Tokens(std::vector<TokenId> ids, uint32_t accepted) {
    TokenEvent event;
    event.stream = stream;
    event.offset = tokens;
    event.ids = std::move(ids);
    event.accepted = accepted;
    tokens += event.ids.size();
    return event;
  }
  TokenEvent End(uint64_t offset) const {
    TokenEvent event;
    event.kind = TokenEventKind::kEnd;
    event.stream = stream;
    event.offset = offset;
    event.finish_reason = SPECD_FINISH_LENGTH;
    return event;
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

bool Has(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

TEST_SUITE("unit") {
  TEST_CASE("kept: a stream from an offset on is the rounds that were published") {
    Fixture f;
    Source s;
    f.Take(s.Open(3));
    const TokenEvent first = f.Take(s.Tokens({1, 2, 3}, 2));
    const TokenEvent second = f.Take(s.Tokens({4}, 0));
    // FNV-1a of the ids 1, 2, 3, 4 as little-endian int32, by Python's integers.
    const TokenEvent end = f.Take(s.End(7));
    CHECK(end.checksum == 0x84c39a079fc08121u);
    for (const uint64_t offset : {0, 3}) {
      const std::vector<TokenEvent> all = f.From(1, offset);
      REQUIRE(all.size() == 4);
      CHECK(all[0].kind == TokenEventKind::kOpen);
      CHECK(all[0].stop_strings == std::vector<std::string>{"stop"});
      CHECK(all[0].prompt_tail == std::vector<TokenId>{9});
      CHECK(all[1].offset == 3);
      CHECK(all[1].ids == first.ids);
      CHECK(all[1].accepted == 2);
      CHECK(all[2].ids == second.ids);
      CHECK(all[3].kind == TokenEventKind::kEnd);
      CHECK(all[3].checksum == end.checksum);
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
    CHECK(end.checksum == 0x84c39a079fc08121u);
    const std::vector<TokenEvent> all = f.From(1, 0);
    REQUIRE(all.size() == 4);
    CHECK(all[2].ids == std::vector<TokenId>{3, 4});
    CHECK(all[2].accepted == 2);
  }

  TEST_CASE("kept: a fork has the tokens of its source, as far as it was copied") {
    Fixture f;
    Source s;
    f.Take(s.Open());
    f.Take(s.Tokens({1, 2}, 0));
    Source fork = {.stream = 2};
    TokenEvent opening = fork.Open(2);
    opening.forked_from = 1;
    opening.prompt_tail = {};
    f.Take(opening);
    f.Take(s.Tokens({3}, 0));
    f.Take(fork.Tokens({4}, 0));
    const std::vector<TokenEvent> all = f.From(2, 0);
    REQUIRE(all.size() == 2);
    CHECK(all[0].forked_from == 0);
    CHECK(all[0].offset == 2);
    CHECK(all[0].earlier == std::vector<TokenId>{1, 2});
    CHECK(all[0].prompt_tail == std::vector<TokenId>{9});
    CHECK(all[1].ids == std::vector<TokenId>{4});
    Source lost = {.stream = 3};
    opening = lost.Open(2);
    opening.forked_from = 77;
    f.Take(opening);
    CHECK_FALSE(f.kept.IsWhole(3));
    CHECK(f.kept.IsWhole(2));
  }

  TEST_CASE("kept: logprobs are kept and scores are not") {
    Fixture f;
    Source s;
    f.Take(s.Open());
    TokenEvent scored = s.Tokens({1, 2}, 0);
    scored.logprobs = {-0.5, -1.25};
    scored.scores = {{.id = 1, .value = -0.5F, .rank = 1}, {.id = 2, .value = -1.25F, .rank = 1}};
    f.Take(scored);
    const std::vector<TokenEvent> all = f.From(1, 0);
    CHECK(all[1].logprobs == scored.logprobs);
    CHECK(all[1].scores.empty());
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
        CHECK((event.kind == TokenEventKind::kOpen || event.offset == to.size()));
        to.insert(to.end(), event.ids.begin(), event.ids.end());
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
  TEST_CASE("kept: what cannot be given is refused by its name") {
    Fixture f;
    Source s;
    f.Take(s.Open());
    f.Take(s.Tokens({1, 2}, 0));
    CHECK(Has(f.WhyNot(9, 0), "stream = 9 is not kept"));
    CHECK(Has(f.WhyNot(1, 3), "offset = 3 is outside 0 .. 2"));
    CHECK(Has(f.WhyNot(1, UINT64_MAX), "is outside 0 .. 2"));
  }

  TEST_CASE("kept: ended streams go after their time") {
    Fixture f({.ended_ns = 60 * kSecondNs});
    Source s;
    f.Take(s.Open());
    f.Take(s.End(0), 5 * kSecondNs);
    f.kept.Expire(65 * kSecondNs - 1);
    CHECK(f.From(1, 0).size() == 2);
    f.kept.Expire(65 * kSecondNs);
    CHECK(Has(f.WhyNot(1, 0), "--keep_ended"));
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
    CHECK(Has(f.WhyNot(1, 0), "is not kept"));  // it gave way
    CHECK_FALSE(f.kept.IsWhole(2));
    CHECK(Has(f.WhyNot(2, 0), "were not kept"));
    // The end is checked all the same, and a reader that has all ids gets it.
    const TokenEvent end = f.Take(s.End(60'000));
    CHECK(end.checksum != 0);
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
