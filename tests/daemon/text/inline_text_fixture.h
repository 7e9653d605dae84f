// Sequences whose rounds make text, for tests: a Host runs one in an embedded engine, in a daemon
// whose text side finds the stops, or in a daemon with stops = inline; Cases draws requests;
// BruteForce and ThoughtOf say what CONTRACT §7 and docs/PROTOCOL.md ask for, over all tokens at
// once.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/text/text_streams.h"
#include "ipc/include/specd/specd.h"
#include "tests/detokenizer/reference_text.h"
#include "tests/support/session_fixture.h"
#include "tests/support/session_steps.h"

namespace specd::inline_text {

using Ids = std::vector<TokenId>;

inline constexpr TokenId kStopId = 2;
inline constexpr TokenId kEos = 7;  // SessionFixture's
inline constexpr char kReasoningEnd[] = "ba";

// Stop patterns, and by hand the shortest matches from any place.
struct Pattern {
  const char* pattern;
  std::vector<std::string> matches;
};
inline const Pattern kPatterns[] = {{"a{2,}", {"aa"}},
                                    {"b[ab]?b", {"bb", "bab"}},
                                    {"(?:ab| )b", {"abb", " b"}},
                                    {"a\\u20ac|\\u20ac ?b",
                                     {"a\xE2\x82\xAC",
                                      "\xE2\x82\xAC"
                                      "b",
                                      "\xE2\x82\xAC b"}}};

// Few pieces, so that stop strings are begun, broken off and completed often.
inline Vocabulary MakePieces() {
  Vocabulary::Builder builder;
  builder.Set(0, "a", {});
  builder.Set(1, "b", {});
  builder.Set(kStopId, "ab", {});
  builder.Set(3, "ba b", {});
  builder.Set(4, "\xE2\x82", {});  // the first two bytes of the euro sign
  builder.Set(5, "\xAC", {});      // its last byte
  builder.Set(6, "<s>", {.added = true, .special = true});
  builder.Set(kEos, "<eos>", {.added = true, .special = true});
  return std::move(builder).Build();
}

struct Case {
  SequenceParams params;
  Ids prompt;
  Ids ids;               // all outputs, if nothing ends them
  size_t num_given = 0;  // of them at the opening

  std::span<const TokenId> given() const { return std::span(ids).first(num_given); }
};

struct Outcome {
  std::string text;
  std::string stop;
  uint32_t kept_tokens = 0;
  uint32_t finish_reason = SPECD_FINISH_NONE;
  std::vector<uint64_t> ends = {};
  uint64_t reasoning_bytes = 0;
  uint64_t reasoning_tokens = 0;

  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.text == b.text && a.stop == b.stop && a.kept_tokens == b.kept_tokens &&
           a.finish_reason == b.finish_reason && a.reasoning_bytes == b.reasoning_bytes &&
           a.reasoning_tokens == b.reasoning_tokens;
  }
};

inline std::string Describe(const Outcome& outcome) {
  return "\"" + outcome.text + "\" stop \"" + outcome.stop + "\" kept " +
         std::to_string(outcome.kept_tokens) + " reason " + std::to_string(outcome.finish_reason) +
         " thought " + std::to_string(outcome.reasoning_bytes) + " bytes " +
         std::to_string(outcome.reasoning_tokens) + " tokens";
}

// One round: tokens that the backend confirms.
struct Burst {
  Ids ids;
  int32_t num_accepted = 0;
};

enum class Side { kEmbedded, kTextSide, kInlineDaemon };

// A session and what reads its text.
class Host {
 public:
  explicit Host(Side side)
      : side_(side),
        fixture_(
            side != Side::kEmbedded,
            side == Side::kEmbedded ? std::function<bool()>() : [] { return true; }),
        streams_({{"", &vocabulary_}}) {
    fixture_.profile.vocabulary = MakePieces();
    fixture_.profile.reasoning.end = kReasoningEnd;
  }

  SequenceHandle Open(const Case& drawn) {
    SequenceParams params = drawn.params;
    if (side_ == Side::kInlineDaemon) params.stops = StopSearch::kInline;
    const auto opened =
        fixture_.session->OpenSequences(Name(), params, {drawn.prompt, drawn.given()});
    REQUIRE_MESSAGE(opened.ok(), opened.status().ToString());
    return opened->front().handle;
  }
  SequenceHandle Fork(SequenceHandle source) {
    const auto forked = fixture_.session->ForkSequence(source, Name(), 1);
    REQUIRE_MESSAGE(forked.ok(), forked.status().ToString());
    return forked->handle;
  }

  // Runs the bursts until one finds the sequence finished.
  void Run(SequenceHandle sequence, std::span<const Burst> bursts) {
    for (const Burst& burst : bursts) {
      fixture_.backend->script.clear();
      fixture_.backend->script.push_back(Confirm(burst.num_accepted, burst.ids));
      REQUIRE(fixture_.Submit({sequence}) == PushResult::kOk);
      REQUIRE(StepSession(fixture_.session));
      CompletionView done;
      REQUIRE(fixture_.engine->Poll(&done));
      if (done.results[0].status == RoundStatus::kFinished) return;
    }
  }

