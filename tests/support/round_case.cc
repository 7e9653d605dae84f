#include "tests/support/round_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace specd {

namespace {

constexpr int64_t kNumRows = 12;

RowMatrix::Options MatrixOptions(const RoundCase::Options& options, int64_t offset) {
  return {.dtype = options.dtype,
          .vocab_size = options.vocab_size,
          .num_rows = kNumRows,
          .padding = 5,
          .offset = offset};
}

}  // namespace

RoundCase::RoundCase(const Options& options)
    : options_(options), target_(MatrixOptions(options, 1)), draft_(MatrixOptions(options, 0)) {
  std::mt19937_64 random(options.seed);
  const auto vocab_size = static_cast<uint64_t>(options.vocab_size);
  // All rows like the same few ids, so that drafts stand a chance.
  std::vector<TokenId> likely;
  for (int i = 0; i < 3; ++i) likely.push_back(static_cast<TokenId>(random() % vocab_size));
  for (int64_t row = 0; row < kNumRows; ++row) {
    std::vector<double> logits = RandomLogits(random, options.vocab_size);
    for (const TokenId id : likely) logits[id] += 9 + static_cast<double>(random() % 3);
    draft_.Set(row, logits);
    for (const TokenId id : likely) logits[id] += static_cast<double>(random() % 5) / 2;
    if (row == 9) logits[random() % vocab_size] = NAN;
    if (row == 10) logits[random() % vocab_size] = INFINITY;
    if (row == 11) std::fill(logits.begin(), logits.end(), -INFINITY);
    target_.Set(row, logits);
  }
  sequences_.resize(options.batch);
  for (Sequence& sequence : sequences_) {
    const auto num_drafts = static_cast<int32_t>(random() % (options.max_draft + 1));
    // Bad rows come last in a chain more often than not; most sequences see none.
    const auto row = [&] { return static_cast<uint32_t>(random() % (random() % 8 == 0 ? 12 : 9)); };
    for (int32_t i = 0; i < num_drafts; ++i) {
      const uint64_t chance = random() % 20;
      sequence.draft.push_back(chance == 0   ? -1
                               : chance == 1 ? options.vocab_size + 3
                                             : likely[random() % likely.size()]);
      sequence.kinds.push_back(random() % 2 == 0 ? DraftKind::kSampled : DraftKind::kOneHot);
      sequence.target_rows.push_back(row());
      sequence.draft_rows.push_back(static_cast<uint32_t>(random() % kNumRows));
    }
    sequence.target_rows.push_back(row());
    ChainTask& task = sequence.task;
    task.method = static_cast<VerifyMethod>(1 + random() % 3);
    task.target_scale = 0.5f + 0.25f * static_cast<float>(random() % 8);
    task.draft_scale = 1.0f;
    task.seed = random();
    task.first_position = static_cast<uint32_t>(random() % 1000);
    task.round_base = task.first_position;
    task.chain = {num_drafts, sequence.draft.data(), sequence.kinds.data(),
                  sequence.target_rows.data(), sequence.draft_rows.data()};
  }
}

RoundBatch RoundCase::All() {
  std::vector<int32_t> places(sequences_.size());
  std::iota(places.begin(), places.end(), 0);
  return Some(places);
}

RoundBatch RoundCase::Some(const std::vector<int32_t>& places) {
  tasks_.clear();
  for (const int32_t place : places) tasks_.push_back(sequences_[place].task);
  const int32_t stride = options_.max_draft + 1;
  outcomes_.assign(places.size(), ChainOutcome{});
  tokens_.assign(places.size() * stride, -7);
  return {target_.view(),   draft_.view(),  tasks_.data(), static_cast<int32_t>(tasks_.size()),
          outcomes_.data(), tokens_.data(), stride};
}

std::vector<TokenId> RoundCase::tokens(int32_t i) const {
  const int64_t first = int64_t{i} * (options_.max_draft + 1);
  return {tokens_.begin() + first, tokens_.begin() + first + outcomes_[i].num_tokens};
}

}  // namespace specd
