// VerifyCase describes the sequences of a round for the suites `verify` and `gpu`, under a stable
// name.
//
// Constant data, safe from any thread. A case has a user's words (temperature, top_p). round_set.h
// makes the backend's input from them, and round_check.h the expected result.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/method_names.h"
#include "kernels/core/round.h"
#include "tools/bench/rows.h"

namespace specd::bench {

// The choice of draft tokens.
enum class DraftPlan {
  kMatching,  // one-hot drafts that the sequence would emit anyway: every row is read
  kLikely,    // one-hot drafts of the most probable id at each place: coins decide
  kAccepted,  // sampled drafts with draft rows, each more likely in the target: all are accepted
  kRejected,  // the same, but sequence s has one that the target does not want at place s mod K
  kDrawn,     // drawn from draft rows as SampleDraft draws them, of a drafter with noise
};

struct VerifyCase {
  std::string_view name;
  std::string_view summary;
  bool of_verify = true;  // the suites that have it
  bool of_gpu = false;
  VerifyMethod method = VerifyMethod::kExactMatch;
  DraftPlan plan = DraftPlan::kMatching;
  // For kDrawn. The children of a place at each depth, up to the first 0; all 1: a chain.
  std::array<uint32_t, 6> widths = {};
  DraftSampling sampling = DraftSampling::kMixed;
  double noise = 0.5;                  // of the drafter's logits
  double sharpness = 1;                // the drafter's temperature is that of the case over this
  std::optional<RowShape> shape = {};  // for a case about a shape; otherwise the command decides

  double temperature = 0.8;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  double top_p = 1;
  double min_p = 0;
  Penalties penalties = {};
  int32_t num_penalised = 0;  // ids of a sequence's history, beside the ids of its head
  bool grammar = false;
  bool side_channel = false;  // sampled drafts bring their probabilities
  int32_t logprobs = -1;

  // The greatest ratio to a read of the same rows that the design allows, cold, on all cores; 0 if
  // the design asks for none.
  double target_fp32 = 0;
  double target_bf16 = 0;
  // Of a tree, at 8 sequences: the greatest ratio to the baseline that it has by itself
  // (kChainOfTree for VerifyMethod::kTree, else kRead).
  double target_tree = 0;
  // The least ratio of llama.cpp's loop to specd that the design asks for: one thread, warm, fp32.
  double target_llama = 0;
  // The greatest ratio to a read on a device that the design allows: 64 sequences, bf16, cold.
  double target_gpu = 0;
  // The longest time of a round of one sequence on a device, bf16, cold.
  double target_gpu_us = 0;
};

// True if the drafts of a case were drawn from rows.
inline bool HasDraftRows(const VerifyCase& verify_case) {
  return verify_case.plan >= DraftPlan::kAccepted;
}

// The parents of the nodes of kDrawn; empty: drafts are chains of the length that is asked for.
std::vector<int32_t> ParentsOf(const VerifyCase& verify_case);

// The cases of each suite, in its order. A name means the same in both.
const std::vector<VerifyCase>& VerifyCases();
const std::vector<VerifyCase>& GpuCases();

// Null if the suite has no case of that name.
const VerifyCase* FindCase(const std::vector<VerifyCase>& cases, std::string_view name);

inline std::string_view MethodName(VerifyMethod method) {
  return kMethodNames[static_cast<size_t>(method)];
}

}  // namespace specd::bench
