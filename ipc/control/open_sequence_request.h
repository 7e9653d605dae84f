// OpenSequence, the control message that has every parameter of a sequence.
//
// Plain data, as the messages of ipc/control/control_messages.h are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/control/control_type.h"

namespace specd {

// All of specd_params. The lists that may be as long as a prompt or a vocabulary are too large for
// a packet: the message says how many ids each has, and a memfd that comes with it holds them as
// int32, in the order of the counts. Without any there is no descriptor.
struct OpenSequenceRequest {
  static constexpr ControlType kType = ControlType::kOpenSequence;
  std::string request_id;
  uint32_t verify = 0;
  bool has_seed = false;
  uint64_t seed = 0;
  uint32_t n = 1;

  double temperature = 1;
  double top_p = 1;
  int32_t top_k = 0;
  double min_p = 0;
  uint32_t filter_order = 0;

  double frequency_penalty = 0;
  double presence_penalty = 0;
  double repetition_penalty = 1;
  std::vector<int32_t> logit_bias_ids;
  std::vector<double> logit_bias;
  std::vector<int32_t> bad_word_ids;
  std::vector<int32_t> bad_word_lengths;
  uint32_t no_repeat_ngram_size = 0;
  uint32_t no_repeat_ngram_window = 0;

  int32_t thinking_budget = -1;
  int32_t thinking_start_id = -1;
  std::vector<int32_t> thinking_end_ids;
  int32_t thinking_newline_id = -1;
  std::string thinking_preset;
  std::vector<std::string> processor_names;
  std::vector<std::string> processor_values;  // "key=value,key=value", one for each name

  uint32_t max_tokens = 16;
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  bool include_stop = false;
  bool skip_special_tokens = true;

  int32_t logprobs = -1;
  uint32_t logprobs_mode = 0;
  std::vector<int32_t> logprob_token_ids;

  double draft_temperature = 1;
  double draft_top_p = 1;
  int32_t draft_top_k = 0;
  double draft_min_p = 0;
  uint32_t draft_filter_order = 0;
  bool draft_edits = false;

  uint32_t num_prompt_ids = 0;
  uint32_t num_output_ids = 0;
  uint32_t num_allowed_token_ids = 0;
  uint32_t num_disallowed_token_ids = 0;
  uint32_t num_no_repeat_ngram_whitelist = 0;

  // Of the memfd. The counts are checked by whoever reads it (daemon/session/open_request.h).
  uint64_t num_list_ids() const {
    return uint64_t{num_prompt_ids} + num_output_ids + num_allowed_token_ids +
           num_disallowed_token_ids + num_no_repeat_ngram_whitelist;
  }

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("request_id", self.request_id, 128);
    f("verify", self.verify);
    f("has_seed", self.has_seed);
    f("seed", self.seed);
    f("n", self.n);
    f("temperature", self.temperature);
    f("top_p", self.top_p);
    f("top_k", self.top_k);
    f("min_p", self.min_p);
    f("filter_order", self.filter_order);
    f("frequency_penalty", self.frequency_penalty);
    f("presence_penalty", self.presence_penalty);
    f("repetition_penalty", self.repetition_penalty);
    f("logit_bias_ids", self.logit_bias_ids, 1024);
    f("logit_bias", self.logit_bias, 1024);
    f("bad_word_ids", self.bad_word_ids, 1024);
    f("bad_word_lengths", self.bad_word_lengths, 128);
    f("no_repeat_ngram_size", self.no_repeat_ngram_size);
    f("no_repeat_ngram_window", self.no_repeat_ngram_window);
    f("thinking_budget", self.thinking_budget);
    f("thinking_start_id", self.thinking_start_id);
    f("thinking_end_ids", self.thinking_end_ids, 64);
    f("thinking_newline_id", self.thinking_newline_id);
    f("thinking_preset", self.thinking_preset, 64);
    f("processor_names", self.processor_names, 8);
    f("processor_values", self.processor_values, 8);
    f("max_tokens", self.max_tokens);
    f("min_tokens", self.min_tokens);
    f("ignore_eos", self.ignore_eos);
    f("stop_token_ids", self.stop_token_ids, 64);
    f("stop_strings", self.stop_strings, 1024);
    f("include_stop", self.include_stop);
    f("skip_special_tokens", self.skip_special_tokens);
    f("logprobs", self.logprobs);
    f("logprobs_mode", self.logprobs_mode);
    f("logprob_token_ids", self.logprob_token_ids, 64);
    f("draft_temperature", self.draft_temperature);
    f("draft_top_p", self.draft_top_p);
    f("draft_top_k", self.draft_top_k);
    f("draft_min_p", self.draft_min_p);
    f("draft_filter_order", self.draft_filter_order);
    f("draft_edits", self.draft_edits);
    f("num_prompt_ids", self.num_prompt_ids);
    f("num_output_ids", self.num_output_ids);
    f("num_allowed_token_ids", self.num_allowed_token_ids);
    f("num_disallowed_token_ids", self.num_disallowed_token_ids);
    f("num_no_repeat_ngram_whitelist", self.num_no_repeat_ngram_whitelist);
  }
};

}  // namespace specd
