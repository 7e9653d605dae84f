#include "tools/bench/verify_case.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

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

constexpr VerifyCase TreeCase(std::string_view name, Method method,
                              std::array<uint32_t, 6> widths) {
  const double target = method == Method::kTree        ? kTreeTarget
                        : method == Method::kTraversal ? kTraversalTarget
                                                       : 0;
  return {.name = name,
          .summary = "a tree of mixed siblings that was drawn from draft rows, temperature .8",
          .method = method,
          .plan = Plan::kDrawn,
          .widths = widths,
          .target_tree = target};
}
// 8, 32 and 64 nodes.
constexpr std::array<uint32_t, 6> kSmall = {2, 1, 1, 1};
constexpr std::array<uint32_t, 6> kMiddle = {2, 3, 2, 1};
constexpr std::array<uint32_t, 6> kLarge = {4, 3, 2, 1};

// One-hot or sampled drafts of a method, at temperature .8 and without filters.
constexpr VerifyCase DraftCase(std::string_view name, std::string_view summary, Method method,
                               Plan plan) {
  return {.name = name, .summary = summary, .method = method, .plan = plan};
}

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
               .method = Method::kGreedy,
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
    FilterCase("topk40", "temperature .8, top_k 40", 40, 1, 0, 12),
    FilterCase("topp95", "temperature .8, top_p .95", 0, 0.95, 0, 40),
    FilterCase("minp05", "temperature .8, min_p .05", 0, 1, 0.05, 20),
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
    DraftCase("token", "sampled drafts, all accepted", Method::kToken, Plan::kAccepted),
    VerifyCase{.name = "reject_all",
               .summary = "sampled drafts, every sequence rejected once",
               .method = Method::kToken,
               .plan = Plan::kRejected,
               .target_fp32 = 2.0,
               .target_bf16 = kBFloat16Target},
    DraftCase("block", "sampled drafts, block verification, all accepted", Method::kBlock,
              Plan::kAccepted),
    DraftCase("block_reject_all",
              "sampled drafts, block verification, every sequence rejected once", Method::kBlock,
              Plan::kRejected),
    VerifyCase{.name = "one_hot",
               .summary = "temperature .8, one-hot drafts of the most probable id",
               .method = Method::kToken,
               .plan = Plan::kLikely,
               .target_gpu = kOneLookTarget,
               .target_gpu_us = kRandomTargetUs},
    VerifyCase{.name = "reject_side",
               .summary = "sampled drafts with their probabilities, every sequence rejected once",
               .method = Method::kToken,
               .plan = Plan::kRejected,
               .side_channel = true,
               .target_gpu = kRejectTarget,
               .target_gpu_us = kRandomTargetUs},
    DraftCase("reject_rows", "sampled drafts with rows alone, every sequence rejected once",
              Method::kToken, Plan::kRejected),
    TreeCase("tree8", Method::kTree, kSmall),
    TreeCase("tree8_traversal", Method::kTraversal, kSmall),
    TreeCase("tree8_target", Method::kTargetOnly, kSmall),
    TreeCase("tree8_exact", Method::kExactMatch, kSmall),
    TreeCase("tree32", Method::kTree, kMiddle),
    TreeCase("tree32_traversal", Method::kTraversal, kMiddle),
    TreeCase("tree32_target", Method::kTargetOnly, kMiddle),
    TreeCase("tree32_exact", Method::kExactMatch, kMiddle),
    TreeCase("tree64", Method::kTree, kLarge),
    TreeCase("tree64_traversal", Method::kTraversal, kLarge),
    TreeCase("tree64_target", Method::kTargetOnly, kLarge),
    TreeCase("tree64_exact", Method::kExactMatch, kLarge),
};

// flat_topp95 comes late: it has rows of its own, while neighbours share theirs (cells.h).
constexpr std::string_view kOfVerify[] = {
    "greedy",          "temperature",  "topk40",      "topp95",           "minp05",
    "topk40_topp95",   "penalties",    "logprobs5",   "grammar",          "flat_topp95",
    "token",           "reject_all",   "block",       "block_reject_all", "tree8",
    "tree8_traversal", "tree8_target", "tree8_exact", "tree32",           "tree32_traversal",
    "tree32_target",   "tree32_exact", "tree64",      "tree64_traversal", "tree64_target",
    "tree64_exact"};
constexpr std::string_view kOfGpu[] = {"greedy",      "one_hot",       "reject_side", "reject_rows",
                                       "temperature", "topk40_topp95", "penalties",   "logprobs5",
                                       "grammar",     "block",         "flat_topp95"};

std::vector<VerifyCase> CasesOf(std::span<const std::string_view> names) {
  std::vector<VerifyCase> cases;
  for (const std::string_view name : names) {
    const auto* const found = std::ranges::find(kCases, name, &VerifyCase::name);
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
  const auto found = std::ranges::find(cases, name, &VerifyCase::name);
  return found == cases.end() ? nullptr : &*found;
}

std::vector<int32_t> ParentsOf(const VerifyCase& verify_case) {
  const auto end = std::ranges::find(verify_case.widths, 0u);
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
