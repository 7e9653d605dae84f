// Derender gives an answer again for the body that it was for, and for no other.
#include "tools/http/derender.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "detokenizer/vocabulary.h"

namespace specd::http {
namespace {

// Id i is the letter i of the alphabet.
Vocabulary Letters() {
  Vocabulary::Builder builder;
  for (TokenId id = 0; id < 26; ++id) {
    builder.Set(id, std::string(1, static_cast<char>('a' + id)), {});
  }
  return std::move(builder).Build();
}

struct Asked {
  const Vocabulary vocabulary = Letters();
  Derender derender{&vocabulary};

  // Of request r.
  absl::StatusOr<std::string> Ask(std::string_view fields) {
    return derender.Answer(fmt::format(R"({{"request_id":"r",{}}})", fields), 0);
  }
  // True if the answer has just this text, and says whether it was the last.
  bool Has(std::string_view fields, std::string_view text, bool is_last = false) {
    const absl::StatusOr<std::string> answer = Ask(fields);
    return answer.ok() && answer->find(fmt::format(R"("text":"{}",)", text)) != std::string::npos &&
           answer->ends_with(fmt::format(R"("finished":{}}})", is_last));
  }
  absl::StatusCode Code(std::string_view fields) { return Ask(fields).status().code(); }
};

// 1024 strings of 64 bytes: as many bytes as a list may have.
std::string LongStops() {
  std::string json;
  for (int i = 0; i < 1024; ++i) {
    json += fmt::format(R"({}"{:04}{}")", json.empty() ? "" : ",", i, std::string(60, 'x'));
  }
  return '[' + json + ']';
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("ids behind a body without ids are pushed, although the offset is the same") {
    Asked asked;
    CHECK(asked.Has(R"("ids":[],"stop":["x"])", ""));
    CHECK(asked.Has(R"("ids":[0],"offset":0)", "a"));
    CHECK(asked.Has(R"("ids":[0],"offset":0)", "a"));
    CHECK(asked.Has(R"("ids":[1],"offset":1)", "b"));
  }

  TEST_CASE("the end behind a body without ids releases what was held back") {
    Asked asked;
    CHECK(asked.Has(R"("ids":[0,3],"stop":["dx"])", "a"));
    CHECK(asked.Has(R"("ids":[],"offset":2)", ""));
    CHECK(asked.Has(R"("ids":[],"offset":2,"finish":true)", "d", true));
    CHECK(asked.Has(R"("ids":[],"offset":2,"finish":true)", "d", true));
  }

  TEST_CASE("other ids at the offset of a whole text are refused") {
    Asked asked;
    CHECK(asked.Has(R"("ids":[0,1],"offset":0,"stop":["x"],"finish":true)", "ab", true));
    CHECK(asked.Has(R"("ids":[0,1],"offset":0,"stop":["x"],"finish":true)", "ab", true));
    for (const char* other :
         {R"("ids":[2,3],"offset":0,"stop":["x"],"finish":true)",
          R"("ids":[0,1],"offset":0,"stop":["y"],"finish":true)",
          R"("ids":[0,1],"offset":0,"stop":["x"],"include_stop":true,"finish":true)",
          R"("ids":[0,1],"offset":0,"stop":["x"])", R"("ids":[0,1],"offset":0,"finish":true)"}) {
      CAPTURE(other);
      CHECK(asked.Code(other) == absl::StatusCode::kFailedPrecondition);
    }
  }

  TEST_CASE("options behind the first body are refused, also where no ids came before") {
    Asked asked;
    CHECK(asked.Has(R"("ids":[],"stop":["x"])", ""));
    CHECK(asked.Has(R"("ids":[],"offset":0,"stop":["x"])", ""));
    CHECK(asked.Code(R"("ids":[0],"offset":0,"stop":["y"])") == absl::StatusCode::kInvalidArgument);
    CHECK(asked.Code(R"("ids":[0],"min_tokens":1)") == absl::StatusCode::kInvalidArgument);
    CHECK(asked.Has(R"("ids":[0],"offset":0)", "a"));
  }

  TEST_CASE("stop strings take room: the requests that were used longest ago give way") {
    constexpr size_t kNodeBytes = 21;  // detokenizer/stop_matcher.h, for each byte
    constexpr size_t kRequests = 64;
    constexpr size_t kRoom = Derender::kHeldBytesMax / (kNodeBytes * 65536);
    static_assert(kRoom < kRequests);
    Asked asked;
    const std::string stops = LongStops();
    const auto ask = [&asked](size_t i, std::string_view more) {
      return asked.derender.Answer(fmt::format(R"({{"request_id":"r{}",{}}})", i, more), 0)
          .status();
    };
    for (size_t i = 0; i < kRequests; ++i) {
      REQUIRE(ask(i, R"("ids":[0],"stop":)" + stops).ok());
    }
    size_t kept = 0;
    for (size_t i = 0; i < kRequests; ++i) kept += ask(i, R"("ids":[1],"offset":1)").ok() ? 1 : 0;
    CHECK(kept <= kRoom);
    CHECK(kept > kRoom / 2);
    CHECK(ask(kRequests - 1, R"("ids":[2],"offset":2)").ok());
    // They give their room back.
    for (size_t i = 0; i < kRequests; ++i) REQUIRE(ask(100 + i, R"("ids":[0])").ok());
    CHECK(ask(kRequests - 1, R"("ids":[3],"offset":3)").ok());
  }
}

}  // namespace specd::http
