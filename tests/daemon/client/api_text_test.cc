// The text of an embedded engine's rounds, through the C interface.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/daemon/client/toy_engine.h"
#include "tests/support/last_error.h"

namespace specd::test {
namespace {

specd_params Params() {
  specd_params params = Constrained(SPECD_GRAMMAR_NONE, nullptr);
  params.max_tokens = 60;
  return params;
}

// Reads the text after every round, and once at the end.
struct Reading {
  std::string text;
  std::vector<uint64_t> ends;
  std::string stop;
  int32_t stop_index = -1;
  uint32_t finish_reason = SPECD_FINISH_NONE;

  void Read(ToyEngine& engine, specd_sequence sequence) {
    specd_text taken = Sized<specd_text>();
    REQUIRE(specd_sequence_text(engine.handle(), sequence, &taken) == SPECD_OK);
    CHECK(taken.byte_offset == text.size());
    CHECK(taken.token_offset == ends.size());
    CHECK(taken.text[taken.size_bytes] == 0);
    text.append(taken.text, taken.size_bytes);
    ends.insert(ends.end(), taken.ends, taken.ends + taken.num_tokens);
    finish_reason = taken.finish_reason;
    stop_index = taken.stop_index;
    if (taken.stop_string != nullptr) stop = taken.stop_string;
  }
};

TEST_SUITE("unit") {
  TEST_CASE("the text of every round is that of its tokens, with or without stop strings") {
    const ToyText toy;
    ToyEngine engine;
    const specd_number inline_stops = {"stops", 1};
    specd_params params = Params();
    params.numbers = {&inline_stops, 1};
    const std::vector<int32_t> letters = toy.IdsOf("abcdefghijklmnopqrstuvwxyz ");
    params.allowed_token_ids = {letters.data(), letters.size()};
    Reading whole;
    const ToyEngine::Output output = engine.Run(
        params, 2, letters, [&](specd_sequence sequence) { whole.Read(engine, sequence); });
    CHECK(whole.text == toy.TextOf(output));
    CHECK(whole.finish_reason == SPECD_FINISH_LENGTH);
    CHECK(whole.stop_index == -1);
    REQUIRE(whole.ends.size() == output.tokens.size());
    ToyEngine::Output part;
    for (size_t i = 0; i < whole.ends.size(); ++i) {
      part.tokens.push_back(output.tokens[i]);
      CHECK(whole.ends[i] == toy.TextOf(part).size());
    }

    // The first place where some later letters stand ends the text.
    const std::string stop = whole.text.substr(40, 3);
    const char* const stops[] = {"~~", stop.c_str()};
    params.numbers = {};
    params.stop_strings = {stops, 2};
    Reading cut;
    const ToyEngine::Output stopped = engine.Run(
        params, 2, letters, [&](specd_sequence sequence) { cut.Read(engine, sequence); });
    const size_t place = whole.text.find(stop);
    CHECK(cut.text == whole.text.substr(0, place));
    CHECK(cut.stop == stop);
    CHECK(cut.stop_index == 1);
    CHECK(stopped.finish_reason == SPECD_FINISH_STOP);
    CHECK(stopped.stop_token == -1);
    // The last token is the first after which the text has the stop string.
    const size_t count = stopped.tokens.size();
    CHECK(whole.ends[count - 1] >= place + stop.size());
    CHECK(whole.ends[count - 2] < place + stop.size());
  }

  TEST_CASE("stop strings and text without a tokenizer are refused with the remedy") {
    specd_options options = ToyOptions();
    options.tokenizer = nullptr;
    ToyEngine engine(options);
    specd_sequence sequence = 0;
    const char* const stops[] = {"x"};
    specd_params params = Params();
    params.stop_strings = {stops, 1};
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("stop_strings need the text of tokens"));
    CHECK(LastErrorHas("specd_options.tokenizer"));
    CHECK(specd_params_check(&params, &options) == SPECD_ERROR_UNSUPPORTED);
    const specd_number inline_stops = {"stops", 1};
    params.stop_strings = {};
    params.numbers = {&inline_stops, 1};
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("stops = inline needs the text of tokens"));
    options = ToyOptions();
    CHECK(specd_params_check(&params, &options) == SPECD_OK);
  }

  TEST_CASE("a sequence without text, a closed one and an attached engine are refused by name") {
    ToyEngine engine;
    specd_sequence sequence = 0;
    REQUIRE(engine.TryOpen(Params(), &sequence) == SPECD_OK);
    specd_text text = Sized<specd_text>();
    CHECK(specd_sequence_text(engine.handle(), sequence, &text) == SPECD_ERROR_STATE);
    CHECK(LastErrorHas("stops = inline"));
    text.struct_size = 8;
    CHECK(specd_sequence_text(engine.handle(), sequence, &text) == SPECD_ERROR_INVALID_ARGUMENT);
    text = Sized<specd_text>();
    REQUIRE(specd_close_sequence(engine.handle(), sequence) == SPECD_OK);
    CHECK(specd_sequence_text(engine.handle(), sequence, &text) == SPECD_ERROR_NOT_FOUND);

    const EngineHost host;
    EmbeddedEngine attached(host.uri);
    const specd_sequence other = attached.Open(EmbeddedEngine::Params());
    CHECK(specd_sequence_text(attached.engine, other, &text) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("subscribe"));
  }
}

}  // namespace
}  // namespace specd::test
