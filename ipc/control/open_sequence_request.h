// OpenSequenceRequest carries every parameter of a sequence to the daemon.
//
// Plain data, like the messages of ipc/control/control_messages.h.
// speculative/params/param_list.inc has the names and ranges of the numbers; only the daemon's side
// reads that table.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ipc/control/control_type.h"

namespace specd {

// Numbers by name, and their largest count in one message.
using NamedNumbers = std::vector<std::pair<std::string, double>>;
inline constexpr size_t kNumbersMax = 64;

// OpenSequenceRequest has all of specd_params. A parameter that is one number travels in `numbers`
// under its name; a number that is left out has its default. An opening usually sets few of the
// other fields, so the message leaves out those that are empty. Lists that may be as long as a
// prompt or a vocabulary are too large for a packet, and so is the text of a constraint. The
// message has their counts, and a memfd that travels with it holds them in the order of the counts:
// the ids as int32, then the bytes of the text. If all counts are 0, there is no descriptor.
struct OpenSequenceRequest {
  static constexpr ControlType kType = ControlType::kOpenSequence;
  std::string request_id;
  bool has_seed = false;
  uint64_t seed = 0;
  NamedNumbers numbers;

  std::vector<int32_t> logit_bias_ids;
  std::vector<double> logit_bias;
  std::vector<int32_t> bad_word_ids;
  std::vector<int32_t> bad_word_lengths;
  std::vector<int32_t> thinking_end_ids;
  std::string thinking_preset;
  std::vector<std::string> processor_names;
  std::vector<std::string> processor_values;  // "key=value,key=value", one for each name
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  std::vector<std::string> stop_regex;
  std::vector<int32_t> logprob_token_ids;
  std::vector<double> synthetic_rates;

  uint32_t num_prompt_ids = 0;
  uint32_t num_output_ids = 0;
  uint32_t num_allowed_token_ids = 0;
  uint32_t num_disallowed_token_ids = 0;
  uint32_t num_no_repeat_ngram_whitelist = 0;
  uint32_t num_grammar_bytes = 0;  // of the text that the number grammar_kind is the kind of

  // Of a sequence that was open at another daemon (SequenceHistory). 0: it is new.
  uint64_t handle = 0;
  uint32_t num_given_ids = 0;  // of the outputs: those that its stream does not have
  double cumulative_logprob = 0;
  uint32_t finish_reason = 0;
  std::vector<int32_t> stop_token;  // at most one; empty: no token ended the sequence
  // Of a sequence that a daemon in between has refused: why. The sequence gets its slot and has
  // failed from the beginning; nothing else of the request is read but num_given_ids.
  int32_t refusal_code = 0;  // SPECD_OK: none has
  std::string refusal_field;
  std::string refusal_text;

  // The reader of the memfd checks the counts (daemon/session/open_request.h).
  bool has_file() const { return num_list_ids() > 0 || num_grammar_bytes > 0; }
  // Returns the number of ids in the memfd.
  uint64_t num_list_ids() const {
    return uint64_t{num_prompt_ids} + num_output_ids + num_allowed_token_ids +
           num_disallowed_token_ids + num_no_repeat_ngram_whitelist;
  }

  uint64_t file_bytes() const { return num_list_ids() * sizeof(int32_t) + num_grammar_bytes; }

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("request_id", self.request_id, 128);
    f("has_seed", self.has_seed);
    f("seed", self.seed);
    f("numbers", self.numbers, kNumbersMax);
    f(OptionalKey{"logit_bias_ids"}, self.logit_bias_ids, 1024);
    f(OptionalKey{"logit_bias"}, self.logit_bias, 1024);
    f(OptionalKey{"bad_word_ids"}, self.bad_word_ids, 1024);
    f(OptionalKey{"bad_word_lengths"}, self.bad_word_lengths, 128);
    f(OptionalKey{"thinking_end_ids"}, self.thinking_end_ids, 64);
    f(OptionalKey{"thinking_preset"}, self.thinking_preset, 64);
    f(OptionalKey{"processor_names"}, self.processor_names, 8);
    f(OptionalKey{"processor_values"}, self.processor_values, 8);
    f(OptionalKey{"stop_token_ids"}, self.stop_token_ids, 64);
    f(OptionalKey{"stop_strings"}, self.stop_strings, 1024);
    f(OptionalKey{"stop_regex"}, self.stop_regex, 64);
    f(OptionalKey{"logprob_token_ids"}, self.logprob_token_ids, 64);
    f(OptionalKey{"synthetic_rates"}, self.synthetic_rates, 64);
    f(OptionalKey{"num_prompt_ids"}, self.num_prompt_ids);
    f(OptionalKey{"num_output_ids"}, self.num_output_ids);
    f(OptionalKey{"num_allowed_token_ids"}, self.num_allowed_token_ids);
    f(OptionalKey{"num_disallowed_token_ids"}, self.num_disallowed_token_ids);
    f(OptionalKey{"num_no_repeat_ngram_whitelist"}, self.num_no_repeat_ngram_whitelist);
    f(OptionalKey{"num_grammar_bytes"}, self.num_grammar_bytes);
    f(OptionalKey{"handle"}, self.handle);
    f(OptionalKey{"num_given_ids"}, self.num_given_ids);
    f(OptionalKey{"cumulative_logprob"}, self.cumulative_logprob);
    f(OptionalKey{"finish_reason"}, self.finish_reason);
    f(OptionalKey{"stop_token"}, self.stop_token, 1);
    f(OptionalKey{"refusal_code"}, self.refusal_code);
    f(OptionalKey{"refusal_field"}, self.refusal_field, 64);
    f(OptionalKey{"refusal_text"}, self.refusal_text, 2048);
  }
};

}  // namespace specd
