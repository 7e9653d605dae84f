#include "tools/toy_engine/ngram_model.h"

#include <algorithm>
#include <cmath>

namespace specd::toy {
namespace {

// The number that means no context: nodes are numbered from 0, and the root is never a child.
constexpr uint32_t kNoNode = 0;

// The share of the uniform distribution in the shortest context: about the share of a token seen
// once in ten thousand.
constexpr double kUniformShare = 0.1;

uint64_t ChildKey(uint32_t node, int32_t token) {
  return static_cast<uint64_t>(node) << 32 | static_cast<uint32_t>(token);
}

}  // namespace

NgramModel::NgramModel(const NgramOptions& options,
                       const std::vector<std::vector<int32_t>>& passages)
    : options_(options), nodes_(1) {
  for (const std::vector<int32_t>& passage : passages) {
    std::vector<int32_t> tokens = passage;
    tokens.push_back(options_.end_token);
    Count(tokens);
  }
  MakeBase();
}

uint32_t NgramModel::ChildOf(uint32_t node, int32_t token) const {
  const auto found = children_.find(ChildKey(node, token));
  return found == children_.end() ? kNoNode : found->second;
}

uint32_t NgramModel::AddChild(uint32_t node, int32_t token) {
  const auto [entry, added] =
      children_.try_emplace(ChildKey(node, token), static_cast<uint32_t>(nodes_.size()));
  if (added) nodes_.emplace_back();
  return entry->second;
}

void NgramModel::Count(std::span<const int32_t> passage) {
  const auto is_before = [](const Successor& s, int32_t token) { return s.token < token; };
  for (size_t i = 0; i < passage.size(); ++i) {
    uint32_t node = 0;
    for (size_t length = 0;; ++length) {
      std::vector<Successor>& successors = nodes_[node].successors;
      auto at = std::lower_bound(successors.begin(), successors.end(), passage[i], is_before);
      if (at == successors.end() || at->token != passage[i]) {
        at = successors.insert(at, {passage[i], 0});
      }
      ++at->count;
      ++nodes_[node].count;
      if (length == i || length + 1 == static_cast<size_t>(options_.order)) break;
      node = AddChild(node, passage[i - 1 - length]);
    }
  }
}

void NgramModel::MakeBase() {
  const size_t vocab_size = static_cast<size_t>(options_.vocab_size);
  const double uniform = 1.0 / static_cast<double>(vocab_size);
  // Without any document the model is uniform.
  const double share = nodes_[0].count == 0 ? 1.0 : kUniformShare;
  base_.assign(vocab_size, share * uniform);
  for (const Successor& s : nodes_[0].successors) {
    base_[s.token] += (1.0 - share) * s.count / nodes_[0].count;
  }
  log_base_.resize(vocab_size);
  for (size_t i = 0; i < vocab_size; ++i) log_base_[i] = static_cast<float>(std::log(base_[i]));
}

// Tokens seen after a long context were seen after each shorter one as well. Only the successors of
// the last token therefore differ from the base by more than a constant. An id costs two additions
// instead of a logarithm.
void NgramModel::FillRow(std::span<const int32_t> context, float* row) const {
  std::vector<const Node*> path;
  uint32_t node = 0;
  for (size_t i = 1; i <= context.size() && i < static_cast<size_t>(options_.order); ++i) {
    node = ChildOf(node, context[context.size() - i]);
    if (node == kNoNode) break;
    path.push_back(&nodes_[node]);
  }

  // The weight of each length of context, and in the end of the base.
  const double discount = options_.discount;
  std::vector<double> weights(path.size() + 1);
  double weight = 1.0;
  for (size_t i = path.size(); i > 0; --i) {
    weights[i] = weight;
    const Node& longer = *path[i - 1];
    weight *= discount * static_cast<double>(longer.successors.size()) / longer.count;
  }
  const float log_weight = static_cast<float>(std::log(weight));
  for (size_t i = 0; i < base_.size(); ++i) row[i] = log_base_[i] + log_weight;
  if (path.empty()) return;

  for (const Successor& s : path.front()->successors) {
    double p = weight * base_[s.token];
    for (size_t i = 0; i < path.size(); ++i) {
      const std::vector<Successor>& successors = path[i]->successors;
      const auto at = std::lower_bound(
          successors.begin(), successors.end(), s.token,
          [](const Successor& other, int32_t token) { return other.token < token; });
      if (at == successors.end() || at->token != s.token) break;
      p += weights[i + 1] * (at->count - discount) / path[i]->count;
    }
    row[s.token] = static_cast<float>(std::log(p));
  }
}

}  // namespace specd::toy
