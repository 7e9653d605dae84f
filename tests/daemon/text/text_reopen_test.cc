// Random texts over the toy engine's tokenizer: a sequence that was preempted at any token and
// opened again, or forked there, ends as it would have without. The openings pass over the wire.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/session/text_tail.h"
#include "daemon/text/text_streams.h"
#include "detokenizer/tokenizer_file.h"
#include "ipc/include/specd/specd.h"
#include "tests/detokenizer/reference_text.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

struct Outcome {
  std::string text;
  std::string stop;
  uint64_t kept_tokens = 0;
};

// The text side of one daemon.
class Reader {
 public:
  explicit Reader(const Vocabulary* vocabulary) : streams_({{"", vocabulary}}) {}

  void Apply(const TokenEvent& event) {
    std::string bytes;
    AppendTokenBatch({.epoch = 1, .seq = 1, .events = {event}}, &bytes);
    const auto batch = DecodeTokenBatch(bytes);
    REQUIRE(batch.ok());
    streams_.Apply(batch->events[0], &texts_, &aborts_);
  }
  void Push(uint64_t stream, uint64_t offset, std::span<const TokenId> ids) {
    for (const TokenId id : ids) {
      Apply({.stream = stream, .offset = offset++, .what = RoundTokens{.ids = {id}}});
    }
    Apply({.stream = stream,
           .offset = offset,
           .what = StreamEnd{.finish_reason = SPECD_FINISH_ABORT}});
  }
  Outcome Of(uint64_t stream) const {
    Outcome outcome;
    for (const TextEvent& event : texts_) {
      if (event.stream != stream) continue;
      outcome.text += event.text;
      if (event.kind != TextEventKind::kEnd) continue;
      outcome.stop = event.stop_string;
      outcome.kept_tokens = event.tokens;
    }
    return outcome;
  }
  // The text of the events up to now.
  std::string Given() const {
    std::string text;
    for (const TextEvent& event : texts_) text += event.text;
    return text;
  }

 private:
  TextStreams streams_;
  std::vector<TextEvent> texts_;
  std::vector<AbortRequest> aborts_;
};

struct Case {
  SequenceParams params;
  Ids prompt;
  Ids ids;

  TokenEvent Opening(uint64_t stream) const {
    return {.stream = stream,
            .what = StreamOpening{.stop_strings = params.stop_strings,
                                  .include_stop = params.include_stop,
                                  .min_tokens = static_cast<uint32_t>(params.min_tokens)}};
  }
  // Opened with the first `cut` outputs, as the session announces it.
  Outcome Reopen(const ModelProfile& profile, size_t cut) const {
    const std::span<const TokenId> all = ids;
    TokenEvent event = Opening(2);
    event.offset = cut;
    TextTail tail = MakeTextTail(profile, params, {prompt, all.first(cut)});
    event.opening()->prompt_tail = std::move(tail.prompt_ids);
    event.opening()->output_tail = std::move(tail.output_ids);
    Reader reader(&*profile.vocabulary);
    reader.Apply(event);
    reader.Push(2, cut, all.subspan(cut));
    return reader.Of(2);
  }
};

class Cases {
 public:
  explicit Cases(const Vocabulary* vocabulary) : vocabulary_(*vocabulary) {}

  Case Draw() {
    Case drawn;
    drawn.prompt = Text(3);
    drawn.ids = Text(40);
    std::string bytes;
    for (const TokenId id : drawn.ids) bytes += vocabulary_.Bytes(id);
    const std::string text = reference::DecodeUtf8(bytes).text;
    // A part of the text, of any length, and one that only begins like it.
    for (const bool is_whole : {true, false}) {
      size_t begin = Below(text.size());
      while ((text[begin] & 0xC0) == 0x80) --begin;
      size_t end = std::min(text.size(), begin + 1 + Below(40));
      while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
      drawn.params.stop_strings.push_back(text.substr(begin, end - begin) + (is_whole ? "" : "~"));
    }
    drawn.params.include_stop = Below(2) == 0;
    drawn.params.min_tokens = Below(3) == 0 ? static_cast<int64_t>(Below(20)) : 0;
    return drawn;
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  // Words, with the bytes of a code point here and there; special tokens have no text.
  Ids Text(size_t count) {
    Ids ids;
    while (ids.size() < count) {
      if (Below(6) == 0) {
        for (const char byte : std::string("\xE2\x82\xAC").substr(0, 1 + Below(3))) {
          ids.push_back(ByteId(byte));
        }
      } else {
        ids.push_back(static_cast<TokenId>(Below(static_cast<size_t>(vocabulary_.size()))));
      }
    }
    return ids;
  }
  TokenId ByteId(char byte) const {
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      if (vocabulary_.Bytes(id) == std::string(1, byte)) return id;
    }
    FAIL("no such byte");
    return kNoToken;
  }