  bool IsRunning(SequenceHandle sequence) const {
    return fixture_.engine->ReadState(SlotOf(sequence)).finish_reason == SPECD_FINISH_NONE;
  }

  // Aborts the sequence if nothing has ended it, and reads how it ended.
  Outcome End(SequenceHandle sequence) {
    REQUIRE(fixture_.session->AbortSequence(sequence).ok());
    Read();
    Outcome outcome;
    if (side_ == Side::kEmbedded) {
      const auto made = fixture_.session->TextOf(sequence);
      REQUIRE(made.ok());
      const SequenceText::Unread& taken = made->text->Read();
      CHECK(taken.byte_offset == 0);
      outcome.text = taken.text;
      outcome.reasoning_bytes = taken.reasoning_bytes;
      outcome.reasoning_tokens = made->text->num_reasoning();
      outcome.ends = taken.ends;
      if (made->text->stop_index() >= 0) outcome.stop = made->text->stop_string();
    } else {
      const uint64_t stream = StreamOf(sequence);
      for (const TextEvent& event : texts_) {
        if (event.stream != stream) continue;
        outcome.text += event.text;
        outcome.stop += event.stop_string;
        for (const WireSpan& span : event.spans) {
          if (span.reasoning) outcome.reasoning_bytes += span.size_bytes;
        }
        outcome.reasoning_tokens += event.reasoning_tokens;
      }
    }
    const SequenceState state = fixture_.engine->ReadState(SlotOf(sequence));
    outcome.kept_tokens = state.kept_tokens;
    outcome.finish_reason = state.finish_reason;
    CHECK(fixture_.engine->IsFinal(SlotOf(sequence), state));
    return outcome;
  }
  void Close(SequenceHandle sequence) {
    REQUIRE(fixture_.session->CloseSequence(sequence).ok());
    Read();
    texts_.clear();
  }

 private:
  std::string Name() { return std::to_string(++num_names_); }

  // The text side reads what there is, and the session hears of its stop strings.
  void Read() {
    SequenceHandle sequence = 0;
    TokenEvent event;
    std::vector<AbortRequest> aborts;
    while (side_ != Side::kEmbedded && fixture_.session->PopEvent(&sequence, &event)) {
      if (event.opening() != nullptr) opened_.emplace_back(sequence, event.stream);
      streams_.Apply(event, &texts_, &aborts);
    }
    for (const AbortRequest& abort : aborts) {
      const auto opened = std::find_if(opened_.begin(), opened_.end(), [&](const auto& each) {
        return each.second == abort.stream;
      });
      REQUIRE(opened != opened_.end());
      if (abort.finish_reason != SPECD_FINISH_NONE) {
        fixture_.session->FinishFromText(opened->first,
                                         static_cast<FinishReason>(abort.finish_reason),
                                         static_cast<uint32_t>(abort.kept_tokens));
      }
      fixture_.session->SettleFromText(opened->first);
    }
  }
  uint64_t StreamOf(SequenceHandle sequence) const {
    for (const auto& [handle, stream] : opened_) {
      if (handle == sequence) return stream;
    }
    return 0;
  }

  const Side side_;
  const Vocabulary vocabulary_ = MakePieces();
  SessionFixture fixture_;
  TextStreams streams_;
  std::vector<TextEvent> texts_;
  std::vector<std::pair<SequenceHandle, uint64_t>> opened_;
  int num_names_ = 0;
};

class Cases {
 public:
  Case Draw() {
    Case drawn;
    drawn.prompt = Text(Below(4));
    drawn.ids = Text(1 + Below(24));
    if (Below(2) == 0) drawn.num_given = Below(drawn.ids.size());
    const char* const stops[] = {"ab", "bb",           "aab",     "ba ba", "a\xE2\x82\xAC",
                                 "b<", "\xEF\xBF\xBD", "abababa", "zz"};
    for (size_t i = 0; i < 1 + Below(3); ++i) {
      drawn.params.stop_strings.push_back(stops[Below(std::size(stops))]);
    }
    if (Below(3) == 0) {
      drawn.params.stop_regex = {kPatterns[Below(std::size(kPatterns))].pattern};
      if (Below(2) == 0) drawn.params.stop_strings.clear();
    }
    drawn.params.include_stop = Below(2) == 0;
    drawn.params.skip_special_tokens = Below(3) != 0;
    drawn.params.min_tokens = Below(3) == 0 ? static_cast<int64_t>(Below(12)) : 0;
    drawn.params.max_tokens = static_cast<int64_t>(std::max<size_t>(
        drawn.num_given + 1 + Below(24), static_cast<size_t>(drawn.params.min_tokens)));
    drawn.params.ignore_eos = Below(2) == 0;
    if (Below(3) == 0) drawn.params.stop_token_ids = {kStopId};
    return drawn;
  }
  std::vector<Burst> Group(std::span<const TokenId> ids) {
    std::vector<Burst> bursts;
    while (!ids.empty()) {
      const size_t count = std::min<size_t>(1 + Below(4), ids.size());
      bursts.push_back({{ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count)},
                        static_cast<int32_t>(count) - 1});
      ids = ids.subspan(count);
    }
    return bursts;
  }
  Ids Text(size_t count) {
    Ids ids(count);
    // EOS ends most texts, so it is rare.
    for (TokenId& id : ids) id = Below(40) == 0 ? kEos : static_cast<TokenId>(Below(7));
    return ids;
  }
  size_t Below(size_t bound) { return random_() % bound; }

 private:
  std::mt19937 random_{23};
};

