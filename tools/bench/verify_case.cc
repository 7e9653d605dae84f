#include "tools/bench/verify_case.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/core/draft.h"
#include "speculative/drafts/tree_growth.h"

namespace specd::bench {
namespace {

using Method = VerifyMethod;
using Plan = DraftPlan;

VerifyCase TreeCase(std::string_view name, std::vector<uint32_t> widths, VerifyMethod method) {
  return {.name = name,
          .summary = "a tree of mixed siblings drawn from draft rows, temperature .8",
          .method = method,
          .plan = Plan::kDrawn,
          .widths = std::move(widths),
          .targets = {.tree = method == Method::kTree ? 1.25 : 1.3}};
}

const VerifyCase kCases[] = {
    {.name = "greedy",
     .summary = "temperature 0",
     .of_gpu = true,
     .method = Method::kGreedy,
     .temperature = 0,
     .targets = {.fp32 = 1.25, .bf16 = 1.5, .llama = 12, .gpu = 1.25, .gpu_us = 9}},
    {.name = "temperature",
     .summary = "temperature .8, no filter",
     .of_gpu = true,
     .targets = {.fp32 = 1.25, .bf16 = 1.5, .llama = 40, .gpu = 1.8, .gpu_us = 12}},
    {.name = "topk40",
     .summary = "temperature .8, top_k 40",
     .top_k = 40,
     .targets = {.llama = 12}},
    {.name = "topp95",
     .summary = "temperature .8, top_p .95",
     .top_p = 0.95,
     .targets = {.llama = 40}},
    {.name = "minp05",
     .summary = "temperature .8, min_p .05",
     .min_p = 0.05,
     .targets = {.llama = 20}},
    {.name = "topk40_topp95",
     .summary = "temperature .8, top_k 40, top_p .95",
     .of_gpu = true,
     .top_k = 40,
     .top_p = 0.95,
     .targets = {.fp32 = 1.25, .bf16 = 1.5, .llama = 12, .gpu = 1.8, .gpu_us = 25}},
    {.name = "penalties",
     .summary = "topk40_topp95 with repetition, frequency and presence penalties",
     .of_gpu = true,
     .top_k = 40,
     .top_p = 0.95,
     .penalties = {.repetition = 1.1f, .frequency = 0.2f, .presence = 0.1f},
     .num_penalised = 256,
     .targets = {.fp32 = 1.5, .bf16 = 1.5, .llama = 35, .gpu_us = 40}},
    {.name = "logprobs5",
     .summary = "temperature .8, raw logprobs of each token and of the best 5",
     .of_gpu = true,
     .logprobs = 5,
     .targets = {.fp32 = 1.3, .bf16 = 2}},
    {.name = "grammar",
     .summary = "topk40_topp95 under a grammar mask",
     .of_gpu = true,
     .top_k = 40,
     .top_p = 0.95,
     .grammar = true,
     .targets = {.fp32 = 1.5, .bf16 = 1.5, .gpu_us = 40}},
    {.name = "flat_topp95",
     .summary = "temperature 1, top_p .95 on flat rows: a nucleus of most ids",
     .of_gpu = true,
     .shape = RowShape::kFlat,
     .temperature = 1,
     .top_p = 0.95,
     .targets = {.fp32 = 4, .bf16 = 6}},
    {.name = "reject_all",
     .summary = "sampled drafts, every sequence rejected once",
     .method = Method::kToken,
     .plan = Plan::kRejected,
     .targets = {.fp32 = 1.6, .bf16 = 2}},
    {.name = "block_reject_all",
     .summary = "sampled drafts, block verification, every sequence rejected once",
     .of_gpu = true,
     .method = Method::kBlock,
     .plan = Plan::kRejected,
     .targets = {.fp32 = 1.3}},
    {.name = "one_hot",
     .summary = "temperature .8, one-hot drafts of the most probable id",
     .of_verify = false,
     .of_gpu = true,
     .method = Method::kToken,
     .plan = Plan::kLikely,
     .targets = {.gpu = 1.25, .gpu_us = 12}},
    {.name = "reject_side",
     .summary = "sampled drafts with their probabilities, every sequence rejected once",
     .of_verify = false,
     .of_gpu = true,
     .method = Method::kToken,
     .plan = Plan::kRejected,
     .side_channel = true,
     .targets = {.gpu = 3}},
    TreeCase("tree8", {2, 1, 1, 1}, Method::kTree),
    TreeCase("tree8_traversal", {2, 1, 1, 1}, Method::kTraversal),
    TreeCase("tree32", {2, 3, 2, 1}, Method::kTree),
    TreeCase("tree32_traversal", {2, 3, 2, 1}, Method::kTraversal),
    TreeCase("tree64", {4, 3, 2, 1}, Method::kTree),
    TreeCase("tree64_traversal", {4, 3, 2, 1}, Method::kTraversal),
};

std::vector<VerifyCase> CasesOf(bool VerifyCase::*suite) {
  std::vector<VerifyCase> chosen;
  std::ranges::copy_if(kCases, std::back_inserter(chosen), suite);
  return chosen;
}

}  // namespace

const std::vector<VerifyCase>& VerifyCases() {
  static const std::vector<VerifyCase> cases = CasesOf(&VerifyCase::of_verify);
  return cases;
}

const std::vector<VerifyCase>& GpuCases() {
  static const std::vector<VerifyCase> cases = CasesOf(&VerifyCase::of_gpu);
  return cases;
}

const VerifyCase* FindCase(const std::vector<VerifyCase>& cases, std::string_view name) {
  const auto found = std::ranges::find(cases, name, &VerifyCase::name);
  return found == cases.end() ? nullptr : &*found;
}

std::vector<int32_t> ParentsOf(const VerifyCase& verify_case) {
  return *StaticTree(verify_case.widths, kNodesMax);
}

}  // namespace specd::bench
