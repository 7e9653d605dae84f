// DraftedTexts generates texts for tests of their law: SampleDraft draws chains and trees with the
// keys of the contract, verification judges them, and rounds follow one another until a text is
// long enough.
//
// The models are of first order: the row of a place depends on the token before it, and row V is
// the beginning. One thread.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/bodies/packed_steps.h"
#include "tests/support/rows.h"

namespace specd {

struct DraftedTextsOptions {
  VerifyMethod method = VerifyMethod::kToken;
  DraftSampling sampling = DraftSampling::kWithReplacement;
  std::vector<int32_t> widths = {1, 1, 1};  // the children of a place, by its depth
  size_t length = 3;
  double temperature = 1;
  double draft_temperature = 1;
  Filters target_filters = {};
  Filters draft_filters = {};
  bool one_hot = false;  // whatever was drawn is verified as a one-hot draft
  bool side_channel = false;
  // A mistake: siblings that were drawn with replacement stand in the order of their first draws,
  // with equal ids together.
  bool sorts = false;
};

class DraftedTexts {
 public:
  static constexpr int32_t kBatch = 256;
  using Text = std::vector<TokenId>;

  // The rows outlive the texts.
  DraftedTexts(const RowMatrix& target, const RowMatrix& draft, DraftedTextsOptions options)
      : options_(std::move(options)), target_(target.view()), draft_(draft.view()) {
    const std::vector<int32_t>& widths = options_.widths;
    width_ = *std::max_element(widths.begin(), widths.end());
    int32_t level = 1;
    for (const int32_t width : widths) max_nodes_ += level *= width;
    REQUIRE(backend_->Prepare({target_.vocab_size, kBatch * level, max_nodes_}).ok());
  }

  // The next texts, each with a seed of its own.
  std::vector<Text> NextBatch() {
    std::vector<Sequence> sequences(kBatch);
    for (Sequence& sequence : sequences) sequence.seed = next_seed_++;
    while (Round(&sequences)) {
    }
    std::vector<Text> texts;
    for (Sequence& sequence : sequences) texts.push_back(std::move(sequence.text));
    return texts;
  }
  double accepted_per_round() const { return double(accepted_) / double(rounds_); }

 private:
  // A sequence and the draft of its round.
  struct Sequence {
    uint64_t seed = 0;
    Text text;
    Text tokens;
    std::vector<int32_t> parents;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> target_rows;
    std::vector<uint32_t> draft_rows;
    std::vector<float> weights;  // the side channel
    std::vector<double> masses;
  };

  uint32_t RowAfter(TokenId token) const {
    return static_cast<uint32_t>(token == kNoToken ? target_.vocab_size : token);
  }

  // One round of all that are not done; false when all are.
  bool Round(std::vector<Sequence>* sequences) {
    active_.clear();
    for (Sequence& sequence : *sequences) {
      if (sequence.text.size() >= options_.length) continue;
      const TokenId last = sequence.text.empty() ? kNoToken : sequence.text.back();
      Sequence fresh;
      fresh.seed = sequence.seed;
      fresh.text = sequence.text;
      fresh.target_rows.reserve(static_cast<size_t>(max_nodes_) + 1);  // tasks point into it
      fresh.target_rows.push_back(RowAfter(last));
      sequence = std::move(fresh);
      active_.push_back(&sequence);
    }
    if (active_.empty()) return false;
    std::vector<int32_t> begins(active_.size(), kRoot);
    for (uint32_t depth = 0; depth < options_.widths.size(); ++depth) DrawLevel(depth, &begins);
    Verify();
    return true;
  }

  Task TaskOf(const Sequence& sequence) const {
    Task task;
    task.seed = sequence.seed;
    task.first_position = task.round_base = static_cast<uint32_t>(sequence.text.size());
    return task;
  }

