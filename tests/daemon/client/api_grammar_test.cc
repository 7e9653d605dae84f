// Constraints through the C interface: what is refused by name, and whole outputs of random rows,
// with drafts and without, held against std::regex.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/client/toy_engine.h"
#include "tests/support/last_error.h"

namespace specd::test {
namespace {

// Each group may be left out, so that a state has a way on for each of the later ones: the work of
// the compile grows as the square of their number.
std::string OptionalGroups(int count) {
  std::string text = "root ::= \"x\"";
  for (int i = 0; i < count; ++i) text += " [a]?";
  return text;
}

TEST_SUITE("unit") {
  TEST_CASE("compile_ms and compile_mib bound the compile of a constraint") {
    const std::string heavy = OptionalGroups(2700);
    const auto open = [&](ToyEngine& engine, uint32_t kind, const char* text) {
      specd_sequence sequence = 0;
      return engine.TryOpen(Constrained(kind, text), &sequence);
    };
    specd_options options = ToyOptions();
    options.compile_ms = 1;
    {
      ToyEngine engine(options);
      CHECK(open(engine, SPECD_GRAMMAR_EBNF, heavy.c_str()) == SPECD_ERROR_EXHAUSTED);
      CHECK(LastErrorHas("compile_ms = 1 of CPU time"));
      CHECK(open(engine, SPECD_GRAMMAR_REGEX, "[0-9]+") == SPECD_OK);
    }
    options.compile_ms = 60'000;
    options.compile_mib = 16;
    {
      ToyEngine engine(options);
      CHECK(open(engine, SPECD_GRAMMAR_EBNF, heavy.c_str()) == SPECD_ERROR_EXHAUSTED);
      CHECK(LastErrorHas("compile_mib = 16 MiB"));
      CHECK(open(engine, SPECD_GRAMMAR_REGEX, "[0-9]+") == SPECD_OK);
    }
    options.compile_mib = 4096;
    {
      ToyEngine engine(options);
      CHECK(open(engine, SPECD_GRAMMAR_EBNF, heavy.c_str()) == SPECD_OK);
    }
  }

  TEST_CASE("compile_ms and compile_mib have ranges, and a daemon has its own") {
    specd_engine* engine = nullptr;
    specd_options options = ToyOptions();
    options.compile_ms = 60'001;
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("compile_ms = 60001 is outside 1 .. 60000"));
    options = ToyOptions();
    options.compile_mib = 15;
    CHECK(specd_open("embedded:cpu", &options, &engine) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("compile_mib = 15 is outside 16 .. 4096"));
    // The socket itself is not looked for.
    options = {};
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.compile_ms = 7;
    CHECK(specd_open("unix:/nowhere", &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("--compile_ms=7"));
    options.compile_ms = 0;
    options.compile_mib = 32;
    CHECK(specd_open("unix:/nowhere", &options, &engine) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("--compile_mib=32"));
  }

  TEST_CASE("forced ids: drafts that the constraint accepts, and nothing where there is a choice") {
    ToyEngine engine;
    const ToyText text;
    const auto forced = [&](specd_sequence sequence, const std::vector<int32_t>& prefix,
                            uint32_t max_ids = 8) {
      std::vector<int32_t> ids(max_ids, -7);
      uint32_t count = 99;
      const int code =
          specd_forced_tokens(engine.handle(), sequence, prefix.data(),
                              static_cast<uint32_t>(prefix.size()), ids.data(), max_ids, &count);
      INFO(specd_last_error());
      REQUIRE(code == SPECD_OK);
      REQUIRE(count <= max_ids);
      for (size_t i = count; i < ids.size(); ++i) REQUIRE(ids[i] == -7);
      ids.resize(count);
      return ids;
    };
    specd_sequence sequence = 0;
    REQUIRE(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "The daemon verifies[0-9]+ drafts"),
                           &sequence) == SPECD_OK);
    const std::vector<int32_t> all = forced(sequence, {});
    ToyEngine::Output begun;
    begun.tokens = all;
    const std::string begin = text.TextOf(begun);
    REQUIRE(!begin.empty());
    CHECK(std::string("The daemon verifies").starts_with(begin));
    // They go on behind a prefix, a part at a time, and a sequence is not changed by the question.
    REQUIRE(all.size() >= 2);
    for (size_t k = 1; k < all.size(); ++k) {
      const std::vector<int32_t> prefix(all.begin(), all.begin() + static_cast<int64_t>(k));
      const std::vector<int32_t> rest(all.begin() + static_cast<int64_t>(k), all.end());
      if (prefix.size() <= kMaxDraft) CHECK(forced(sequence, prefix) == rest);
      CHECK(forced(sequence, {}, static_cast<uint32_t>(k)) == prefix);
    }
    CHECK(forced(sequence, {all[1]}).empty());  // the constraint forbids this prefix
    CHECK(forced(sequence, {-1}).empty());
    // Where there is a choice, and without a constraint, nothing is forced.
    specd_sequence open = 0;
    REQUIRE(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "[ab]+"), &open) == SPECD_OK);
    CHECK(forced(open, {}).empty());
    // In any order of keys there is a choice behind the first quote.
    specd_params object =
        Constrained(SPECD_GRAMMAR_JSON, R"({"type": "object", "required": ["a", "b"],
        "properties": {"a": {"const": 1}, "b": {"const": 1}}, "additionalProperties": false})");
    object.grammar_whitespace = SPECD_WHITESPACE_COMPACT;
    for (const uint32_t order : {SPECD_KEY_ORDER_SCHEMA, SPECD_KEY_ORDER_ANY}) {
      object.grammar_key_order = order;
      specd_sequence in_order = 0;
      REQUIRE(engine.TryOpen(object, &in_order) == SPECD_OK);
      begun.tokens = forced(in_order, {});
      const std::string known = order == SPECD_KEY_ORDER_SCHEMA ? R"({"a":1,"b":1})" : R"({")";
      CHECK(known.starts_with(text.TextOf(begun)));
      CHECK(text.TextOf(begun).starts_with(R"({"a)") == (order == SPECD_KEY_ORDER_SCHEMA));
    }
    REQUIRE(engine.TryOpen(Constrained(SPECD_GRAMMAR_NONE, nullptr), &open) == SPECD_OK);
    CHECK(forced(open, {}).empty());

    uint32_t count = 0;
    int32_t id = 0;
    CHECK(specd_forced_tokens(engine.handle(), sequence + (uint64_t{1} << 40), nullptr, 0, &id, 1,
                              &count) == SPECD_ERROR_NOT_FOUND);
    CHECK(specd_forced_tokens(engine.handle(), sequence, nullptr, 0, &id, 0, &count) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("max_ids = 0"));
    const std::vector<int32_t> too_long(kMaxDraft + 1, all[0]);
    CHECK(specd_forced_tokens(engine.handle(), sequence, too_long.data(), kMaxDraft + 1, &id, 1,
                              &count) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("num_prefix = 5 is outside 0 .. 4"));
    CHECK(specd_forced_tokens(engine.handle(), sequence, nullptr, 1, &id, 1, &count) ==
          SPECD_ERROR_INVALID_ARGUMENT);
  }

  TEST_CASE("forced ids as drafts: the same text in fewer rounds, whatever the rows want") {
    ToyEngine engine;
    const specd_params params =
        Constrained(SPECD_GRAMMAR_REGEX, "The daemon verifies a round of drafts and drafts");
    const ToyEngine::Output plain = engine.Run(params, 0, {0});
    const ToyEngine::Output forced = engine.RunForced(params);
    CHECK(forced.tokens.size() > 0);
    const ToyText text;
    CHECK(text.TextOf(forced) == text.TextOf(plain));
    // The rows of this test are noise, so a model could choose other tokens that spell the same.
    CHECK(forced.num_rounds < plain.num_rounds);
    CHECK(forced.accepted > 0);
  }

  TEST_CASE("a constraint that cannot be compiled is refused with its field") {
    ToyEngine engine;
    specd_sequence sequence = 0;
    CHECK(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "(a"), &sequence) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("grammar"));
    CHECK(engine.TryOpen(Constrained(SPECD_GRAMMAR_NONE, "a"), &sequence) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("grammar_kind"));
    CHECK(engine.TryOpen(Constrained(7, "a"), &sequence) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("grammar_kind"));
    // A choice of engines that is not there.
    specd_params params = Constrained(SPECD_GRAMMAR_REGEX, "a");
    const specd_number xgrammar = {"grammar_backend", 2};
    params.numbers = {&xgrammar, 1};
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("grammar_backend is refused: specd's own engine enforces every constraint"));
    CHECK(LastErrorHas("leave it out"));
    params = Constrained(SPECD_GRAMMAR_REGEX, "a");
    params.grammar_key_order = 2;
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("grammar_key_order"));
    // The engine goes on.
    CHECK(engine.TryOpen(Constrained(SPECD_GRAMMAR_REGEX, "a"), &sequence) == SPECD_OK);
  }

  TEST_CASE("the warnings of an opening name what lenient dropped, until the next opening") {
    ToyEngine engine;
    CHECK(engine.Warnings().empty());
    specd_params lenient = Constrained(SPECD_GRAMMAR_JSON, R"({"properties": {
        "a\nb": {"type": "array", "uniqueItems": true},
        "c": {"type": "array", "uniqueItems": true}}})");
    specd_sequence sequence = 0;
    CHECK(engine.TryOpen(lenient, &sequence) == SPECD_ERROR_UNSUPPORTED);
    CHECK(engine.Warnings().empty());
    lenient.grammar_lenient = 1;
    const specd_params plain = Constrained(SPECD_GRAMMAR_REGEX, "a");
    const specd_params wrong = Constrained(SPECD_GRAMMAR_REGEX, "(a");
    // The second opening finds the constraint compiled.
    for (int i = 0; i < 2; ++i) {
      REQUIRE(engine.TryOpen(lenient, &sequence) == SPECD_OK);
      const std::string warnings = engine.Warnings();
      CAPTURE(warnings);
      // The order of properties is the grammar's own.
      CHECK(warnings.find("/properties/a b: uniqueItems") != std::string::npos);
      CHECK(warnings.find("/properties/c: uniqueItems") != std::string::npos);
      CHECK(std::count(warnings.begin(), warnings.end(), '\n') == 1);
      REQUIRE(engine.TryOpen(i == 0 ? plain : wrong, &sequence) ==
              (i == 0 ? SPECD_OK : SPECD_ERROR_INVALID_ARGUMENT));
      CHECK(engine.Warnings().empty());
    }
    CHECK(std::string(specd_opening_warnings(nullptr)).empty());
  }

  // If other ids end a thought by force, the gate would never open and nothing would be
  // constrained.
  TEST_CASE("a thinking budget ends a thought before a constraint by the model's reasoning_end") {
    const ToyText toy;
    const int32_t letter = toy.IdsOf("x").front();
    const std::vector<int32_t> other = {letter, letter};
    const std::vector<int32_t> end = {letter, toy.IdsOf("<").front(), toy.IdsOf(">").front()};
    specd_options options = ToyOptions();
    options.reasoning_end = "<>";
    ToyEngine engine(options);
    specd_params params = Constrained(SPECD_GRAMMAR_REGEX, "a");
    params.thinking_budget = 2;
    params.thinking_start_id = toy.IdsOf("y").front();
    params.thinking_end_ids = {other.data(), other.size()};
    specd_sequence sequence = 0;
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("thinking_end_ids"));
    CHECK(LastErrorHas("reasoning_end = \"<>\""));
    params.thinking_end_ids = {end.data(), 2};
    CHECK(engine.TryOpen(params, &sequence) == SPECD_ERROR_INVALID_ARGUMENT);
    params.thinking_end_ids = {end.data(), end.size()};
    CHECK(engine.TryOpen(params, &sequence) == SPECD_OK);
    // Without a constraint the ids are free.
    params.thinking_end_ids = {other.data(), other.size()};
    params.grammar_kind = SPECD_GRAMMAR_NONE;
    params.grammar = nullptr;
    CHECK(engine.TryOpen(params, &sequence) == SPECD_OK);
  }
}

}  // namespace
}  // namespace specd::test
