#include "speculative/params/param_rules.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "speculative/params/param_check.h"
#include "speculative/params/param_table.h"

namespace specd {
namespace {

using P = SequenceParams;

bool Allowed(const SequenceParams& params) { return ValidateParams(params, 8).ok(); }

// The refusal of a combination, by the change that makes it from the defaults; "" if allowed.
std::string RefusalOf(const std::function<void(P&)>& change) {
  SequenceParams params;
  change(params);
  return std::string(ValidateParams(params, 8).message());
}

bool Has(const std::string& text, std::string_view part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

TEST_SUITE("unit") {
  TEST_CASE("a method that contradicts the temperature is refused, not bent") {
    SequenceParams params;
    params.verify = VerifyMethod::kGreedy;
    Has(std::string(ValidateParams(params, 8).message()), "verify = greedy, temperature = 1");
    params.temperature = 0;
    CHECK(Allowed(params));
    for (VerifyMethod method : {VerifyMethod::kToken, VerifyMethod::kBlock}) {
      params = {};
      params.verify = method;
      CHECK(Allowed(params));
      params.temperature = 0;
      CHECK(!Allowed(params));
      params.temperature = 1;
      params.top_k = 1;
      CHECK(!Allowed(params));
    }
    Has(std::string(ValidateParams(params, 8).message()),
        "verify = block, temperature = 1, top_k = 1");
    params.verify = VerifyMethod::kGreedy;
    CHECK(Allowed(params));
    params.verify = VerifyMethod::kExactMatch;
    CHECK(Allowed(params));
  }

  TEST_CASE("vLLM: n > 1 with greedy sampling is refused") {
    Has(RefusalOf([](P& p) { p.n = 2, p.temperature = 0; }), "n = 2, temperature = 0");
    Has(RefusalOf([](P& p) { p.n = 2, p.top_k = 1; }), "top_k = 1");
    CHECK(RefusalOf([](P& p) { p.n = 2; }).empty());
    CHECK(RefusalOf([](P& p) { p.temperature = 0; }).empty());
  }

  TEST_CASE("SGLang: min_tokens above max_tokens is refused, equal is allowed") {
    Has(RefusalOf([](P& p) { p.min_tokens = 17; }), "min_tokens = 17, max_tokens = 16");
    CHECK(RefusalOf([](P& p) { p.min_tokens = 16; }).empty());
  }

  TEST_CASE("masks that leave no id are refused, also where ids are named twice") {
    const std::vector<TokenId> all = {7, 6, 5, 4, 3, 2, 1, 0};
    Has(RefusalOf([&](P& p) { p.disallowed_token_ids = all; }), "disallowed_token_ids = 8 entries");
    CHECK(RefusalOf([](P& p) { p.disallowed_token_ids = {0, 1, 2, 3, 4, 5, 6, 6}; }).empty());
    Has(RefusalOf([](P& p) {
          p.allowed_token_ids = {3, 1, 3};
          p.disallowed_token_ids = {1, 2, 3};
        }),
        "nothing is left");
    CHECK(RefusalOf([](P& p) {
            p.allowed_token_ids = {3, 1, 4};
            p.disallowed_token_ids = {1, 2, 3};
          }).empty());
    CHECK(RefusalOf([](P& p) { p.allowed_token_ids = {3}; }).empty());
  }

  TEST_CASE("a no-repeat-n-gram that could not act is refused") {
    // SGLang: size 3 with a window of 2 never bans.
    Has(RefusalOf([](P& p) { p.no_repeat_ngram_size = 3, p.no_repeat_ngram_window = 2; }),
        "no_repeat_ngram_size = 3, no_repeat_ngram_window = 2");
    CHECK(
        RefusalOf([](P& p) { p.no_repeat_ngram_size = 3, p.no_repeat_ngram_window = 3; }).empty());
    CHECK(RefusalOf([](P& p) { p.no_repeat_ngram_size = 3; }).empty());
    Has(RefusalOf([](P& p) { p.no_repeat_ngram_window = 3; }), "set no_repeat_ngram_size");
    Has(RefusalOf([](P& p) { p.no_repeat_ngram_window = 1; }), "set no_repeat_ngram_size");
    Has(RefusalOf([](P& p) { p.no_repeat_ngram_whitelist = {1}; }), "set no_repeat_ngram_size");
  }

  TEST_CASE("a thinking budget needs its markers, and markers need a budget") {
    Has(RefusalOf([](P& p) { p.thinking.budget = 0; }), "thinking_budget = 0");
    Has(RefusalOf([](P& p) { p.thinking = {5, 1, {}, kNoToken}; }), "thinking_end_ids = empty");
    Has(RefusalOf([](P& p) {
          p.thinking = {5, kNoToken, {2}, kNoToken};
        }),
        "thinking_start_id = -1");
    CHECK(RefusalOf([](P& p) { p.thinking = {0, 1, {2}, kNoToken}; }).empty());
    Has(RefusalOf([](P& p) {
          p.thinking = {-1, 1, {}, kNoToken};
        }),
        "thinking_budget = -1, thinking_start_id = 1");
    Has(RefusalOf([](P& p) {
          p.thinking = {-1, kNoToken, {2}, kNoToken};
        }),
        "thinking_end_ids = 1 entr");
    Has(RefusalOf([](P& p) { p.thinking = {-1, kNoToken, {}, 3}; }), "thinking_newline_id = 3");
    Has(RefusalOf([](P& p) { p.thinking = {-1, 8, {2}, 3}; }), "thinking_start_id: 8");
    Has(RefusalOf([](P& p) { p.thinking = {-1, 1, {2}, -2}; }), "thinking_newline_id: -2");
  }

  TEST_CASE("numbers of a lossy method need that method, and some methods need theirs") {
    Has(RefusalOf([](P& p) { p.typical_epsilon = .5; }), "verify = auto, typical_epsilon = 0.5");
    Has(RefusalOf([](P& p) { p.relaxed_n = 2; }), "set verify = relaxed");
    Has(RefusalOf([](P& p) { p.relaxed_delta = .5; }), "set verify = relaxed");
    Has(RefusalOf([](P& p) { p.threshold_acc = .5; }), "set verify = threshold");
    Has(RefusalOf([](P& p) { p.synthetic_rates = {.5}; }), "synthetic_rates = 1 entry");
    Has(RefusalOf([](P& p) { p.verify = VerifyMethod::kSynthetic; }), "synthetic_rates = empty");
    Has(RefusalOf([](P& p) {
          p.verify = VerifyMethod::kSynthetic;
          p.synthetic_rates = {.5, 1.5};
        }),
        "synthetic_rates[1] = 1.5 is outside 0 .. 1");
    Has(RefusalOf([](P& p) {
          p.verify = VerifyMethod::kSynthetic;
          p.synthetic_rates.assign(65, 1);
        }),
        "at most 64");
    Has(RefusalOf([](P& p) { p.verify = VerifyMethod::kTypical, p.typical_epsilon = 1.5; }),
        "typical_epsilon = 1.5 is outside 0 .. 1");
    Has(RefusalOf([](P& p) { p.verify = VerifyMethod::kRelaxed, p.relaxed_thinking = true; }),
        "thinking_start_id");
    CHECK(RefusalOf([](P& p) {
            p.verify = VerifyMethod::kRelaxed;
            p.relaxed_thinking = true;
            p.thinking = {-1, 1, {2}, kNoToken};
          }).empty());
    for (const VerifyMethod method : {VerifyMethod::kTypical, VerifyMethod::kThreshold}) {
      CHECK(RefusalOf([&](P& p) { p.verify = method; }).empty());
      Has(RefusalOf([&](P& p) { p.verify = method, p.temperature = 0; }), "no coins");
    }
    CHECK(RefusalOf([](P& p) { p.verify = VerifyMethod::kRelaxed, p.temperature = 0; }).empty());
  }

  TEST_CASE("SGLang's generator has no coins for other methods, and none for filters") {
    const auto sglang = [](const std::function<void(P&)>& change) {
      return RefusalOf([&](P& p) {
        p.rng = Rng::kSglang;
        change(p);
      });
    };
    CHECK(sglang([](P&) {}).empty());
    CHECK(sglang([](P& p) { p.verify = VerifyMethod::kExactMatch; }).empty());
    CHECK(sglang([](P& p) { p.temperature = 0; }).empty());
    CHECK(sglang([](P& p) { p.top_k = 1; }).empty());
    CHECK(sglang([](P& p) { p.top_k = 8; }).empty());
    for (const VerifyMethod method :
         {VerifyMethod::kToken, VerifyMethod::kBlock, VerifyMethod::kTree, VerifyMethod::kTraversal,
          VerifyMethod::kTargetOnly, VerifyMethod::kTypical}) {
      Has(sglang([&](P& p) { p.verify = method; }), "rng = sglang, verify = ");
    }
    Has(sglang([](P& p) { p.top_p = .9; }), "rank of an id");
    Has(sglang([](P& p) { p.top_k = 7; }), "rank of an id");
    Has(sglang([](P& p) { p.min_p = .1; }), "rank of an id");
    Has(sglang([](P& p) { p.draft.top_k = 3; }), "draft_top_k = 3");
    SequenceParams params;
    params.rng = Rng::kSglang;
    CHECK(SequenceMethod(params) == VerifyMethod::kExactMatch);
  }

  TEST_CASE("ids whose logprobs are wanted need logprobs") {
    Has(RefusalOf([](P& p) { p.logprob_token_ids = {1, 2}; }), "logprob_token_ids = 2 entries");
    CHECK(RefusalOf([](P& p) { p.logprob_token_ids = {1, 2}, p.logprobs = 0; }).empty());
  }

  TEST_CASE("vLLM: every field of SamplingParams is in the table or refused by name") {
    for (const char* name : {"n",
                             "presence_penalty",
                             "frequency_penalty",
                             "repetition_penalty",
                             "temperature",
                             "top_p",
                             "top_k",
                             "min_p",
                             "seed",
                             "stop",
                             "stop_token_ids",
                             "ignore_eos",
                             "max_tokens",
                             "min_tokens",
                             "logprobs",
                             "prompt_logprobs",
                             "logprob_token_ids",
                             "flat_logprobs",
                             "detokenize",
                             "skip_special_tokens",
                             "spaces_between_special_tokens",
                             "include_stop_str_in_output",
                             "output_kind",
                             "stream_interval",
                             "logit_bias",
                             "allowed_token_ids",
                             "bad_words",
                             "structured_outputs",
                             "thinking_token_budget",
                             "repetition_detection",
                             "extra_args",
                             "routed_experts_prompt_start",
                             "skip_clone",
                             "skip_reading_prefix_cache",
                             "logits_processors",
                             "best_of",
                             "use_beam_search",
                             "length_penalty",
                             "early_stopping",
                             "json",
                             "regex",
                             "choice",
                             "grammar",
                             "json_object",
                             "structural_tag",
                             "truncate_prompt_tokens",
                             "guided_decoding"}) {
      CAPTURE(name);
      CHECK((FindParam(name) != nullptr) != RefusedParam(name).has_value());
    }
  }

  TEST_CASE("SGLang: every field of SamplingParams is in the table or refused by name") {
    for (const char* name : {"temperature",
                             "top_p",
                             "top_k",
                             "min_p",
                             "frequency_penalty",
                             "presence_penalty",
                             "repetition_penalty",
                             "min_new_tokens",
                             "max_new_tokens",
                             "stop",
                             "stop_token_ids",
                             "stop_regex",
                             "ignore_eos",
                             "skip_special_tokens",
                             "spaces_between_special_tokens",
                             "no_stop_trim",
                             "json_schema",
                             "regex",
                             "ebnf",
                             "structural_tag",
                             "logit_bias",
                             "n",
                             "sampling_seed",
                             "stream_interval",
                             "custom_params",
                             "custom_logit_processor",
                             "return_sampling_mask"}) {
      CAPTURE(name);
      CHECK((FindParam(name) != nullptr) != RefusedParam(name).has_value());
    }
  }

  TEST_CASE("a refused name says what to do instead; an unknown one is nobody's") {
    CHECK(RefusedParam("best_of")->find("logprobs = 0") != std::string::npos);
    CHECK(RefusedParam("best_of")->find("cumulative_logprob") != std::string::npos);
    CHECK(RefusedParam("json")->find("set grammar_kind") != std::string::npos);
    CHECK(RefusedParam("structured_outputs")->find("called grammar_kind") != std::string::npos);
    CHECK(RefusedParam("whitespace_pattern")->find("grammar_whitespace") != std::string::npos);
    CHECK(RefusedParam("max_new_tokens")->find("called max_tokens here") != std::string::npos);
    CHECK(RefusedParam("max_new_tokens")->find("in Python") == std::string::npos);
    CHECK(RefusedParam("no_stop_trim")
              ->find("called include_stop here, include_stop_str_in_output in Python") !=
          std::string::npos);
    for (const char* name : {"logits_processors", "custom_logit_processor"}) {
      CHECK(RefusedParam(name)->find("name a compiled-in processor in processors") !=
            std::string::npos);
    }
    CHECK(RefusedParam("json_schema")->find("specd.StructuredOutputs") != std::string::npos);
    CHECK(RefusedParam("thinking_token_budget")->find("thinking_budget") != std::string::npos);
    for (const char* method : {"standard", "fly"}) {
      REQUIRE(RefusedParam("verify", method).has_value());
      CHECK(RefusedParam("verify", method)->find(method) != std::string::npos);
    }
    for (const char* method : {"block", "tree", "traversal", "target_only", "typical", "relaxed",
                               "threshold", "synthetic"}) {
      CHECK(!RefusedParam("verify", method).has_value());
    }
    CHECK(!RefusedParam("verify").has_value());
    CHECK(!RefusedParam("temperatura").has_value());
    CHECK(!RefusedParam("").has_value());
  }
}

}  // namespace
}  // namespace specd
