#include "tools/bench/chain_rounds.h"

#include <fmt/format.h>

#include "kernels/core/elements.h"
#include "kernels/core/philox.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// A drawn child of a place, or kRoot. Drawn children come first.
int32_t DrawnChild(const Draft& draft, int32_t place) {
  const int32_t child = NextChild(draft, place, kRoot);
  return child == kRoot || IsDrawn(draft, child) ? child : kRoot;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChainRounds>> ChainRounds::Make(const RoundSet& set,
                                                               std::span<const RoundAnswer> answers,
                                                               Backend* backend) {
  std::unique_ptr<ChainRounds> rounds(new ChainRounds(set));
  const RoundShape& shape = set.shape();
  const auto num_tasks = static_cast<size_t>(shape.num_rounds) * static_cast<size_t>(shape.batch);
  rounds->chains_.reserve(num_tasks);
  for (int32_t round = 0; round < shape.num_rounds; ++round) {
    const RoundAnswer& answer = answers[static_cast<size_t>(round)];
    for (int32_t s = 0; s < shape.batch; ++s) {
      const auto first = static_cast<ptrdiff_t>(s) * shape.rows_of_sequence();
      const int32_t accepted = answer.outcomes[static_cast<size_t>(s)].num_accepted;
      rounds->Add(set.task(round, s), {answer.path.begin() + first, static_cast<size_t>(accepted)});
    }
  }
  for (int32_t round = 0; round < shape.num_rounds; ++round) {
    SPECD_TRY(backend->Run(rounds->Batch(round)));
    for (int32_t s = 0; s < shape.batch; ++s) {
      const auto index = static_cast<size_t>(s);
      const int32_t found = rounds->answer_.outcomes[index].num_accepted;
      const int32_t wanted = answers[static_cast<size_t>(round)].outcomes[index].num_accepted;
      if (found == wanted) continue;
      return absl::InternalError(
          fmt::format("the chain of round {}, sequence {} of {} ends after {} tokens, not {}",
                      round, s, set.verify_case().name, found, wanted));
    }
  }
  return rounds;
}

RoundBatch ChainRounds::Batch(int32_t round) {
  RoundBatch batch = set_.Batch(round, &answer_);
  batch.decisions = nullptr;
  batch.tasks = tasks_.data() + static_cast<ptrdiff_t>(round) * set_.shape().batch;
  return batch;
}

TokenId ChainRounds::LikeliestToFall(const Task& tree, uint32_t target_row,
                                     uint32_t draft_row) const {
  const RowView p = RowAt(set_.target(), target_row);
  const RowView q = RowAt(set_.draft(), draft_row);
  TokenId best = 0;
  float most = -kInfinity;
  for (TokenId id = 0; id < p.vocab_size; ++id) {
    const float lead =
        LoadElement(q, id) * tree.draft_scale - LoadElement(p, id) * tree.target_scale;
    if (lead <= most) continue;
    most = lead;
    best = id;
  }
  return best;
}

void ChainRounds::Add(const Task& tree, std::span<const int32_t> path) {
  const Draft& draft = tree.draft;
  Chain& chain = chains_.emplace_back();
  int32_t place = 0;
  const auto add = [&](TokenId token, int32_t child, uint64_t coin) {
    const auto i = static_cast<uint32_t>(chain.tokens.size());
    chain.tokens.push_back(token);
    // A tree reads the draft row of a place for its drawn child, whichever child is accepted then.
    chain.kinds.push_back(child == kRoot ? DraftKind::kOneHot : DraftKind::kSampled);
    chain.draft_rows.push_back(child == kRoot ? 0 : draft.draft_rows[child]);
    chain.target_rows.push_back(draft.target_rows[place]);
    chain.coins.push_back({.key = {.position = tree.first_position + i,
                                   .round_base = tree.round_base,
                                   .node = i + 1,
                                   .purpose = Purpose::kAccept},
                           .coin = coin});
  };
  for (const int32_t node : path) {
    add(draft.tokens[node], DrawnChild(draft, place), 0);
    place = PlaceAfter(node);
  }
  if (const int32_t child = DrawnChild(draft, place); child != kRoot) {
    const TokenId token = LikeliestToFall(tree, draft.target_rows[place], draft.draft_rows[child]);
    add(token, child, (uint64_t{1} << kCoinBits) - 1);
  }
  // A rejected token has a row after it, which is not read.
  chain.target_rows.push_back(draft.target_rows[place]);
  Task& task = tasks_.emplace_back(tree);
  task.method = VerifyMethod::kToken;
  task.draft = {.num_nodes = static_cast<int32_t>(chain.tokens.size()),
                .tokens = chain.tokens.data(),
                .kinds = chain.kinds.data(),
                .target_rows = chain.target_rows.data(),
                .draft_rows = chain.draft_rows.data()};
  task.coins = chain.coins.data();
  task.num_coins = static_cast<int32_t>(chain.coins.size());
}

}  // namespace specd::bench
