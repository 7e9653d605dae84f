#include "tools/bench/verify_case.h"

#include <algorithm>
#include <array>
#include <span>

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
constexpr double kGreedyTargetUs = 6;
constexpr double kRandomTargetUs = 10;

constexpr VerifyCase TreeCase(std::string_view name, VerifyMethod method,
                              std::array<uint32_t, 6> widths) {
  return {.name = name,
          .summary = "a tree of mixed siblings that was drawn from draft rows, temperature .8",
          .method = method,
          .plan = DraftPlan::kDrawn,
          .widths = widths};
}
// 8, 32 and 64 nodes.
constexpr std::array<uint32_t, 6> kSmall = {2, 1, 1, 1};
constexpr std::array<uint32_t, 6> kMiddle = {2, 3, 2, 1};
constexpr std::array<uint32_t, 6> kLarge = {4, 3, 2, 1};

constexpr std::array kCases{
    VerifyCase{.name = "greedy",
               .summary = "temperature 0",
               .method = VerifyMethod::kGreedy,
               .temperature = 0,
               .target_fp32 = 1.15,
               .target_bf16 = kBFloat16Target,
               .target_llama = 12,
               .target_gpu = kOneLookTarget,
               .target_gpu_us = kGreedyTargetUs},
    VerifyCase{.name = "temperature",
               .summary = "temperature .8, no filter",
               .target_fp32 = 1.6,
               .target_bf16 = kBFloat16Target,
               .target_llama = 40,
               .target_gpu_us = kRandomTargetUs},
    VerifyCase{
        .name = "topk40", .summary = "temperature .8, top_k 40", .top_k = 40, .target_llama = 12},
    VerifyCase{.name = "topp95",
               .summary = "temperature .8, top_p .95",
               .top_p = 0.95,
               .target_llama = 40},
    VerifyCase{.name = "minp05",
               .summary = "temperature .8, min_p .05",
               .min_p = 0.05,
               .target_llama = 20},
    VerifyCase{.name = "topk40_topp95",
               .summary = "temperature .8, top_k 40, top_p .95",
               .top_k = 40,
               .top_p = 0.95,
               .target_fp32 = 1.4,
               .target_bf16 = kBFloat16Target,
               .target_llama = 12},
    VerifyCase{.name = "penalties",
               .summary = "topk40_topp95 with repetition, frequency and presence penalties",
               .top_k = 40,
               .top_p = 0.95,
               .penalties = kPenalties,
               .num_penalised = 256,
               .target_fp32 = 1.5,
               .target_bf16 = kBFloat16Target,
               .target_llama = 35},
    VerifyCase{.name = "logprobs5",
               .summary = "temperature .8, raw logprobs of each token and of the best 5",
               .logprobs = 5},
    VerifyCase{.name = "grammar",
               .summary = "topk40_topp95 under a grammar mask",
               .top_k = 40,
               .top_p = 0.95,
               .grammar = true,
               .target_fp32 = 1.5,
               .target_bf16 = kBFloat16Target},
    VerifyCase{.name = "flat_topp95",
               .summary = "temperature 1, top_p .95 on flat rows: a nucleus of most ids",
               .shape = RowShape::kFlat,
               .temperature = 1,
               .top_p = 0.95},
    VerifyCase{.name = "token",
               .summary = "sampled drafts, all accepted",
               .method = VerifyMethod::kToken,
               .plan = DraftPlan::kAccepted},
    VerifyCase{.name = "reject_all",
               .summary = "sampled drafts, every sequence rejected once",
               .method = VerifyMethod::kToken,
               .plan = DraftPlan::kRejected,
               .target_fp32 = 2.0,
               .target_bf16 = kBFloat16Target},
    VerifyCase{.name = "block",
               .summary = "sampled drafts, block verification, all accepted",
               .method = VerifyMethod::kBlock,
               .plan = DraftPlan::kAccepted},
    VerifyCase{.name = "block_reject_all",
               .summary = "sampled drafts, block verification, every sequence rejected once",
               .method = VerifyMethod::kBlock,
               .plan = DraftPlan::kRejected},
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
    TreeCase("tree8", VerifyMethod::kTree, kSmall),
    TreeCase("tree8_traversal", VerifyMethod::kTraversal, kSmall),
    TreeCase("tree8_target", VerifyMethod::kTargetOnly, kSmall),
    TreeCase("tree8_exact", VerifyMethod::kExactMatch, kSmall),
    TreeCase("tree32", VerifyMethod::kTree, kMiddle),
    TreeCase("tree32_traversal", VerifyMethod::kTraversal, kMiddle),
    TreeCase("tree32_target", VerifyMethod::kTargetOnly, kMiddle),
    TreeCase("tree32_exact", VerifyMethod::kExactMatch, kMiddle),
    TreeCase("tree64", VerifyMethod::kTree, kLarge),
    TreeCase("tree64_traversal", VerifyMethod::kTraversal, kLarge),
    TreeCase("tree64_target", VerifyMethod::kTargetOnly, kLarge),
    TreeCase("tree64_exact", VerifyMethod::kExactMatch, kLarge),
    VerifyCase{.name = "exp2",
               .summary = "the sums of weights alone, beside the same with ex2.approx",
               .weights_only = true},
};

// flat_topp95 comes late: it has rows of its own, while neighbours share theirs (pool_cache.h).
constexpr std::string_view kOfVerify[] = {
    "greedy",          "temperature",  "topk40",      "topp95",           "minp05",
    "topk40_topp95",   "penalties",    "logprobs5",   "grammar",          "flat_topp95",
    "token",           "reject_all",   "block",       "block_reject_all", "tree8",
    "tree8_traversal", "tree8_target", "tree8_exact", "tree32",           "tree32_traversal",
    "tree32_target",   "tree32_exact", "tree64",      "tree64_traversal", "tree64_target",
    "tree64_exact"};
constexpr std::string_view kOfGpu[] = {
    "greedy",    "one_hot",   "reject_side", "reject_rows", "temperature", "topk40_topp95",
    "penalties", "logprobs5", "grammar",     "block",       "exp2",        "flat_topp95"};

std::vector<VerifyCase> CasesOf(std::span<const std::string_view> names) {
  std::vector<VerifyCase> cases;
  for (const std::string_view name : names) {
    const auto* const found = std::find_if(
        kCases.begin(), kCases.end(), [&](const VerifyCase& each) { return each.name == name; });
    SPECD_CHECK(found != kCases.end());
    cases.push_back(*found);
  }
  return cases;
}

}  // namespace

const std::vector<VerifyCase>& VerifyCases() {
  static const std::vector<VerifyCase> cases = CasesOf(kOfVerify);
  return cases;
}

const std::vector<VerifyCase>& GpuCases() {
  static const std::vector<VerifyCase> cases = CasesOf(kOfGpu);
  return cases;
}

const VerifyCase* FindCase(const std::vector<VerifyCase>& cases, std::string_view name) {
  for (const VerifyCase& known : cases) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::vector<int32_t> ParentsOf(const VerifyCase& verify_case) {
  const auto end = std::find(verify_case.widths.begin(), verify_case.widths.end(), 0u);
  return *StaticTree({verify_case.widths.begin(), end}, kNodesMax);
}

std::string_view MethodName(VerifyMethod method) {
  constexpr std::string_view kNames[] = {"auto",    "greedy",  "exact_match", "token",
                                         "block",   "tree",    "traversal",   "target_only",
                                         "typical", "relaxed", "threshold",   "synthetic"};
  const auto index = static_cast<size_t>(method);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

}  // namespace specd::bench
