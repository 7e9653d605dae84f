#include "tools/bench/accept_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "speculative/drafts/tree_growth.h"
#include "tools/bench/round_check.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr int32_t kBatch = 250;

struct Way {
  std::string_view name;
  std::string_view summary;
  VerifyMethod method;
  DraftSampling sampling;
};
constexpr VerifyMethod kTarget = VerifyMethod::kTargetOnly;
constexpr VerifyMethod kTree = VerifyMethod::kTree;
constexpr VerifyMethod kTraversal = VerifyMethod::kTraversal;
constexpr DraftSampling kWith = DraftSampling::kWithReplacement;
constexpr DraftSampling kRest = DraftSampling::kWithoutReplacement;
constexpr DraftSampling kMixed = DraftSampling::kMixed;
constexpr Way kWays[] = {
    {"chain_block", "one child of each place, block", VerifyMethod::kBlock, kWith},
    {"target_top", "the best children, target_only", kTarget, DraftSampling::kTopK},
    {"target_with", "children with replacement, target_only", kTarget, kWith},
    {"target_rest", "children without replacement, target_only", kTarget, kRest},
    {"target_mixed", "mixed children, target_only", kTarget, kMixed},
    {"tree_with", "children with replacement, tree", kTree, kWith},
    {"tree_rest", "children without replacement, tree", kTree, kRest},
    {"tree_mixed", "mixed children, tree", kTree, kMixed},
    {"traversal_with", "children with replacement, traversal", kTraversal, kWith},
    {"traversal_rest", "children without replacement, traversal", kTraversal, kRest},
    {"traversal_mixed", "mixed children, traversal", kTraversal, kMixed},
};

VerifyCase CaseOf(const Way& way, std::array<uint32_t, 6> widths) {
  if (way.method == VerifyMethod::kBlock) {
    for (uint32_t& width : widths) width = std::min(width, 1u);
  }
  return {.name = way.name,
          .summary = way.summary,
          .method = way.method,
          .plan = DraftPlan::kDrawn,
          .widths = widths,
          .sampling = way.sampling};
}

absl::Status RunAccept(const Flags& flags, Output* out) {
  std::array<uint32_t, 6> widths = {};
  const std::vector<int32_t> given = flags.Numbers("tree");
  std::copy_n(given.begin(), std::min(given.size(), widths.size()), widths.begin());
  if (given.size() > widths.size() || !StaticTree({widths.data(), given.size()}, kNodesMax).ok()) {
    return absl::InvalidArgumentError(fmt::format(
        "tree = {} has more than {} levels or {} nodes: give the children of a place at each "
        "depth, such as --tree=2,2,2,2",
        flags.Text("tree"), widths.size(), kNodesMax));
  }
  const int32_t num_rounds = (flags.Number("rounds") + kBatch - 1) / kBatch;
  // Each row has a template of its own.
  const int64_t num_rows = kBatch * (std::ssize(ParentsOf(CaseOf(kWays[1], widths))) + 1);
  RowSpec spec = {.vocab_size = flags.Number("vocab"),
                  .num_rows = num_rows,
                  .num_templates = static_cast<size_t>(num_rows)};
  SPECD_TAKE(const RowPool target, RowPool::Make(spec));
  spec.drafter = true;
  for (const double noise : flags.Reals("noise")) {
    spec.noise = noise;
    SPECD_TAKE(const RowPool draft, RowPool::Make(spec));
    for (const double sharpness : flags.Reals("sharp")) {
      for (const double temperature : flags.Reals("temperature")) {
        out->Caption(fmt::format("noise {}, sharpness {}, temperature {}; trees {}", noise,
                                 sharpness, temperature, flags.Text("tree")));
        for (const Way* way : Chosen(flags, kWays)) {
          VerifyCase verify_case = CaseOf(*way, widths);
          verify_case.noise = noise;
          verify_case.sharpness = sharpness;
          verify_case.temperature = temperature;
          SPECD_TAKE(const auto backend, MakeBackend("cpu"));
          SPECD_TAKE(const Accepted accepted, MeasureAccepted(verify_case, kBatch, num_rounds,
                                                              target, draft, backend.get()));
          out->Print(Line()
                         .Name("case", way->name, 16)
                         .Name("method", MethodName(way->method), 11)
                         .Number("tokens", 7, 3, accepted.tokens)
                         .Number("error", 5, 3, accepted.error)
                         .Number("rows read", 9, 1, accepted.rows_read)
                         .Count("rows_given", accepted.rows_given, 10)
                         .Count("checked", accepted.num_checked, 7)
                         .Json("noise", noise)
                         .Json("sharpness", sharpness)
                         .Json("temperature", temperature));
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Accepted> MeasureAccepted(const VerifyCase& verify_case, int32_t batch,
                                         int32_t num_rounds, const RowPool& target,
                                         const RowPool& draft, Backend* backend) {
  RoundShape shape{.batch = batch, .draft = static_cast<int32_t>(ParentsOf(verify_case).size())};
  SPECD_TRY(backend->Prepare({.vocab_size = target.spec().vocab_size,
                              .max_batch = batch,
                              .max_draft = shape.draft,
                              .threads = ReadMachine().usable_cpus}));
  Accepted result;
  double sum = 0;
  double sum_of_squares = 0;
  for (int32_t i = 0; i < num_rounds; ++i, shape.first_seed += static_cast<uint64_t>(batch)) {
    SPECD_TAKE(const auto set, RoundSet::Make(verify_case, shape, target, &draft, backend));
    RoundAnswer answer = set->MakeAnswer();
    SPECD_TRY(backend->Run(set->Batch(0, &answer)));
    if (i == 0) {
      SPECD_TAKE(result.num_checked, CheckRound(*set, 0, answer));
      result.rows_given = NumRowsGiven(*set);
    }
    for (const TaskOutcome& outcome : answer.outcomes) {
      sum += outcome.num_tokens;
      sum_of_squares += outcome.num_tokens * outcome.num_tokens;
    }
    result.rows_read += static_cast<double>(NeededRows(*set, 0, answer).size());
  }
  const double count = double{1} * batch * num_rounds;
  result.tokens = sum / count;
  result.error =
      std::sqrt(std::max(sum_of_squares / count - result.tokens * result.tokens, 0.0) / count);
  result.rows_read /= count;
  return result;
}

Suite AcceptCommand() {
  return {
      .name = "accept",
      .summary = "tokens of a round by each method and kind of children, over drawn drafts",
      .examples = {"--quick", "--tree=4,2,1,1 --noise=1 --temperature=0.6",
                   "--case=chain_block,tree_mixed --sharp=0.6"},
      .cases = WordsOf(kWays),
      .flags = {Flag::Wholes("tree", "children of a place at each depth; the chain is as deep",
                             {1, kNodesMax}, "2,2,2,2"),
                Flag::Reals("noise", "deviations of the drafter's logits from the target's",
                            {0.01, 100}, "0.5,1", "0.5"),
                Flag::Reals("sharp", "factors of the drafter's logits: below 1 too flat",
                            {0.01, 100}, "1,0.6", "1"),
                Flag::Reals("temperature", "temperatures of both", {0.01, 100}, "0.3,0.6,1", "1"),
                Flag::Whole("vocab", "vocabulary size", {64, 8192}, "1024"),
                Flag::Whole("rounds", "rounds of one sequence for each line", {1, 10'000'000},
                            "4000", "1000")},
      .run = &RunAccept};
}

}  // namespace specd::bench
