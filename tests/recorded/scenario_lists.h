// The lists of methods, parameters, steps and row shapes that scenarios.cc crosses.
//
// Parameters and steps are texts in the form of LifePlan (plan.h). For scenarios.cc alone;
// constants.
#pragma once

namespace specd::recorded {

inline constexpr const char* kMethods[] = {"verify=exact_match", "verify=token", "verify=block",
                                           "verify=auto", "verify=greedy;temperature=0"};
inline constexpr const char* kShapes[] = {"spiky", "peak", "ties", "holes",
                                          "fine",  "wide", "bell", "flat"};
// The modes that lives take in turn. A further mode has an engine of its own, so that the lives of
// the others stay as they were recorded.
inline constexpr const char* kModes[] = {"raw_logprobs", "processed_logprobs", "raw_logits",
                                         "processed_logits"};

// The steps have at most three draft tokens, so all engines except two can take them.
inline constexpr const char* kSteps[] = {
    "aab|sss||S:sss|a-a|rdq",
    "s|S:sss|aa|bs|OqR|sss",
    "aaa|bb|oar|nda|a-|!state",
    "qqq|qa|S:sb|D:aa|sss|a",
};

inline constexpr const char* kFilters[] = {
    "",
    "temperature=0.3",
    "temperature=1.7",
    "top_p=0.6",
    "top_p=0.000001",
    "min_p=0.2",
    "top_k=4",
    "top_k=4;top_p=0.8;min_p=0.05",
    "top_k=6;top_p=0.7;min_p=0.1;filter_order=joint;temperature=0.8",
    "draft_temperature=0.5",
    "draft_top_p=0.7;draft_top_k=9",
    "draft_min_p=0.1;draft_top_p=0.9;draft_filter_order=joint;draft_top_k=12;top_k=7",
};

// Ids below 29. The prompt repeats itself, so n-grams, penalties and thoughts have tokens to look
// back on.
#define PROMPT "prompt_ids=1 2 3 4 5 6 7 1 2 3"
inline constexpr const char* kEdits[] = {
    "frequency_penalty=0.9;" PROMPT,
    "frequency_penalty=-0.8;draft_edits=1",
    "presence_penalty=1.1;" PROMPT,
    "repetition_penalty=1.6;" PROMPT,
    "repetition_penalty=0.7;presence_penalty=-1.5;frequency_penalty=0.3;draft_edits=1;" PROMPT,
    "logit_bias_ids=3 9 20;logit_bias=4.5 -100 2.25",
    "logit_bias_ids=0 1 2;logit_bias=1.5 1.5 1.5;repetition_penalty=1.25;top_k=8;draft_edits=1",
    "allowed_token_ids=2 3 5 7 11 13 17 19 23",
    "disallowed_token_ids=0 4 8 12 16;draft_edits=1",
    "allowed_token_ids=1 2 3 4;disallowed_token_ids=2;top_p=0.9",
    "bad_word_ids=5 3 4 7 8 9;bad_word_lengths=1 2 3;" PROMPT,
    "bad_word_ids=1 1 2 2 3 3 10 11 12;bad_word_lengths=2 2 2 1 1 1;draft_edits=1",
    "no_repeat_ngram_size=2;allowed_token_ids=1 2 3 4 5;" PROMPT,
    "no_repeat_ngram_size=1;no_repeat_ngram_window=6;no_repeat_ngram_whitelist=4 5 6",
    "no_repeat_ngram_size=2;no_repeat_ngram_window=12;no_repeat_ngram_whitelist=3;draft_edits=1;"
    "allowed_token_ids=1 2 3 4;" PROMPT,
    "thinking_budget=3;thinking_start_id=7;thinking_end_ids=8 9;prompt_ids=1 7 2",
    "thinking_budget=2;thinking_start_id=7;thinking_end_ids=8;thinking_newline_id=10;draft_edits=1;"
    "prompt_ids=7",
    "thinking_budget=0;thinking_start_id=3;thinking_end_ids=4 4 5;thinking_newline_id=6;"
    "logit_bias_ids=3;logit_bias=6",
    "processors=repeat_run max_run=2;logit_bias_ids=3;logit_bias=12",
    "processors=repeat_run max_run=1,repeat_run;frequency_penalty=0.5;draft_edits=1",
    "max_tokens=5",
    "max_tokens=8;min_tokens=6;stop_token_ids=1 2 3 4 5 6 7 8 9 10 11 12",
    "stop_token_ids=1 2 3 4 5 6 7 8",
    "min_tokens=4;stop_token_ids=3 5 9;draft_edits=1;logit_bias_ids=3 5 9;logit_bias=9 9 9",
    "include_stop=1;skip_special_tokens=0;stop_token_ids=2 4 6",
    "output_ids=3 4 5 3 4;repetition_penalty=1.3;frequency_penalty=0.4;no_repeat_ngram_size=3;"
    "max_tokens=16;" PROMPT,
    "min_tokens=3;stop_token_ids=1 2 3 4 5 6;bad_word_ids=7 7;bad_word_lengths=2;"
    "presence_penalty=0.5;logit_bias_ids=7;logit_bias=5;top_p=0.95;top_k=20;min_p=0.01;"
    "draft_edits=1;draft_temperature=0.9;" PROMPT,
    "thinking_budget=0;thinking_start_id=7;thinking_end_ids=8;stop_token_ids=8;min_tokens=1;"
    "prompt_ids=7",
    "thinking_budget=2;thinking_start_id=7;thinking_end_ids=9 8;stop_token_ids=8 9;min_tokens=3;"
    "prompt_ids=7",
    "logprobs=0",
    "logprobs=4;logprobs_mode=processed_logprobs;logprob_token_ids=1 28 1;top_k=3",
    "logprobs=5;logprobs_mode=raw_logits;logprob_token_ids=0;repetition_penalty=1.4;" PROMPT,
    "logprobs=3;logprobs_mode=processed_logits;top_k=2;logit_bias_ids=4;logit_bias=3",
    "logprobs=64;logprob_token_ids=2 3;frequency_penalty=1.25;max_tokens=6",
};
#undef PROMPT

// Filters, temperatures and edits of lives whose logprobs are those before the filters.
inline constexpr const char* kUnfiltered[] = {
    "logprobs=3;logprobs_mode=unfiltered_logprobs",
    "logprobs=6;logprobs_mode=unfiltered_logprobs;temperature=0.3;top_k=2",
    "logprobs=4;logprobs_mode=unfiltered_logprobs;temperature=1.7;top_p=0.4;min_p=0.2;"
    "logprob_token_ids=0 28",
    "logprobs=2;logprobs_mode=unfiltered_logprobs;filter_order=joint;top_k=3;top_p=0.7;"
    "repetition_penalty=1.4;frequency_penalty=0.6;disallowed_token_ids=0 4 8;"
    "prompt_ids=1 2 3 4 5 6 7 1 2 3",
};

inline constexpr const char* kBadRows[] = {
    "a@0=nan|a",
    "aab@1=nan|a",
    "aaa@3=nan|a",
    "s@d0=nan|a",
    "sss@d1=nan|a",
    "S:sss@d0=nan|S:s",
    "aab@0=empty|a",
    "sqs@2=empty|a",
    "qs@d0=empty|s",
    "aa@0=inf@1=inf|rr",
    "rr@0=inf@1=infs|a",
    "qs@d0=inf|s@d0=infs",
    "a/n.|a",
    "aa/.n.|a",
    "sss/hh.h|S:ss/oaa",
    "aab/ooao|rrb/hhhh",
    "oaa@1=nan|a",
    "a-a@2=nan|a@1=empty",
    "-aa|--|-",
    "nnn|ooo|OOO|aaa",
    "sss@0=single@d0=single|aa@0=single@1=single",
    "D:aaa@0=nan|a|D:a|D:",
};

inline constexpr const char* kBadProbabilities[] = {
    "a@0=nan|a",
    "aab@1=heavy|a",
    "a@0=loose|a",
    "a@1=negative|a",
    "sss@d1=nan|a",
    "qq@d0=heavy|a",
    "qs@d1=loose|a",
    "q@d0=negative|a",
    "aab@0=empty|a",
    "qs@d0=empty|s",
    "a@0=inf|a",
    "q@d0=inf|a",
    "a@0=single|q@d0=single",
    "S:sss@d0=nan|S:s",
};

inline constexpr const char* kCalls[] = {
    "aab|!fork 77|0>aab&1>aab|!fork 5 >1|0>sss&1>S:sss&2>rab|!close|0>a&1>a|!state >2",
    "a|!abort|!state|a|!fork 5",
    "!close|a|!state|!abort|!fork 1",
    "!coins 3|sss|rrr|aaa",
    "!coins 4|aab|!coins 5|S:sss|a",
    "!coins 6|S:sss|qqq",
    "!coins 7|!fork 9|0>sss&1>sss|0>rrr&1>rrr",
    "!score 0 0 1|!score 0 5 4|a|!score 2 3 2|!score 2 0 1|!score 1 0 1|!score 0 65 1",
    "!sample 0 1 0|!sample 0 8 2|!sample 1 8 0|a|!sample 1 40 1|!sample 2 5 0|!sample 2 64 2",
    "!sample 0 64 0|!sample 4 1 0|!sample 0 65 0|!sample 0 1 3|!sample 0 1 4",
    "!sample 0 4 0 >3|!score 0 2 5",
    "aaa|bb|oar|nda|a-a|!state|aaa|aaa|aaa|aaa|aaa|!state",
};

inline constexpr const char* kInvalid[] = {
    "a@0=#4000000|a",
    "aab@3=#4000000|a",
    "s@d0=#4000000|a",
    "qq@d1=#4000000|a",
    "a/h.@m0=#99999|a",
    "a/.h@m1=#-2|a",
    "A:a|a",
    "a&a|a",
    "7>a|a",
    "L:aa|a",
    "!close|a|7>D:a",
    "D:a&a|a",
    "A:aa/h..|a",
    "A:a@0=#8|A:a@0=#-1|A:a",
};

// Openings that specd refuses.
inline constexpr const char* kRefusedParams[] = {
    "temperature=100.5",
    "temperature=-1",
    "top_p=0",
    "top_p=1.5",
    "top_k=-2",
    "min_p=1.5",
    "frequency_penalty=3",
    "presence_penalty=-3",
    "repetition_penalty=0",
    "repetition_penalty=1e-60",
    "logit_bias_ids=8;logit_bias=1",
    "logit_bias_ids=3;logit_bias=101",
    "logit_bias_ids=3 3;logit_bias=1 1",
    "logit_bias_ids=3;logit_bias=1 2",
    "allowed_token_ids=-1",
    "allowed_token_ids=1;disallowed_token_ids=1",
    "disallowed_token_ids=0 1 2 3 4 5 6 7",
    "bad_word_ids=1 2;bad_word_lengths=3",
    "bad_word_ids=1;bad_word_lengths=1 0",
    "no_repeat_ngram_window=4",
    "no_repeat_ngram_size=4;no_repeat_ngram_window=3",
    "thinking_budget=3",
    "thinking_start_id=3",
    "thinking_budget=1;thinking_start_id=3;thinking_end_ids=4 3",
    "thinking_preset=qwen3",
    "thinking_budget=4;thinking_preset=qwen3",
    "thinking_budget=4;thinking_preset=other",
    "processors=other",
    "processors=repeat_run max_run=0",
    "processors=repeat_run run=1",
    "max_tokens=0",
    "max_tokens=3;min_tokens=4",
    "stop_token_ids=8",
    "stop_strings=end",
    "logprobs=65",
    "logprobs=-2",
    "logprob_token_ids=1",
    "logprobs=64;logprob_token_ids=8",
    "logprobs_mode=7;logprobs=1",
    "verify=9",
    "verify=greedy",
    "verify=token;temperature=0",
    "verify=block;top_k=1",
    "n=2;temperature=0",
    "n=0",
    "n=65",
    "draft_temperature=0",
    "draft_top_p=0",
    "draft_top_k=-5",
    "draft_min_p=2",
    "draft_filter_order=2",
    "filter_order=2",
    "ignore_eos=2",
    "include_stop=2",
    "skip_special_tokens=2",
    "draft_edits=2",
    "prompt_ids=8",
    "output_ids=9",
    "output_ids=1 2 3 4;max_tokens=3",
};

}  // namespace specd::recorded
