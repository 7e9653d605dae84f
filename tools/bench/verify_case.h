// The cases of `specd-bench verify`: what every sequence of a round asks for, by a stable name.
//
// Constant data, safe from any thread. A case says what a user would say (temperature, top_p); what
// a backend is given is made from it in round_set.h, and what must come out in reference.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/core/round.h"
#include "tools/bench/rows.h"

namespace specd::bench {

// Which tokens are proposed.
enum class DraftPlan {
  kMatching,  // one-hot drafts that the sequence would emit anyway: every row is read
  kLikely,    // one-hot drafts of the most probable id at each place: coins decide
  kAccepted,  // sampled drafts with draft rows, each more likely in the target: all are accepted
  kRejected,  // the same, but sequence s meets one that the target does not want at place s mod K
};

struct VerifyCase {
  std::string_view name;
  std::string_view summary;
  VerifyMethod method = VerifyMethod::kExactMatch;
  DraftPlan plan = DraftPlan::kMatching;
  std::optional<RowShape> shape = {};  // where the case is about a shape; else as the command says

  double temperature = 0.8;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  double top_p = 1;
  double min_p = 0;
  Penalties penalties = {};
  int32_t num_penalised = 0;  // ids of a sequence's history, beside what its head holds
  bool grammar = false;
  bool side_channel = false;  // sampled drafts bring their probabilities
  bool weights_only = false;  // on a device: the sums of weights, beside those with its own exp2
  int32_t logprobs = -1;

  // The greatest ratio to a read of the same rows that the design asks for, cold, on all cores; 0
  // where it asks for none.
  double target_fp32 = 0;
  double target_bf16 = 0;
  // The least ratio of llama.cpp's loop to it that the design asks for: one thread, warm, fp32.
  double target_llama = 0;
  // The greatest ratio to a read on a device that the design asks for: 64 sequences, bf16, cold.
  double target_gpu = 0;
  // The longest time of a round of one sequence there, bf16, cold.
  double target_gpu_us = 0;
};

// Whether the drafts of a case were drawn from rows.
inline bool HasDraftRows(const VerifyCase& verify_case) {
  return verify_case.plan == DraftPlan::kAccepted || verify_case.plan == DraftPlan::kRejected;
}

std::span<const VerifyCase> VerifyCases();

// Null where there is none of that name.
const VerifyCase* FindVerifyCase(std::string_view name);

std::string_view MethodName(VerifyMethod method);

}  // namespace specd::bench
