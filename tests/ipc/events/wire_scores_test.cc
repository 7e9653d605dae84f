// Scores in events: any msgpack library reads them, bit for bit, and a wrong list is refused.
#include "ipc/events/wire_scores.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <msgpack.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/base/limits.h"
#include "ipc/events/token_event.h"
#include "ipc/include/specd/specd.h"
#include "tests/ipc/events/event_bytes.h"

namespace specd {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Two tokens with three scores each: whole numbers, both zeros, infinities, and an id that the row
// did not have.
const std::vector<TokenScore> kScores = {{15, 1.0f, 1},   {15, -0.0f, 1},   {7, -kInf, 3},
                                         {300, -2.5f, 2}, {70000, kInf, 1}, {-1, -kInf, 0}};

TokenBatch BatchWith(std::vector<TokenId> ids, std::vector<TokenScore> scores) {
  return {77,
          1,
          {{.stream = 1, .what = RoundTokens{.ids = std::move(ids), .scores = std::move(scores)}}}};
}

TextEvent TextWith(uint64_t token_offset, uint64_t tokens, std::vector<TokenScore> scores) {
  TextEvent event;
  event.stream = 1;
  event.request_id = "r";
  event.token_offset = token_offset;
  event.tokens = tokens;
  event.scores = std::move(scores);
  return event;
}

void CheckEqual(const std::vector<TokenScore>& found, const std::vector<TokenScore>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    REQUIRE(found[i].id == wanted[i].id);
    REQUIRE(std::bit_cast<uint32_t>(found[i].value) == std::bit_cast<uint32_t>(wanted[i].value));
    REQUIRE(found[i].rank == wanted[i].rank);
  }
}

// The same text event with other scores, as a stranger may send it.
absl::Status RefusalOf(const std::function<void(msgpack::packer<msgpack::sbuffer>*)>& write,
                       uint64_t tokens = 2) {
  const std::string bytes = Bytes(AppendTextEvent, TextWith(0, tokens, {}));
  msgpack::sbuffer scores;
  msgpack::packer<msgpack::sbuffer> packer(scores);
  write(&packer);
  const msgpack::object_handle value = msgpack::unpack(scores.data(), scores.size());
  return DecodeTextEvent(With(bytes, "scores", &value.get())).status();
}

