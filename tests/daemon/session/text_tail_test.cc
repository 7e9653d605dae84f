// The ids that an opening brings along: enough for the text side, and none where none are needed.
#include "daemon/session/text_tail.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "detokenizer/text_stream.h"
#include "ipc/events/token_event.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

constexpr TokenId kLetter = 0;   // "a"
constexpr TokenId kBegin = 1;    // E2: of three bytes
constexpr TokenId kMiddle = 2;   // 82
constexpr TokenId kLast = 3;     // AC
constexpr TokenId kSpecial = 4;  // no text
constexpr TokenId kWord = 5;     // "abcdefgh"

ModelProfile MakeProfile() {
  Vocabulary::Builder builder;
  builder.Set(kLetter, "a", {});
  builder.Set(kBegin, "\xE2", {});
  builder.Set(kMiddle, "\x82", {});
  builder.Set(kLast, "\xAC", {});
  builder.Set(kSpecial, "<s>", {.added = true, .special = true});
  builder.Set(kWord, "abcdefgh", {});
  ModelProfile profile;
  profile.vocabulary = std::move(builder).Build();
  return profile;
}

// The same tokens and two with spaces, of a decoder that strips some. If `has_fronts`, tokens lose
// a leading space at the front.
Vocabulary Spaced(const TextRules& rules, bool has_fronts) {
  Vocabulary::Builder builder;
  const ModelProfile plain = MakeProfile();
  for (TokenId id = 0; id < plain.vocabulary->size(); ++id) {
    builder.Set(id, plain.vocabulary->Bytes(id), {.special = plain.vocabulary->IsSpecial(id)});
  }
  builder.Set(kWord + 1, " ", {});
  builder.Set(kWord + 2, " a", {});
  if (has_fronts) {
    builder.SetFront(kWord + 1, "");
    builder.SetFront(kWord + 2, "a");
  }
  builder.SetTextRules(rules);
  return std::move(builder).Build();
}

Vocabulary Stripping(uint32_t num_spaces) {
  return Spaced({.replacement = Utf8Replacement::kByte, .stripped_spaces = num_spaces}, false);
}

TextTail Tail(const Ids& prompt, const Ids& outputs, std::vector<std::string> stops = {},
              bool skip_special_tokens = true) {
  static const ModelProfile profile = MakeProfile();
  SequenceParams params;
  params.stop_strings = std::move(stops);
  params.skip_special_tokens = skip_special_tokens;
  return MakeTextTail(profile, params, {prompt, outputs});
}

