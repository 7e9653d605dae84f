#include "speculative/params/param_table.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <type_traits>

#include "speculative/params/param_check.h"

namespace specd {
namespace {

// A value of the same type that ValueText tells from every default.
struct Other {
  double operator()(double) const { return 0.625; }
  int64_t operator()(int64_t) const { return 77; }
  uint64_t operator()(uint64_t) const { return 77; }
  TokenId operator()(TokenId) const { return 77; }
  bool operator()(bool value) const { return !value; }
  template <class List>
  List operator()(const List&) const {
    return List(3);
  }
};

// Writes that other value.
struct WriteOther {
  SequenceParams* params;
  template <class T>
  void operator()(const ParamPlace<T>& place) const {
    place.write(*params) = Other()(place.read(*params));
  }
  void operator()(const ChoicePlace& place) const { place.write(*params, place.read(*params) + 1); }
};

TEST_SUITE("unit") {
  TEST_CASE("the table has every field of the struct once, in its order") {
    const char* const fields[] = {"verify",
                                  "typical_epsilon",
                                  "typical_delta",
                                  "relaxed_n",
                                  "relaxed_delta",
                                  "relaxed_thinking",
                                  "threshold_single",
                                  "threshold_acc",
                                  "synthetic_rates",
                                  "seed",
                                  "rng",
                                  "n",
                                  "temperature",
                                  "top_p",
                                  "top_k",
                                  "min_p",
                                  "filter_order",
                                  "frequency_penalty",
                                  "presence_penalty",
                                  "repetition_penalty",
                                  "logit_bias",
                                  "allowed_token_ids",
                                  "disallowed_token_ids",
                                  "bad_words",
                                  "no_repeat_ngram_size",
                                  "no_repeat_ngram_window",
                                  "no_repeat_ngram_whitelist",
                                  "thinking_budget",
                                  "thinking_start_id",
                                  "thinking_end_ids",
                                  "thinking_newline_id",
                                  "processors",
                                  "max_tokens",
                                  "min_tokens",
                                  "ignore_eos",
                                  "stop_token_ids",
                                  "logprobs",
                                  "logprobs_mode",
                                  "logprob_token_ids",
                                  "grammar_kind",
                                  "grammar_whitespace",
                                  "grammar_key_order",
                                  "grammar_lenient",
                                  "grammar_in_reasoning",
                                  "draft_temperature",
                                  "draft_top_p",
                                  "draft_top_k",
                                  "draft_min_p",
                                  "draft_filter_order",
                                  "draft_edits",
                                  "stop_strings",
                                  "stop_regex",
                                  "stops",
                                  "include_stop",
                                  "skip_special_tokens",
                                  "text_of"};
    REQUIRE(ParamTable().size() == std::size(fields));
    for (size_t i = 0; i < std::size(fields); ++i) {
      CHECK(ParamTable()[i].field == fields[i]);
      CHECK(FindParam(fields[i]) == &ParamTable()[i]);
    }
    CHECK(FindParam("max_new_tokens") == nullptr);
    CHECK(FindParam("") == nullptr);
  }

  // A row copied from its neighbour would check, print and set the neighbour's field.
  TEST_CASE("what is written through a row is read through that row alone") {
    for (const ParamRow& row : ParamTable()) {
      SequenceParams params;
      std::visit(WriteOther{&params}, row.place);
      for (const ParamRow& other : ParamTable()) {
        CAPTURE(row.field);
        CAPTURE(other.field);
        CHECK((ValueText(other, params) == ValueText(other, {})) == (&other != &row));
      }
    }
  }

  TEST_CASE("defaults are those of CONTRACT 8, and of vLLM where it says nothing") {
    const auto default_of = [](const char* field) { return ValueText(*FindParam(field), {}); };
    CHECK(default_of("verify") == "auto");
    CHECK(default_of("n") == "1");
    CHECK(default_of("temperature") == "1");
    CHECK(default_of("top_p") == "1");
    CHECK(default_of("top_k") == "0");
    CHECK(default_of("min_p") == "0");
    CHECK(default_of("filter_order") == "sequential");
    CHECK(default_of("frequency_penalty") == "0");
    CHECK(default_of("presence_penalty") == "0");
    CHECK(default_of("repetition_penalty") == "1");
    CHECK(default_of("logit_bias") == "empty");
    CHECK(default_of("thinking_budget") == "-1");
    CHECK(default_of("max_tokens") == "16");
    CHECK(default_of("min_tokens") == "0");
    CHECK(default_of("ignore_eos") == "false");
    CHECK(default_of("logprobs") == "-1");
    CHECK(default_of("logprobs_mode") == "raw_logprobs");
    CHECK(default_of("skip_special_tokens") == "true");
    CHECK(default_of("text_of") == "prompt_and_outputs");
    CHECK(default_of("draft_temperature") == "1");
    CHECK(ValidateParams({}, 1).ok());
  }

  TEST_CASE("the names of an enumeration stand at their values") {
    const auto name_of = [](const char* field, auto value) {
      return FindParam(field)->choices[static_cast<size_t>(value)];
    };
    CHECK(name_of("verify", VerifyMethod::kGreedy) == "greedy");
    CHECK(name_of("verify", VerifyMethod::kExactMatch) == "exact_match");
    CHECK(name_of("verify", VerifyMethod::kToken) == "token");
    CHECK(name_of("verify", VerifyMethod::kBlock) == "block");
    CHECK(name_of("filter_order", FilterOrder::kJoint) == "joint");
    CHECK(name_of("draft_filter_order", FilterOrder::kJoint) == "joint");
    CHECK(name_of("logprobs_mode", ScoreMode::kProcessedLogprob) == "processed_logprobs");
    CHECK(name_of("logprobs_mode", ScoreMode::kRawLogit) == "raw_logits");
    CHECK(name_of("logprobs_mode", ScoreMode::kProcessedLogit) == "processed_logits");
    CHECK(name_of("logprobs_mode", ScoreMode::kUnfilteredLogprob) == "unfiltered_logprobs");
  }

  TEST_CASE("ranges in words") {
    CHECK(RangeText(ParamRange{0, 2}) == "0 .. 2");
    CHECK(RangeText(ParamRange{0, 1, true}) == "above 0 .. 1");
    CHECK(RangeText(ParamRange{-1}) == "-1 or more");
    CHECK(RangeText(*FindParam("filter_order")) == "sequential, joint");
    CHECK(RangeText(*FindParam("stop_token_ids")) == "at most 64 ids in 0 .. vocab_size - 1");
    CHECK(RangeText(*FindParam("allowed_token_ids")) ==
          "at most vocab_size ids in 0 .. vocab_size - 1");
  }
}

}  // namespace
}  // namespace specd