TEST_SUITE("unit") {
  TEST_CASE("scores survive the way in token and text events, bit for bit") {
    const auto batch = DecodeTokenBatch(Bytes(AppendTokenBatch, BatchWith({15, 300}, kScores)));
    REQUIRE(batch.ok());
    CheckEqual(batch->events[0].tokens()->scores, kScores);
    for (const TextEventKind kind : {TextEventKind::kText, TextEventKind::kEnd}) {
      TextEvent sent = TextWith(8, 10, kScores);
      sent.kind = kind;
      sent.finish_reason = SPECD_FINISH_STOP;
      const auto text = DecodeTextEvent(Bytes(AppendTextEvent, sent));
      REQUIRE(text.ok());
      CheckEqual(text->scores, kScores);
    }
    const auto nan = DecodeTokenBatch(Bytes(AppendTokenBatch, BatchWith({15}, {{15, NAN, 0}})));
    REQUIRE(nan.ok());
    CHECK(std::isnan(nan->events[0].tokens()->scores[0].value));
  }

  TEST_CASE("an event without scores has no such key, and one with scores has one key more") {
    const std::string bytes = Bytes(AppendTokenBatch, BatchWith({15, 300}, {}));
    CHECK(bytes.find("scores") == std::string::npos);
    CHECK(DecodeTokenBatch(bytes)->events[0].tokens()->scores.empty());
    CHECK(Bytes(AppendTextEvent, TextWith(0, 2, {})).find("scores") == std::string::npos);
  }

  TEST_CASE("a stranger's msgpack library finds an array of triples for each token") {
    const std::string bytes = Bytes(AppendTextEvent, TextWith(8, 10, kScores));
    const EventMap event(bytes);
    using Triple = std::tuple<int32_t, float, int32_t>;
    const auto tokens = event.map.at("scores").as<std::vector<std::vector<Triple>>>();
    REQUIRE(tokens.size() == 2);
    CHECK(tokens[0] == std::vector<Triple>{{15, 1.0f, 1}, {15, -0.0f, 1}, {7, -kInf, 3}});
    CHECK(tokens[1] == std::vector<Triple>{{300, -2.5f, 2}, {70000, kInf, 1}, {-1, -kInf, 0}});
    // 1.0 is a float on the wire, not the integer 1.
    CHECK(event.map.at("scores").via.array.ptr[0].via.array.ptr[0].via.array.ptr[1].type ==
          msgpack::type::FLOAT32);
  }

  TEST_CASE("the largest event, 65 tokens with 129 scores, is within the bound of its bytes") {
    constexpr size_t kTokens = SessionLimits::kDraftMax + 1;
    constexpr size_t kNumScores = kTokens * SessionLimits::kScoresMax;
    constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
    std::vector<TokenScore> scores;
    for (size_t i = 0; i < kNumScores; ++i) {
      scores.push_back({kMost, -static_cast<float>(i), kMost});
    }
    TokenBatch batch = BatchWith(std::vector<TokenId>(kTokens, kMost), {});
    const size_t without = Bytes(AppendTokenBatch, batch).size();
    batch.events[0].tokens()->scores = scores;
    const std::string bytes = Bytes(AppendTokenBatch, batch);
    const size_t added = bytes.size() - without;
    CHECK(added <= WireScoresBytes(kTokens, kNumScores));
    CHECK(added + 64 >= WireScoresBytes(kTokens, kNumScores));  // and the bound is close
    CHECK(WireScoresBytes(kTokens, 0) == 0);
    const auto read = DecodeTokenBatch(bytes);
    REQUIRE(read.ok());
    CheckEqual(read->events[0].tokens()->scores, scores);
  }

  TEST_CASE("scores of another number of tokens are refused by name") {
    const auto write = [](uint32_t num_tokens, uint32_t num_scores) {
      return [num_tokens, num_scores](msgpack::packer<msgpack::sbuffer>* packer) {
        packer->pack_array(num_tokens);
        for (uint32_t i = 0; i < num_tokens; ++i) {
          packer->pack_array(num_scores);
          for (uint32_t k = 0; k < num_scores; ++k) packer->pack(std::tuple(1, -1.5f, 1));
        }
      };
    };
    CHECK(RefusalOf(write(2, 3)).ok());
    CHECK(RefusalOf(write(2, 129)).ok());
    for (const auto& status :
         {RefusalOf(write(1, 3)), RefusalOf(write(3, 3)), RefusalOf(write(66, 1), 66),
          RefusalOf(write(2, 0)), RefusalOf(write(2, 130))}) {
      CHECK(ErrorFieldOf(status) == "scores");
    }
    CHECK(RefusalOf(write(65, 1), 65).ok());
    // In a batch the error names the event's key in its text.
    TokenBatch batch = BatchWith({15, 300}, kScores);
    std::string bytes = Bytes(AppendTokenBatch, batch);
    const size_t at = bytes.find("ids") + 3;
    bytes.replace(at, 5, std::string("\x91\x0f", 2));  // [15, 300] becomes [15]
    const absl::Status status = DecodeTokenBatch(bytes).status();
    CHECK(ErrorFieldOf(status) == "events");
    CHECK(status.message().find("scores has the scores of 2 tokens for 1 tokens") !=
          absl::string_view::npos);
  }

  TEST_CASE("a score that is no triple of id, 32-bit float and rank is refused") {
    const auto one = [](auto... values) {
      return RefusalOf(
          [&](msgpack::packer<msgpack::sbuffer>* packer) {
            packer->pack_array(1);
            packer->pack_array(1);
            packer->pack(std::tuple(values...));
          },
          1);
    };
    CHECK(one(-1, -1.5f, 0).ok());
    CHECK(one(2147483647, -1.5f, 2147483647).ok());
    for (const auto& status : {one(1, -1.5f), one(1, -1.5f, 1, 1), one(-2, -1.5f, 1),
                               one(2147483648u, -1.5f, 1), one(1.5f, -1.5f, 1), one(1, -1.5, 1),
                               one(1, -1, 1), one(1, -1.5f, -1), one(1, -1.5f, 2147483648u)}) {
      CHECK(ErrorFieldOf(status) == "scores");
    }
    // Two tokens whose numbers of scores differ.
    CHECK(ErrorFieldOf(RefusalOf([](msgpack::packer<msgpack::sbuffer>* packer) {
            packer->pack_array(2);
            packer->pack_array(1);
            packer->pack(std::tuple(1, -1.5f, 1));
            packer->pack_array(2);
            for (int i = 0; i < 2; ++i) packer->pack(std::tuple(1, -1.5f, 1));
          })) == "scores");
    for (const auto& status :
         {RefusalOf([](auto* packer) { packer->pack(17); }), RefusalOf([](auto* packer) {
            packer->pack(std::vector{1, 2});
          })}) {
      CHECK(ErrorFieldOf(status) == "scores");
    }
  }

  TEST_CASE("a payload with scores that is cut at any byte is refused") {
    const std::string batch = Bytes(AppendTokenBatch, BatchWith({15, 300}, kScores));
    for (size_t size = 0; size < batch.size(); ++size) {
      CHECK_FALSE(DecodeTokenBatch(std::string_view(batch).substr(0, size)).ok());
    }
  }
}

}  // namespace
}  // namespace specd
