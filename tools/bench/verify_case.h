// VerifyCase describes the sequences of a round for the suites `verify` and `gpu`, under a stable
// name.
//
// Constant data, safe from any thread. A case has a user's words (temperature, top_p). round_set.h
// makes the backend's input from them, and round_check.h the expected result.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/round.h"
#include "tools/bench/rows.h"

namespace specd::bench {

// The choice of draft tokens.
enum class DraftPlan {
  kMatching,  // one-hot drafts that the sequence would emit anyway: every row is read
  kLikely,    // one-hot drafts of the most probable id at each place: coins decide
  kRejected,  // sampled drafts with draft rows, each more likely in the target, but sequence s has
              // one that the target does not want at place s mod K
  kDrawn,     // drawn from draft rows as SampleDraft draws them, of a drafter with kDrawnNoise
};

// The deviation of the logits of that drafter from the target's.
inline constexpr double kDrawnNoise = 0.5;

// What the design asks for; 0: nothing. docs/BENCHMARKS.md, "What specd is designed for".
struct Targets {
  double fp32 = 0;    // the greatest ratio to a read of the same rows, cold, on all cores
  double bf16 = 0;    // the same for rows of that type
  double tree = 0;    // the same to the baseline that a tree has by itself, at 8 sequences
  double llama = 0;   // the least ratio of llama.cpp's loop to specd: one thread, warm, fp32
  double gpu = 0;     // the greatest ratio to a read on a device: 64 sequences, bf16, cold
  double gpu_us = 0;  // the longest time of a round of one sequence on a device, bf16, cold
};

struct VerifyCase {
  std::string_view name;
  std::string_view summary;
  bool of_verify = true;  // the suites that have it
  bool of_gpu = false;
  VerifyMethod method = VerifyMethod::kExactMatch;
  DraftPlan plan = DraftPlan::kMatching;
  // For kDrawn: a tree of mixed siblings. The children of a place at each depth.
  std::vector<uint32_t> widths = {};
  RowShape shape = RowShape::kLlm;
  double temperature = 0.8;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  double top_p = 1;
  double min_p = 0;
  Penalties penalties = {};
  int32_t num_penalised = 0;  // ids of a sequence's history, beside the ids of its head
  bool grammar = false;
  bool side_channel = false;  // sampled drafts bring their probabilities
  int32_t logprobs = -1;
  Targets targets = {};
};

// True if the drafts of a case were drawn from rows.
inline bool HasDraftRows(const VerifyCase& verify_case) {
  return verify_case.plan >= DraftPlan::kRejected;
}

// The parents of the nodes of kDrawn; empty: drafts are chains of the length that is asked for.
std::vector<int32_t> ParentsOf(const VerifyCase& verify_case);

// The cases of each suite, in its order. A name means the same in both.
const std::vector<VerifyCase>& VerifyCases();
const std::vector<VerifyCase>& GpuCases();

// Null if the suite has no case of that name.
const VerifyCase* FindCase(const std::vector<VerifyCase>& cases, std::string_view name);

}  // namespace specd::bench
