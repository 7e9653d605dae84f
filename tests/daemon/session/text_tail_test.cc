// The ids that an opening brings along: enough for the text side, and none where none are needed.
#include "daemon/session/text_tail.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

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
    CHECK(Tail({kBegin, kSpecial, 77}, {}).prompt_ids == Ids{kBegin, kSpecial, 77});
    CHECK(Tail({kBegin, kSpecial}, {}, {}, false).prompt_ids.empty());  // its text ends the bytes
    const Ids special(kPromptTailMax, kSpecial);
    Ids far = {kBegin};
    far.insert(far.end(), special.begin(), special.end());
    CHECK(Tail(far, {}).prompt_ids.empty());  // the limit
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
    CHECK(tail.prompt_ids == Ids{7, 8, 9});
    SequenceParams params;
    params.stop_strings = {"ab"};
    CHECK(MakeTextTail(ModelProfile{}, params, {ids, ids}).output_ids == Ids{3, 4, 5, 6, 7, 8, 9});
  }
}

}  // namespace
}  // namespace specd