TEST_SUITE("unit") {
  TEST_CASE("a code point that is begun comes with the opening, else nothing") {
    const Ids letters(100, kLetter);
    CHECK(Tail(letters, {}).prompt_ids.empty());
    CHECK(Tail(letters, letters).output_ids.empty());
    Ids begun = letters;
    begun.insert(begun.end(), {kBegin, kMiddle});
    CHECK(Tail(begun, {}).prompt_ids == Ids{kLetter, kBegin, kMiddle});
    CHECK(Tail(begun, letters).prompt_ids.empty());
    CHECK(Tail(letters, begun).output_ids == Ids{kLetter, kBegin, kMiddle});
    // From prompt to outputs: both are needed.
    const TextTail both = Tail({kBegin}, {kMiddle});
    CHECK(both.prompt_ids == Ids{kBegin});
    CHECK(both.output_ids == Ids{kMiddle});
    // A code point that is complete needs nothing, and neither does a byte that is none.
    CHECK(Tail({kBegin, kMiddle, kLast}, {}).prompt_ids.empty());
    CHECK(Tail({kMiddle, kLast}, {}).prompt_ids.empty());
  }

  TEST_CASE("tokens without text do not count, and those of skip_special do") {
    CHECK(Tail({kBegin, kSpecial, 77}, {}).prompt_ids == Ids{kBegin});
    CHECK(Tail({kBegin, kSpecial}, {}, {}, false).prompt_ids.empty());  // its text ends the bytes
    const Ids special(kPromptTailMax, kSpecial);
    Ids far = {kBegin};
    far.insert(far.end(), special.begin(), special.end());
    CHECK(Tail(far, {}).prompt_ids == Ids{kBegin});
    Ids of_outputs(kOutputTailMax, kSpecial);
    of_outputs.insert(of_outputs.begin(), kBegin);
    CHECK(Tail({}, of_outputs).output_ids.empty());  // the limit
  }

  TEST_CASE("outputs as long as a stop string can have begun in them") {
    const Ids letters(100, kLetter);
    // All but one byte of the longest, and six for code points that are cut at either end.
    CHECK(Tail({}, letters, {"x"}).output_ids.size() == 6);
    CHECK(Tail({}, letters, {"0123456789", "x"}).output_ids.size() == 15);
    CHECK(Tail({}, Ids(100, kWord), {"0123456789"}).output_ids.size() == 2);
    CHECK(Tail({}, letters, {std::string(1000, 'x')}).output_ids == letters);
    CHECK(Tail({}, Ids(kOutputTailMax + 1, kSpecial), {"x"}).output_ids.size() == kOutputTailMax);
    CHECK(Tail(letters, {}, {"x"}).output_ids.empty());
    CHECK(Tail(letters, {}, {"x"}).prompt_ids.empty());
  }

  TEST_CASE("without a tokenizer every id may be a byte") {
    const Ids ids = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const TextTail tail = MakeTextTail(ModelProfile{}, SequenceParams{}, {ids, {}});
    CHECK(tail.prompt_ids == ids);
    const Ids many(100, 7);
    CHECK(MakeTextTail(ModelProfile{}, SequenceParams{}, {many, {}}).prompt_ids.size() ==
          kPromptTailMax);
    SequenceParams params;
    params.stop_strings = {"ab"};
    CHECK(MakeTextTail(ModelProfile{}, params, {ids, ids}).output_ids == Ids{3, 4, 5, 6, 7, 8, 9});
  }

  TEST_CASE("if the decoder strips leading spaces, the ids show whether the text has a front") {
    ModelProfile profile = MakeProfile();
    profile.vocabulary = Stripping(1);
    const auto tail = [&profile](const Ids& prompt, const Ids& outputs,
                                 DecodedIds text_of = DecodedIds::kPromptAndOutputs) {
      SequenceParams params;
      params.text_of = text_of;
      return MakeTextTail(profile, params, {prompt, outputs});
    };
    CHECK(tail({kWord, kLetter, kLetter, kLetter}, {}).prompt_ids ==
          Ids{kLetter, kLetter, kLetter});
    // A chat's prompt ends with special tokens, whatever their number.
    Ids chat(2 * kPromptTailMax, kSpecial);
    CHECK(tail(chat, {}).prompt_ids.empty());
    chat.insert(chat.begin(), kWord);
    CHECK(tail(chat, {}).prompt_ids == Ids{kWord});
    CHECK(tail(chat, {}, DecodedIds::kOutputs).prompt_ids.empty());
    CHECK(tail({kBegin}, {}, DecodedIds::kOutputs).prompt_ids.empty());
    CHECK(tail(chat, {kSpecial}).output_ids == Ids{kSpecial});
    CHECK(tail({}, {kSpecial}).output_ids == Ids{kSpecial});  // the front is still to come
    CHECK(tail({}, {kLetter}).output_ids.empty());            // it is over
  }

  TEST_CASE("outputs of spaces alone come along until the front is over, or all of them") {
    ModelProfile profile;
    profile.vocabulary = Spaced({.front_end = FrontEnd::kText}, true);
    const TokenId space = kWord + 1;
    const auto tail = [&profile](const Ids& outputs) {
      SequenceParams params;
      params.text_of = DecodedIds::kOutputs;
      return MakeTextTail(profile, params, {{}, outputs}).output_ids;
    };
    CHECK(tail(Ids(4, space)) == Ids(4, space));
    CHECK(tail(Ids(100, space)) == Ids(100, space));
    CHECK(tail(Ids{kLetter, space, space, space, space}).empty());
  }

  // The stream that gets the tail alone gives the text of the stream that gets everything.
  TEST_CASE("the tail is as good as the whole prompt and all outputs") {
    std::mt19937 random(31);
    const auto below = [&random](size_t bound) { return random() % bound; };
    size_t num_differing = 0;
    for (int trial = 0; trial < 20000; ++trial) {
      TextRules rules{.replacement = Utf8Replacement::kByte};
      const bool has_fronts = below(2) == 0;
      if (!has_fronts) rules.stripped_spaces = static_cast<uint32_t>(below(4));
      if (below(2) == 0) rules.front_end = FrontEnd::kText;
      rules.holds_last_space = below(3) == 0;
      ModelProfile profile;
      profile.vocabulary = Spaced(rules, has_fronts);
      const auto draw = [&](size_t count) {
        Ids ids;
        for (size_t i = below(count); i > 0; --i) ids.push_back(static_cast<TokenId>(below(8)));
        return ids;
      };
      const Ids prompt = draw(6);
      const Ids before = draw(5);
      const Ids after = draw(6);
      SequenceParams params;
      if (below(2) == 0) params.stop_strings = {" a", "a  ", "aa a"};
      if (below(4) == 0) params.text_of = DecodedIds::kOutputs;
      const bool alone = params.text_of == DecodedIds::kOutputs;
      const TextTail tail = MakeTextTail(profile, params, {prompt, before});
      const auto read = [&](const Ids& prompt_ids, const Ids& output_ids) {
        TextStream stream(&*profile.vocabulary, *StopSet::Create(params.stop_strings),
                          {.continues = before.size() > output_ids.size()});
        stream.Prime(prompt_ids, output_ids);
        TextChunk chunk;
        for (const TokenId id : after) stream.Push(id, false, &chunk);
        stream.Finish(TextEnd::kFlush, &chunk);
        return chunk.text;
      };
      const std::string whole = read(alone ? Ids{} : prompt, before);
      CAPTURE(trial);
      CHECK(read(tail.prompt_ids, tail.output_ids) == whole);
      num_differing += read({}, {}) == whole ? 0 : 1;
    }
    CHECK(num_differing > 1000);
  }
}

}  // namespace
}  // namespace specd
