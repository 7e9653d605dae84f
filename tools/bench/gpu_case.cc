#include "tools/bench/gpu_case.h"

#include <array>

namespace specd::bench {
namespace {

// Targets: docs/BENCHMARKS.md, "What specd is designed for".
constexpr double kOneLookTarget = 1.25;
constexpr double kRejectTarget = 1.7;
constexpr double kGreedyTargetUs = 6;
constexpr double kRandomTargetUs = 10;

constexpr std::array kCases{
    VerifyCase{.name = "greedy",
               .summary = "temperature 0, drafts that are accepted",
               .method = VerifyMethod::kGreedy,
               .temperature = 0,
               .target_gpu = kOneLookTarget,
               .target_gpu_us = kGreedyTargetUs},
    VerifyCase{.name = "one_hot",
               .summary = "temperature .8, one-hot drafts of the most probable id",
               .method = VerifyMethod::kToken,
               .plan = DraftPlan::kLikely,
               .target_gpu = kOneLookTarget,
               .target_gpu_us = kRandomTargetUs},
    VerifyCase{.name = "reject_side",
               .summary = "sampled drafts with their probabilities, every sequence rejected once",
               .method = VerifyMethod::kToken,
               .plan = DraftPlan::kRejected,
               .side_channel = true,
               .target_gpu = kRejectTarget,
               .target_gpu_us = kRandomTargetUs},
    VerifyCase{.name = "reject_rows",
               .summary = "sampled drafts with rows alone, every sequence rejected once",
               .method = VerifyMethod::kToken,
               .plan = DraftPlan::kRejected},
    VerifyCase{.name = "temperature",
               .summary = "temperature .8, no filter",
               .target_gpu_us = kRandomTargetUs},
    VerifyCase{.name = "topk40_topp95",
               .summary = "temperature .8, top_k 40, top_p .95",
               .top_k = 40,
               .top_p = 0.95},
    VerifyCase{.name = "penalties",
               .summary = "topk40_topp95 with repetition, frequency and presence penalties",
               .top_k = 40,
               .top_p = 0.95,
               .penalties = {.repetition = 1.1f, .frequency = 0.2f, .presence = 0.1f},
               .num_penalised = 256},
    VerifyCase{.name = "logprobs5",
               .summary = "temperature .8, raw logprobs of each token and of the best 5",
               .logprobs = 5},
    VerifyCase{.name = "grammar",
               .summary = "topk40_topp95 under a grammar mask",
               .top_k = 40,
               .top_p = 0.95,
               .grammar = true},
    VerifyCase{.name = "block",
               .summary = "sampled drafts, block verification, all accepted",
               .method = VerifyMethod::kBlock,
               .plan = DraftPlan::kAccepted},
    VerifyCase{.name = "exp2",
               .summary = "the sums of weights alone, beside the same with ex2.approx",
               .weights_only = true},
    // Last: rows of its own, while neighbours share theirs (pool_cache.h).
    VerifyCase{.name = "flat_topp95",
               .summary = "temperature 1, top_p .95 on flat rows: a nucleus of most ids",
               .shape = RowShape::kFlat,
               .temperature = 1,
               .top_p = 0.95},
};

}  // namespace

std::span<const VerifyCase> GpuCases() { return kCases; }

const VerifyCase* FindGpuCase(std::string_view name) {
  for (const VerifyCase& known : kCases) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

}  // namespace specd::bench
