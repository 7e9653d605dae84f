#include "tools/bench/verify_case.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "kernels/core/check.h"
#include "kernels/core/draft.h"
#include "speculative/drafts/tree_growth.h"

namespace specd::bench {
namespace {

constexpr Penalties kPenalties{.repetition = 1.1f, .frequency = 0.2f, .presence = 0.1f};

// Targets: docs/BENCHMARKS.md, "What specd is designed for".
constexpr double kBFloat16Target = 2.0;
constexpr double kOneLookTarget = 1.25;
constexpr double kRejectTarget = 1.7;
constexpr double kTreeTarget = 1.25;      // of a chain over the rows that the tree reads
constexpr double kTraversalTarget = 1.3;  // of a read of them
constexpr double kGreedyTargetUs = 6;
constexpr double kRandomTargetUs = 10;

using Method = VerifyMethod;
using Plan = DraftPlan;

// Temperature .8 and filters.
constexpr VerifyCase FilterCase(std::string_view name, std::string_view summary, int32_t top_k,
                                double top_p, double min_p, double target_llama) {
  return {.name = name,
          .summary = summary,
          .top_k = top_k,
          .top_p = top_p,
          .min_p = min_p,
          .target_llama = target_llama};
}

constexpr std::array kCases{
    VerifyCase{.name = "greedy",
               .summary = "temperature 0",
               .of_gpu = true,
               .method = Method::kGreedy,
               .temperature = 0,
               .target_fp32 = 1.15,
               .target_bf16 = kBFloat16Target,
               .target_llama = 12,
               .target_gpu = kOneLookTarget,
               .target_gpu_us = kGreedyTargetUs},
    VerifyCase{.name = "temperature",
               .summary = "temperature .8, no filter",
               .of_gpu = true,
               .target_fp32 = 1.6,
               .target_bf16 = kBFloat16Target,
               .target_llama = 40,
               .target_gpu_us = kRandomTargetUs},
    FilterCase("topk40", "temperature .8, top_k 40", 40, 1, 0, 12),
    FilterCase("topp95", "temperature .8, top_p .95", 0, 0.95, 0, 40),
    FilterCase("minp05", "temperature .8, min_p .05", 0, 1, 0.05, 20),
    VerifyCase{.name = "topk40_topp95",
               .summary = "temperature .8, top_k 40, top_p .95",
               .of_gpu = true,
               .top_k = 40,
               .top_p = 0.95,
               .target_fp32 = 1.4,
               .target_bf16 = kBFloat16Target,
               .target_llama = 12},
    VerifyCase{.name = "penalties",
               .summary = "topk40_topp95 with repetition, frequency and presence penalties",
               .of_gpu = true,
               .top_k = 40,
               .top_p = 0.95,
               .penalties = kPenalties,
               .num_penalised = 256,
               .target_fp32 = 1.5,
               .target_bf16 = kBFloat16Target,
               .target_llama = 35},
    VerifyCase{.name = "logprobs5",
               .summary = "temperature .8, raw logprobs of each token and of the best 5",
               .of_gpu = true,
               .logprobs = 5},
    VerifyCase{.name = "grammar",
               .summary = "topk40_topp95 under a grammar mask",
               .of_gpu = true,
               .top_k = 40,
               .top_p = 0.95,
               .grammar = true,
               .target_fp32 = 1.5,
               .target_bf16 = kBFloat16Target},
    VerifyCase{.name = "flat_topp95",
               .summary = "temperature 1, top_p .95 on flat rows: a nucleus of most ids",
               .of_gpu = true,
               .shape = RowShape::kFlat,
               .temperature = 1,
               .top_p = 0.95},
    VerifyCase{.name = "token",
               .summary = "sampled drafts, all accepted",
               .method = Method::kToken,
               .plan = Plan::kAccepted},
    VerifyCase{.name = "reject_all",
               .summary = "sampled drafts, every sequence rejected once",
               .method = Method::kToken,
               .plan = Plan::kRejected,
               .target_fp32 = 2.0,
               .target_bf16 = kBFloat16Target},
    VerifyCase{.name = "block",
               .summary = "sampled drafts, block verification, all accepted",
               .of_gpu = true,
               .method = Method::kBlock,
               .plan = Plan::kAccepted},
    VerifyCase{.name = "block_reject_all",
               .summary = "sampled drafts, block verification, every sequence rejected once",
               .method = Method::kBlock,
               .plan = Plan::kRejected},
    VerifyCase{.name = "one_hot",
               .summary = "temperature .8, one-hot drafts of the most probable id",
               .of_verify = false,
               .of_gpu = true,
               .method = Method::kToken,
               .plan = Plan::kLikely,
               .target_gpu = kOneLookTarget,
               .target_gpu_us = kRandomTargetUs},
    VerifyCase{.name = "reject_side",
               .summary = "sampled drafts with their probabilities, every sequence rejected once",
               .of_verify = false,
               .of_gpu = true,
               .method = Method::kToken,
               .plan = Plan::kRejected,
               .side_channel = true,
               .target_gpu = kRejectTarget,
               .target_gpu_us = kRandomTargetUs},
    VerifyCase{.name = "reject_rows",
               .summary = "sampled drafts with rows alone, every sequence rejected once",
               .of_verify = false,
               .of_gpu = true,
               .method = Method::kToken,
               .plan = Plan::kRejected},
};

// 8, 32 and 64 nodes, by each method.
struct TreeSize {
  std::array<uint32_t, 6> widths;
  std::array<std::string_view, 4> names;
};
constexpr TreeSize kTrees[] = {
    {{2, 1, 1, 1}, {"tree8", "tree8_traversal", "tree8_target", "tree8_exact"}},
    {{2, 3, 2, 1}, {"tree32", "tree32_traversal", "tree32_target", "tree32_exact"}},
    {{4, 3, 2, 1}, {"tree64", "tree64_traversal", "tree64_target", "tree64_exact"}}};
constexpr Method kTreeMethods[] = {Method::kTree, Method::kTraversal, Method::kTargetOnly,
                                   Method::kExactMatch};
constexpr double kTreeTargets[] = {kTreeTarget, kTraversalTarget, 0, 0};

std::vector<VerifyCase> MakeVerifyCases() {
  std::vector<VerifyCase> cases;
  std::ranges::copy_if(kCases, std::back_inserter(cases), &VerifyCase::of_verify);
  for (const TreeSize& size : kTrees) {
    for (size_t i = 0; i < std::size(kTreeMethods); ++i) {
      cases.push_back({.name = size.names[i],
                       .summary = "a tree of mixed siblings drawn from draft rows, temperature .8",
                       .method = kTreeMethods[i],
                       .plan = Plan::kDrawn,
                       .widths = size.widths,
                       .target_tree = kTreeTargets[i]});
    }
  }
  return cases;
}

}  // namespace

const std::vector<VerifyCase>& VerifyCases() {
  static const std::vector<VerifyCase> cases = MakeVerifyCases();
  return cases;
}

const std::vector<VerifyCase>& GpuCases() {
  static const std::vector<VerifyCase> cases = [] {
    std::vector<VerifyCase> chosen;
    std::ranges::copy_if(kCases, std::back_inserter(chosen), &VerifyCase::of_gpu);
    return chosen;
  }();
  return cases;
}

const VerifyCase* FindCase(const std::vector<VerifyCase>& cases, std::string_view name) {
  const auto found = std::ranges::find(cases, name, &VerifyCase::name);
  return found == cases.end() ? nullptr : &*found;
}

std::vector<int32_t> ParentsOf(const VerifyCase& verify_case) {
  const auto end = std::ranges::find(verify_case.widths, 0u);
  return *StaticTree({verify_case.widths.begin(), end}, kNodesMax);
}

}  // namespace specd::bench
