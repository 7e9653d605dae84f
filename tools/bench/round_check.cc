#include "tools/bench/round_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// Elements that a check computes again: about half a second of the reference team.
constexpr int64_t kCheckedElementsMax = 8'000'000;

// The nodes whose places were read. `traversal` goes down to the children of a place in turn, as
// far as the one that the place's record names, the other methods only along the path. The siblings
// of RoundSet are different ids.
NodeSet PlacesRead(const RoundSet& set, int32_t round, int32_t sequence,
                   const RoundAnswer& answer) {
  const auto first = static_cast<size_t>(sequence * set.shape().rows_of_sequence());
  const Draft& draft = set.task(round, sequence).draft;
  NodeSet nodes = 0;  // before the places that are read; the root's place always is
  for (int32_t i = 0; i < answer.outcomes[static_cast<size_t>(sequence)].num_accepted; ++i) {
    nodes |= NodeSet{1} << answer.path[first + static_cast<size_t>(i)];
  }
  for (int32_t place = 0;
       set.verify_case().method == VerifyMethod::kTraversal && place <= draft.num_nodes; ++place) {
    if (place > 0 && !Holds(nodes, NodeBefore(place))) continue;
    const PlaceDecision& record = answer.decisions[first + static_cast<size_t>(place)];
    if (record.draft == kNoToken) continue;
    for (int32_t child = NextChild(draft, place, kRoot); child != kRoot;
         child = NextChild(draft, place, child)) {
      nodes |= NodeSet{1} << child;
      if (record.bound > 0 && draft.tokens[child] == record.draft) break;
    }
  }
  return nodes;
}

auto FactsOf(const TaskOutcome& outcome) {
  return std::tuple(outcome.status, outcome.num_accepted, outcome.num_tokens,
                    outcome.empty_residuals, outcome.invalid_drafts, outcome.point_masses,
                    outcome.fault);
}

std::string TextOf(const TaskOutcome& outcome, std::span<const TokenId> tokens) {
  return fmt::format("status {}, fault {}, {} accepted, tokens {}",
                     static_cast<int>(outcome.status), static_cast<int>(outcome.fault),
                     outcome.num_accepted, fmt::join(tokens, ", "));
}

}  // namespace

absl::StatusOr<int64_t> CheckRound(const RoundSet& set, int32_t round, const RoundAnswer& answer) {
  const RoundShape& shape = set.shape();
  const int64_t elements_of_sequence = int64_t{shape.rows_of_sequence()} * set.target().vocab_size *
                                       (set.draft().num_rows > 0 ? 2 : 1);
  const auto count = static_cast<int32_t>(
      std::clamp<int64_t>(kCheckedElementsMax / elements_of_sequence, 1, shape.batch));
  CpuBackend reference(CpuTarget::kBaseline);
  SPECD_TRY(reference.Prepare({.vocab_size = set.target().vocab_size,
                               .max_batch = shape.batch,
                               .max_draft = shape.draft,
                               .threads = ReadMachine().usable_cpus}));
  RoundAnswer expected = set.MakeAnswer();
  RoundBatch batch = set.Batch(round, &expected);
  batch.num_tasks = count;
  SPECD_TRY(reference.Run(batch));
  expected.outcomes.resize(static_cast<size_t>(count));
  const std::string difference = DifferenceOf(set, round, answer, expected);
  if (!difference.empty()) return absl::InternalError(difference);
  int64_t num_tokens = 0;
  for (const TaskOutcome& outcome : expected.outcomes) {
    if (outcome.status != OutcomeStatus::kOk) {
      return absl::InternalError("the case has rows that are no distributions");
    }
    num_tokens += outcome.num_tokens;
  }
  return num_tokens;
}

std::vector<NeededRow> NeededRows(const RoundSet& set, int32_t round, const RoundAnswer& answer) {
  const VerifyCase& of = set.verify_case();
  std::vector<NeededRow> rows;
  const bool uses_q = set.draft().num_rows > 0;
  for (int32_t s = 0; s < set.shape().batch; ++s) {
    const Draft& draft = set.task(round, s).draft;
    if (draft.parents != nullptr) {
      const NodeSet nodes = PlacesRead(set, round, s, answer);
      for (int32_t place = 0; place <= draft.num_nodes; ++place) {
        if (place > 0 && !Holds(nodes, NodeBefore(place))) continue;
        rows.push_back({.is_draft = false, .row = draft.target_rows[place]});
        const int32_t child = NextChild(draft, place, kRoot);
        if (uses_q && child != kRoot && IsDrawn(draft, child)) {
          rows.push_back({.is_draft = true, .row = draft.draft_rows[child]});
        }
      }
      continue;
    }
    const int32_t num_accepted = answer.outcomes[static_cast<size_t>(s)].num_accepted;
    // A block's acceptance depends on all of its places, a token's only on those before it.
    const int32_t last_pair = of.method == VerifyMethod::kBlock
                                  ? draft.num_nodes - 1
                                  : std::min(num_accepted, draft.num_nodes - 1);
    for (int32_t i = 0; i <= std::max(num_accepted, uses_q ? last_pair : 0); ++i) {
      rows.push_back({.is_draft = false, .row = draft.target_rows[i]});
      // With a side channel a draft row is read only if its residual is drawn from.
      const bool has_pair = i <= last_pair && (!of.side_channel || i == num_accepted);
      if (uses_q && has_pair) rows.push_back({.is_draft = true, .row = draft.draft_rows[i]});
    }
  }
  return rows;
}

std::string DifferenceOf(const RoundSet& set, int32_t round, const RoundAnswer& answer,
                         const RoundAnswer& expected) {
  const auto num_scores = static_cast<size_t>(set.scores_stride());
  for (size_t s = 0; s < expected.outcomes.size(); ++s) {
    const TaskOutcome& outcome = answer.outcomes[s];
    const TaskOutcome& wanted = expected.outcomes[s];
    const size_t first = s * static_cast<size_t>(set.shape().rows_of_sequence());
    const auto count = static_cast<size_t>(wanted.num_tokens);
    const std::span got(&answer.tokens[first], count);
    const std::span right(&expected.tokens[first], count);
    if (FactsOf(outcome) != FactsOf(wanted) || !std::ranges::equal(got, right)) {
      return fmt::format("round {}, sequence {}: {} instead of {}", round, s, TextOf(outcome, got),
                         TextOf(wanted, right));
    }
    // Nodes and scores have no padding, so their bytes are their bits.
    const auto is_same = [first](const auto& a, const auto& b, size_t stride, size_t num) {
      return stride == 0 || a.empty() ||
             std::memcmp(&a[first * stride], &b[first * stride], num * stride * sizeof(a[0])) == 0;
    };
    if (!is_same(answer.path, expected.path, 1, static_cast<size_t>(wanted.num_accepted))) {
      return fmt::format("round {}, sequence {}: other nodes", round, s);
    }
    if (!is_same(answer.scores, expected.scores, num_scores, count)) {
      return fmt::format("round {}, sequence {}: other scores", round, s);
    }
  }
  return "";
}

}  // namespace specd::bench