struct FoundStop {
  std::string stop;
  size_t size_bytes = 0;
};

// The stop that ends the text: a string before a pattern, the longest match of a pattern.
inline std::optional<FoundStop> StopAtEnd(const SequenceParams& params, std::string_view text) {
  for (const std::string& stop : params.stop_strings) {
    if (text.ends_with(stop)) return FoundStop{stop, stop.size()};
  }
  std::optional<FoundStop> found;
  for (const Pattern& pattern : kPatterns) {
    if (params.stop_regex != std::vector<std::string>{pattern.pattern}) continue;
    for (const std::string& match : pattern.matches) {
      if (!text.ends_with(match) || (found && found->size_bytes > match.size())) continue;
      found = FoundStop{pattern.pattern, match.size()};
    }
  }
  return found;
}

// The rules of CONTRACT §7, over all tokens at once.
inline Outcome BruteForce(const Case& drawn) {
  const Vocabulary vocabulary = MakePieces();
  const SequenceParams& params = drawn.params;
  Outcome outcome;
  std::string bytes;
  std::string given;  // the text up to the token before
  for (size_t n = 1; n <= drawn.ids.size(); ++n) {
    const TokenId id = drawn.ids[n - 1];
    const bool is_hidden = params.skip_special_tokens && vocabulary.IsSpecial(id);
    const std::string longer = bytes + (is_hidden ? "" : std::string(vocabulary.Bytes(id)));
    const std::string text = reference::DecodeUtf8(longer).text;
    const bool counts = static_cast<int64_t>(n) > params.min_tokens;
    outcome.kept_tokens = static_cast<uint32_t>(n);
    // The match that ends first, of those that end at this token.
    for (size_t end = given.size() + 1; end <= text.size() && counts; ++end) {
      const auto found = StopAtEnd(params, std::string_view(text).substr(0, end));
      if (!found.has_value()) continue;
      outcome.text = text.substr(0, params.include_stop ? end : end - found->size_bytes);
      outcome.stop = found->stop;
      outcome.finish_reason = SPECD_FINISH_STOP;
      outcome.ends.push_back(outcome.text.size());
      for (uint64_t& size : outcome.ends) size = std::min<uint64_t>(size, outcome.text.size());
      return outcome;
    }
    const bool is_stop_id =
        (id == kEos && !params.ignore_eos) || (id == kStopId && !params.stop_token_ids.empty());
    const bool is_stop = counts && is_stop_id;
    if (!is_stop || params.include_stop) {
      bytes = longer;
      given = text;
    }
    outcome.ends.push_back(given.size());
    const bool is_long = static_cast<int64_t>(n) >= params.max_tokens;
    outcome.finish_reason = is_stop   ? SPECD_FINISH_STOP
                            : is_long ? SPECD_FINISH_LENGTH
                                      : SPECD_FINISH_ABORT;
    if (is_stop || is_long) break;
  }
  outcome.text = given + (reference::DecodeUtf8(bytes).pending ? "\xEF\xBF\xBD" : "");
  return outcome;
}

// The bytes and tokens of the thought, in a sequence without a prompt.
inline std::pair<uint64_t, uint64_t> ThoughtOf(const Case& drawn, const Outcome& outcome) {
  const Vocabulary vocabulary = MakePieces();
  std::string all;
  std::string shown;
  for (uint64_t n = 1; n <= outcome.kept_tokens; ++n) {
    const TokenId id = drawn.ids[n - 1];
    const bool is_hidden = drawn.params.skip_special_tokens && vocabulary.IsSpecial(id);
    all += vocabulary.Bytes(id);
    if (!is_hidden) shown += vocabulary.Bytes(id);
    const size_t found = all.find(kReasoningEnd);
    if (found == std::string::npos) continue;
    shown.resize(shown.size() - (all.size() - found - 2));
    return {std::min(reference::DecodeUtf8(shown).text.size(), outcome.text.size()), n};
  }
  return {outcome.text.size(), outcome.kept_tokens};
}

}  // namespace specd::inline_text
