// Streams that begin in the middle of their sequence: re-opened with outputs, after a prompt that
// ends in the middle of a code point, and forked.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/text/text_streams_fixture.h"

namespace specd {
namespace {

std::vector<TokenId> Letters(const std::string& text) {
  std::vector<TokenId> ids;
  for (const char letter : text) ids.push_back(letter - 'a');
  return ids;
}

struct Fixture : TextStreamsFixture {
  using TextStreamsFixture::Open;
  void OpenAfter(uint64_t stream, std::vector<TokenId> prompt, std::vector<TokenId> outputs,
                 std::vector<std::string> stops = {}, uint32_t min_tokens = 0) {
    Open(stream, outputs.size(),
         {.request_id = "r" + std::to_string(stream),
          .stop_strings = std::move(stops),
          .min_tokens = min_tokens,
          .prompt_tail = std::move(prompt),
          .output_tail = outputs});
  }

  void Fork(uint64_t source, uint64_t stream, uint64_t offset,
            std::vector<std::string> stops = {}) {
    Open(stream, offset,
         {.request_id = "r" + std::to_string(stream),
          .stop_strings = std::move(stops),
          .forked_from = source});
  }

  // The abort request that a stream's stop string made, if any.
  uint64_t KeptByStop(uint64_t stream) const {
    for (const AbortRequest& abort : aborts) {
      if (abort.stream == stream && abort.finish_reason == SPECD_FINISH_STOP) {
        return abort.kept_tokens;
      }
    }
    return 0;
  }
};

TEST_SUITE("unit") {
  TEST_CASE("outputs count for min_tokens, and the prompt has no stop string") {
    for (const uint32_t min_tokens : {0u, 3u, 4u}) {
      Fixture f;
      f.OpenAfter(1, Letters("a"), Letters("aa"), {"aa"}, min_tokens);
      f.Tokens(1, 2, Letters("aaaa"));
      CHECK(f.KeptByStop(1) == std::max(3u, min_tokens + 1));
      // The outputs were no stop string for the earlier stream, so they are none now.
      f.OpenAfter(2, Letters("ab"), Letters("cd"), {"abcd", "bcde", "cd"}, min_tokens);
      f.Tokens(2, 2, Letters("ef"));
      CHECK(f.KeptByStop(2) == 0);
      CHECK(f.Text(2) == "ef");
    }
  }

  TEST_CASE("a fork of a text that has stopped stops there too") {
    // Bug: the engine forks before it hears of the stop string, and the copy would run on.
    Fixture f;
    f.Open(1, 0, {.request_id = "r1", .stop_strings = {"x", "bc"}, .cumulative_logprob = 0});
    f.Apply(
        {.stream = 1, .what = RoundTokens{.ids = Letters("abcd"), .logprobs = {-1, -2, -4, -8}}});
    const uint64_t late = f.streams.meters().late_tokens.value();
    for (const uint64_t source : {1, 2}) {  // and a fork of the fork
      const uint64_t stream = source + 1;
      f.Fork(source, stream, 4, {"x", "bc"});
      CHECK(f.texts.back().stream == stream);
      CHECK(f.texts.back().kind == TextEventKind::kEnd);
      CHECK(f.texts.back().finish_reason == SPECD_FINISH_STOP);
      CHECK(f.texts.back().stop_string == "bc");
      CHECK(f.texts.back().tokens == 3);
      CHECK(f.texts.back().byte_offset == 0);
      CHECK(f.texts.back().cumulative_logprob == -7);
      CHECK(f.KeptByStop(stream) == 3);
      f.Tokens(stream, 4, {0});
      CHECK(f.Text(stream).empty());
      f.End(stream, 3, SPECD_FINISH_STOP);
      CHECK(f.aborts.back().stream == stream);
      CHECK(f.aborts.back().finish_reason == SPECD_FINISH_NONE);
      f.Fork(source, stream, 4, {"x", "bc"});
    }
    CHECK(f.streams.meters().late_tokens.value() == late + 2);
    CHECK(f.streams.num_live() == 0);
  }

  TEST_CASE("a fork whose source is unknown ends if it has stop strings") {
    Fixture f;
    f.Fork(9, 1, 4, {"x"});
    CHECK(f.texts.back().kind == TextEventKind::kEnd);
    CHECK(f.texts.back().finish_reason == SPECD_FINISH_ERROR);
    REQUIRE(f.aborts.size() == 1);
    CHECK(f.aborts[0].finish_reason == SPECD_FINISH_ABORT);
    CHECK(f.aborts[0].kept_tokens == 4);
    // Without stop strings it goes on, as every stream without them does.
    f.Fork(9, 2, 4);
    f.Tokens(2, 4, Letters("ab"));
    CHECK(f.Text(2) == "ab");
    CHECK(f.aborts.size() == 1);
    // A source that misses tokens, and one whose text ended by a gap.
    f.Open(3, {"x"});
    f.Fork(3, 4, 2, {"x"});
    CHECK(f.texts.back().finish_reason == SPECD_FINISH_ERROR);
    f.Tokens(3, 5, {0});
    f.Fork(3, 5, 6, {"x"});
    CHECK(f.texts.back().stream == 5);
    CHECK(f.texts.back().finish_reason == SPECD_FINISH_ERROR);
    CHECK(f.streams.num_live() == 1);
  }

  TEST_CASE("a fork that names other stop strings than its source has") {
    // Any peer may write to the wire.
    Fixture f;
    f.Open(1, {"x", "b"});
    f.Fork(1, 2, 0, {"q"});
    f.Tokens(2, 0, Letters("ab"));
    CHECK(f.texts.back().stop_string == "b");
    CHECK(f.KeptByStop(2) == 2);
  }
}

}  // namespace
}  // namespace specd
