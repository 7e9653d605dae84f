#include "tools/replay/task_rules.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "speculative/params/params.h"
#include "tools/replay/draft_tree.h"

namespace specd::replay {
namespace {

constexpr int32_t kScoresMax = 64;  // num_top, and ids of `chosen`
constexpr uint64_t kCoinEnd = uint64_t{1} << kCoinBits;
constexpr size_t kCoinsMax = 4096;
constexpr uint32_t kPositionMax = uint32_t{1} << 31;

absl::Status Wrong(std::string_view member, std::string_view text) {
  return absl::InvalidArgumentError(fmt::format("\"{}\" {}", member, text));
}

class TaskRules {
 public:
  TaskRules(const TraceRound& round, const TraceTask& task, int32_t vocab_size)
      : round_(round), task_(task), vocab_size_(vocab_size) {}

  absl::Status Check() const {
    for (const auto rule : {&TaskRules::Draft, &TaskRules::Numbers, &TaskRules::Lists,
                            &TaskRules::Places, &TaskRules::Answer, &TaskRules::Tensors}) {
      if (absl::Status status = (this->*rule)(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  size_t NumNodes() const { return task_.tokens.size(); }
  bool IsId(TokenId id) const { return id >= 0 && id < vocab_size_; }

  absl::Status Draft() const {
    const size_t nodes = NumNodes();
    if (nodes > size_t{kNodesMax}) return Wrong("tokens", "is longer than 64");
    const auto has = [](size_t size, size_t wanted) { return size == 0 || size == wanted; };
    if (!has(task_.parents.size(), nodes)) return Wrong("parents", "has not one of each token");
    if (!has(task_.kinds.size(), nodes)) return Wrong("kinds", "has not one of each token");
    if (!has(task_.target_rows.size(), nodes + 1)) {
      return Wrong("target_rows", "has not one of each place");
    }
    if (!has(task_.target_argmax.size(), nodes + 1)) {
      return Wrong("target_argmax", "has not one of each place");
    }
    if (!has(task_.draft_rows.size(), nodes))
      return Wrong("draft_rows", "has not one of each token");
    if (!has(task_.draft_weights.size(), nodes) ||
        task_.draft_weights.size() != task_.draft_masses.size()) {
      return Wrong("draft_weights", "and \"draft_masses\" have not one of each token");
    }
    if (task_.method == VerifyMethod::kAuto) return Wrong("method", "is auto, which is resolved");
    return DraftTree::IsTree(task_) ? Tree() : absl::OkStatus();
  }

  absl::Status Tree() const {
    for (size_t i = 0; i < task_.parents.size(); ++i) {
      if (task_.parents[i] < kRoot || task_.parents[i] >= static_cast<int32_t>(i)) {
        return Wrong("parents", "has one that is neither -1 nor an earlier token");
      }
    }
    const DraftTree tree(task_, vocab_size_);
    const bool verifies_chains =
        task_.method == VerifyMethod::kToken || task_.method == VerifyMethod::kBlock;
    if (verifies_chains) return Wrong("parents", "is a tree, which the method does not verify");
    if (absl::Status status = Siblings(tree); !status.ok()) return status;
    if (task_.outcome.num_accepted < 0 || task_.outcome.num_accepted > tree.num_nodes() ||
        tree.path().size() != static_cast<size_t>(task_.outcome.num_accepted)) {
      return Wrong("path", "has not one of each accepted token");
    }
    if (task_.outcome.num_tokens > task_.outcome.num_accepted + 1) {
      return Wrong("num_tokens", "is more than the accepted tokens and a final one");
    }
    int32_t parent = kRoot;
    for (const int32_t node : tree.path()) {
      const bool is_node = node >= 0 && node < tree.num_nodes();
      if (!is_node || tree.ParentOf(node) != parent) return Wrong("path", "is none of the tree");
      if (!IsId(tree.TokenOf(node))) return Wrong("path", "has an id outside the vocabulary");
      parent = node;
    }
    return absl::OkStatus();
  }

  // Drawn siblings were drawn from one row, in one way.
  absl::Status Siblings(const DraftTree& tree) const {
    const auto is_drawn = [&](int32_t node) { return tree.KindOf(node) != DraftKind::kOneHot; };
    std::vector<int32_t> first(NumNodes() + 1, kRoot);  // the drawn one of each place
    for (int32_t node = 0; node < tree.num_nodes(); ++node) {
      if (!is_drawn(node)) continue;
      int32_t& sibling = first[tree.PlaceOf(node)];
      if (sibling == kRoot) sibling = node;
      if (tree.KindOf(node) != tree.KindOf(sibling)) {
        return Wrong("kinds", "has drawn siblings of two kinds");
      }
      if (!task_.draft_rows.empty() && task_.draft_rows[node] != task_.draft_rows[sibling]) {
        return Wrong("draft_rows", "has two rows of siblings");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Numbers() const {
    const auto is_scale = [](float scale) { return std::isfinite(scale) && scale >= 0; };
    if (!is_scale(task_.target_scale))
      return Wrong("target_scale", "is no finite number from 0 on");
    if (!is_scale(task_.draft_scale)) return Wrong("draft_scale", "is no finite number from 0 on");
    for (const Filters& filters : {task_.target_filters, task_.draft_filters}) {
      if (!(filters.min_p <= 0)) return Wrong("min_p", "is no logarithm of a probability");
      if (filters.top_k < 0) return Wrong("top_k", "is negative");
      if (filters.top_p < 1 || filters.top_p > kTopPOff) return Wrong("top_p", "is outside (0, 1]");
    }
    const LossyRule& lossy = task_.lossy;
    for (const double number : {lossy.epsilon, lossy.delta, lossy.single, lossy.acc}) {
      if (!(number >= 0)) return Wrong("lossy", "has a negative number, or one that is NaN");
    }
    if (lossy.num_best < 0) return Wrong("lossy", "has a negative num_best");
    if (task_.rates.size() > kSyntheticRatesMax) return Wrong("rates", "is longer than 64");
    const Penalties& penalties = task_.penalties;
    if (!(penalties.repetition > 0) || !std::isfinite(penalties.repetition) ||
        !std::isfinite(penalties.frequency) || !std::isfinite(penalties.presence)) {
      return Wrong("penalties", "has a number that is not finite, or a repetition of 0 or less");
    }
    if (task_.first_position >= kPositionMax || task_.round_base >= kPositionMax) {
      return Wrong("first_position", "or \"round_base\" is 2^31 or more");
    }
    return absl::OkStatus();
  }

  absl::Status Lists() const {
    if (task_.scores.enabled && !task_.target_argmax.empty()) {
      return Wrong("scores", "are asked for, but \"target_argmax\" has no rows to score");
    }
    if (task_.scores.num_top < 0 || task_.scores.num_top > kScoresMax) {
      return Wrong("num_top", "is outside 0 .. 64");
    }
    if (task_.chosen.size() > size_t{kScoresMax}) return Wrong("chosen", "is longer than 64");
    for (const TokenId id : task_.chosen) {
      if (!IsId(id)) return Wrong("chosen", "has an id outside the vocabulary");
    }
    if (task_.coins.size() > kCoinsMax) return Wrong("coins", "is longer than 4096");
    for (const InjectedCoin& coin : task_.coins) {
      if (coin.coin >= kCoinEnd) return Wrong("coins", "has a coin of 2^53 or more");
    }
    const auto mask_words = static_cast<size_t>(vocab_size_ + 31) / 32;
    if (!task_.allowed.empty() && task_.allowed.size() != mask_words) {
      return Wrong("allowed", "has not a bit of each id");
    }
    return Edits("edits", task_.edits);
  }

  absl::Status Edits(std::string_view member, const std::vector<TokenEdit>& edits) const {
    for (size_t i = 0; i < edits.size(); ++i) {
      if (!IsId(edits[i].id)) return Wrong(member, "has an id outside the vocabulary");
      if (i > 0 && edits[i].id <= edits[i - 1].id) return Wrong(member, "is not sorted by id");
      if (std::isnan(edits[i].bias)) return Wrong(member, "has a bias that is no number");
    }
    return absl::OkStatus();
  }

  absl::Status Places() const {
    if (!task_.places.empty() && task_.places.size() != NumNodes() + 1) {
      return Wrong("places", "has not one of each place");
    }
    for (const TracePlace& place : task_.places) {
      if (place.mask_row < -1) return Wrong("mask_row", "is below -1");
      if (place.grammar_mask < -1) return Wrong("grammar_mask", "is below -1");
      if (place.forced != kNoToken && !IsId(place.forced)) {
        return Wrong("forced", "is an id outside the vocabulary");
      }
      if (absl::Status status = Edits("overrides", place.overrides); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Answer() const {
    const auto places = static_cast<int32_t>(NumNodes()) + 1;
    const TaskOutcome& outcome = task_.outcome;
    if (outcome.num_tokens < 0 || outcome.num_tokens > places) {
      return Wrong("num_tokens", "is outside 0 .. the number of places");
    }
    if (outcome.num_accepted < 0 || outcome.num_accepted > outcome.num_tokens) {
      return Wrong("num_accepted", "is outside 0 .. num_tokens");
    }
    if (task_.confirmed.size() != static_cast<size_t>(outcome.num_tokens)) {
      return Wrong("confirmed", "has not one of each token of the outcome");
    }
    if (!task_.decisions.empty() && task_.decisions.size() != static_cast<size_t>(places)) {
      return Wrong("decisions", "has not one of each place");
    }
    if (task_.answer >= round_.answers.size()) return Wrong("answer", "is no answer of the round");
    return absl::OkStatus();
  }

  absl::Status Tensors() const {
    for (const TraceTensorInfo* info : {&round_.target, &round_.draft}) {
      const ElementRules& rules = info->rules;
      if (!std::isfinite(rules.scale) || !std::isfinite(rules.cap) || rules.cap < 0) {
        return Wrong("rules", "has a scale or a cap that is not finite, or a cap below 0");
      }
      if (rules.kind != RowKind::kLogits && info->dtype != DType::kFloat32) {
        return Wrong("rules", "has probabilities that are not fp32");
      }
    }
    return absl::OkStatus();
  }

  const TraceRound& round_;
  const TraceTask& task_;
  const int32_t vocab_size_;
};

}  // namespace

absl::Status CheckTask(const TraceRound& round, const TraceTask& task, int32_t vocab_size) {
  return TaskRules(round, task, vocab_size).Check();
}

}  // namespace specd::replay