  // Children for the nodes of the level before, which begin at `begins`: the root at first. With
  // replacement each child has a request of its own, because an answer counts equal ids and does
  // not tell their order.
  void DrawLevel(uint32_t depth, std::vector<int32_t>* begins) {
    const bool one_by_one = options_.sampling == DraftSampling::kWithReplacement && !options_.sorts;
    const int32_t width = options_.widths[depth];
    std::vector<std::pair<Sequence*, int32_t>> asked;
    tasks_.clear();
    for (size_t n = 0; n < active_.size(); ++n) {
      Sequence* const sequence = active_[n];
      const auto end = static_cast<int32_t>(sequence->tokens.size());
      for (int32_t parent = (*begins)[n]; parent < end; ++parent) {
        for (int32_t child = 0; child < (one_by_one ? width : 1); ++child) {
          Task task = TaskOf(*sequence);
          task.kind = TaskKind::kSampleDraft;
          task.draft.target_rows = &sequence->target_rows[size_t(PlaceAfter(parent))];
          task.first_position += depth;
          task.first_node = uint32_t(1 + (parent + 1) * width + child);
          task.num_children = one_by_one ? 1 : width;
          task.sampling = options_.sampling;
          task.target_scale = ScaleOf(options_.draft_temperature);
          task.target_filters = options_.draft_filters;
          tasks_.push_back(task);
          asked.emplace_back(sequence, parent);
        }
        if (parent == kRoot) break;
      }
      (*begins)[n] = end;
    }
    Run(draft_, draft_);
    for (size_t n = 0; n < asked.size(); ++n) {
      for (int32_t i = 0; i < outcomes_[n].num_tokens; ++i) {
        const DraftSample& sample = samples_[n * static_cast<size_t>(width_) + size_t(i)];
        for (uint32_t copy = 0; copy < sample.count; ++copy) {
          AddNode(asked[n].first, asked[n].second, sample);
        }
      }
    }
  }

  void AddNode(Sequence* sequence, int32_t parent, const DraftSample& sample) const {
    sequence->tokens.push_back(sample.id);
    sequence->parents.push_back(parent);
    sequence->kinds.push_back(options_.one_hot ? DraftKind::kOneHot : sample.kind);
    sequence->weights.push_back(sample.weight);
    sequence->masses.push_back(sample.mass);
    sequence->draft_rows.push_back(sequence->target_rows[size_t(PlaceAfter(parent))]);
    sequence->target_rows.push_back(RowAfter(sample.id));
  }

  void Run(const TensorView& target, const TensorView& draft) {
    RoundBatch batch;
    batch.target = target;
    batch.draft = draft;
    batch.tasks = tasks_.data();
    batch.num_tasks = static_cast<int32_t>(tasks_.size());
    outcomes_.assign(tasks_.size(), {});
    tokens_.resize(tasks_.size() * static_cast<size_t>(max_nodes_ + 1));
    samples_.resize(tasks_.size() * static_cast<size_t>(width_));
    batch.outcomes = outcomes_.data();
    batch.tokens = tokens_.data();
    batch.tokens_stride = max_nodes_ + 1;
    batch.samples = samples_.data();
    batch.samples_stride = width_;
    REQUIRE(backend_->Run(batch).ok());
  }

  void Verify() {
    const bool is_chain = width_ == 1;
    tasks_.clear();
    for (const Sequence* sequence : active_) {
      Task task = TaskOf(*sequence);
      task.method = options_.method;
      task.draft = {.num_nodes = static_cast<int32_t>(sequence->tokens.size()),
                    .tokens = sequence->tokens.data(),
                    .parents = is_chain ? nullptr : sequence->parents.data(),
                    .kinds = sequence->kinds.data(),
                    .target_rows = sequence->target_rows.data(),
                    .draft_rows = sequence->draft_rows.data()};
      if (options_.side_channel) {
        task.draft.draft_weights = sequence->weights.data();
        task.draft.draft_masses = sequence->masses.data();
      }
      task.target_scale = ScaleOf(options_.temperature);
      task.draft_scale = ScaleOf(options_.draft_temperature);
      task.target_filters = options_.target_filters;
      task.draft_filters = options_.draft_filters;
      tasks_.push_back(task);
    }
    Run(target_, draft_);
    for (size_t n = 0; n < active_.size(); ++n) {
      if (outcomes_[n].status != OutcomeStatus::kOk) FAIL("a row is bad");
      const TokenId* const tokens = tokens_.data() + n * static_cast<size_t>(max_nodes_ + 1);
      active_[n]->text.insert(active_[n]->text.end(), tokens, tokens + outcomes_[n].num_tokens);
      accepted_ += outcomes_[n].num_accepted;
      ++rounds_;
    }
  }

  const DraftedTextsOptions options_;
  const TensorView target_;
  const TensorView draft_;
  const std::unique_ptr<Backend> backend_ = *MakeBackend("cpu");
  int32_t width_ = 0;
  int32_t max_nodes_ = 0;
  std::vector<Sequence*> active_;
  std::vector<Task> tasks_;
  std::vector<TaskOutcome> outcomes_;
  std::vector<TokenId> tokens_;
  std::vector<DraftSample> samples_;
  uint64_t next_seed_ = 0;
  int64_t accepted_ = 0;
  int64_t rounds_ = 0;
};

}  // namespace specd