  const Vocabulary& vocabulary_;
  std::mt19937 random_{19};
};

std::string Reference(const Case& drawn, const Vocabulary& vocabulary) {
  std::vector<reference::Token> tokens;
  for (const TokenId id : drawn.ids) {
    tokens.push_back({std::string(vocabulary.Bytes(id)), false, vocabulary.IsSpecial(id)});
  }
  return reference::DecodeSequence(tokens, false, drawn.params.stop_strings,
                                   drawn.params.include_stop)
      .text;
}

ModelProfile ToyProfile() {
  auto vocabulary = OpenTokenizer(SPECD_TOKENIZER);
  REQUIRE(vocabulary.ok());
  ModelProfile profile;
  profile.vocabulary = *std::move(vocabulary);
  return profile;
}

TEST_SUITE("unit") {
  TEST_CASE("a sequence preempted at any token ends as without") {
    const ModelProfile profile = ToyProfile();
    Cases cases(&*profile.vocabulary);
    int num_begun = 0;
    for (int trial = 0; trial < 150; ++trial) {
      const Case drawn = cases.Draw();
      const Outcome expected = drawn.Reopen(profile, 0);
      for (size_t cut = 1; cut < expected.kept_tokens; ++cut) {
        CAPTURE(trial);
        CAPTURE(cut);
        // What the stream before had given when it was preempted.
        Case first = drawn;
        first.ids.resize(cut);
        const std::string given = first.Reopen(profile, 0).text;
        const Outcome got = drawn.Reopen(profile, cut);
        CHECK(got.kept_tokens == expected.kept_tokens);
        CHECK(got.stop == expected.stop);
        const std::string replaced = "\xEF\xBF\xBD";
        if (given + got.text == expected.text) continue;
        if (expected.text.size() < given.size() && given.starts_with(expected.text)) {
          CHECK(got.text.empty());  // the stop string began in text that was given
          ++num_begun;
        } else {
          // A code point was completed that the end of the first stream had replaced.
          REQUIRE(given.ends_with(replaced));
          CHECK(given.substr(0, given.size() - replaced.size()) + got.text == expected.text);
        }
      }
    }
    CHECK(num_begun > 50);
  }

  TEST_CASE("a sequence forked at any token ends as its source") {
    const ModelProfile profile = ToyProfile();
    Cases cases(&*profile.vocabulary);
    for (int trial = 0; trial < 150; ++trial) {
      const Case drawn = cases.Draw();
      const std::span<const TokenId> all = drawn.ids;
      Reader whole(&*profile.vocabulary);
      whole.Apply(drawn.Opening(1));
      whole.Push(1, 0, all);
      const Outcome expected = whole.Of(1);
      if (drawn.params.min_tokens == 0)
        CHECK(expected.text == Reference(drawn, *profile.vocabulary));
      for (size_t cut = 0; cut < all.size(); ++cut) {
        CAPTURE(trial);
        CAPTURE(cut);
        Reader reader(&*profile.vocabulary);
        reader.Apply(drawn.Opening(1));
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(cut);
        if (cut > 0) reader.Apply({.stream = 1, .what = RoundTokens{.ids = {all.begin(), middle}}});
        const std::string given = reader.Given();
        TokenEvent fork = drawn.Opening(2);
        fork.offset = cut;
        fork.opening()->forked_from = 1;
        reader.Apply(fork);
        reader.Push(2, cut, all.subspan(cut));
        const Outcome got = reader.Of(2);
        CHECK(got.kept_tokens == expected.kept_tokens);
        CHECK(got.stop == expected.stop);
        CHECK(given + got.text == expected.text);
      }
    }
  }
}

}  // namespace
}  // namespace specd
