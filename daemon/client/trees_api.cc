// The C functions of <specd/trees.h> over speculative/drafts. This file has their null checks,
// ranges and struct sizes. No exception leaves it.

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "daemon/client/api_guard.h"
#include "ipc/include/specd/trees.h"
#include "kernels/core/draft.h"
#include "speculative/drafts/ngram_draft.h"
#include "speculative/drafts/tree_growth.h"

namespace {

using specd::api::Adopt;
using specd::api::Guard;
using specd::api::NullArgument;

static_assert(SPECD_NODES_MAX == specd::kNodesMax);

constexpr uint32_t kCandidatesMax = 65536;
constexpr uint32_t kNgramMax = 1024;
constexpr uint64_t kTextMax = uint64_t{1} << 24;

absl::Status CheckRange(std::string_view field, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return specd::Invalid(field, fmt::format("{} = {} is outside {} .. {}", field, value, min, max));
}

// The error of an algorithm, about this field.
absl::Status About(std::string_view field, const absl::Status& status) {
  return specd::Invalid(field, std::string(status.message()));
}

absl::Status Grow(const specd_growth& growth, uint32_t* candidates, int32_t* parents,
                  uint32_t* num_nodes) {
  const uint32_t count = growth.num_candidates;
  if (absl::Status s = CheckRange("num_candidates", count, 0, kCandidatesMax); !s.ok()) return s;
  if (absl::Status s = CheckRange("num_nodes", growth.num_nodes, 1, SPECD_NODES_MAX); !s.ok()) {
    return s;
  }
  if (count > 0 && (growth.parents == nullptr || growth.scores == nullptr)) {
    const char* const field = growth.parents == nullptr ? "parents" : "scores";
    return specd::Invalid(field, fmt::format("{} is NULL but num_candidates = {}", field, count));
  }
  const uint32_t max_depth = growth.max_depth == 0 ? kCandidatesMax : growth.max_depth;
  const absl::StatusOr<specd::GrownTree> tree =
      specd::GrowTree({.parents = {growth.parents, count}, .scores = {growth.scores, count}},
                      static_cast<int32_t>(growth.num_nodes),
                      static_cast<int32_t>(std::min(max_depth, kCandidatesMax)));
  if (!tree.ok()) {
    const bool is_parent = tree.status().message().substr(0, 7) == "parents";
    return About(is_parent ? "parents" : "scores", tree.status());
  }
  std::copy(tree->candidates.begin(), tree->candidates.end(), candidates);
  std::copy(tree->parents.begin(), tree->parents.end(), parents);
  *num_nodes = static_cast<uint32_t>(tree->parents.size());
  return absl::OkStatus();
}

absl::Status DraftNgram(const specd_ngrams& ngrams, int32_t* tokens, int32_t* parents,
                        uint32_t* num_nodes) {
  for (const absl::Status& status : {CheckRange("max_ngram", ngrams.max_ngram, 1, kNgramMax),
                                     CheckRange("min_ngram", ngrams.min_ngram, 1, ngrams.max_ngram),
                                     CheckRange("num_nodes", ngrams.num_nodes, 1, SPECD_NODES_MAX),
                                     CheckRange("max_depth", ngrams.max_depth, 1, SPECD_NODES_MAX),
                                     CheckRange("width", ngrams.width, 1, SPECD_NODES_MAX),
                                     CheckRange("text.count", ngrams.text.count, 0, kTextMax)}) {
    if (!status.ok()) return status;
  }
  if (ngrams.text.count > 0 && ngrams.text.items == nullptr) {
    return specd::Invalid("text", "text.items is NULL, and text.count is not 0");
  }
  const specd::NgramDraft draft = specd::DraftNgrams(
      {ngrams.text.items, ngrams.text.count}, {.min_ngram = static_cast<int32_t>(ngrams.min_ngram),
                                               .max_ngram = static_cast<int32_t>(ngrams.max_ngram),
                                               .num_nodes = static_cast<int32_t>(ngrams.num_nodes),
                                               .max_depth = static_cast<int32_t>(ngrams.max_depth),
                                               .width = static_cast<int32_t>(ngrams.width)});
  std::copy(draft.tokens.begin(), draft.tokens.end(), tokens);
  std::copy(draft.parents.begin(), draft.parents.end(), parents);
  *num_nodes = static_cast<uint32_t>(draft.tokens.size());
  return absl::OkStatus();
}

}  // namespace

extern "C" {

void specd_growth_init(specd_growth* growth) {
  *growth = {};
  growth->struct_size = sizeof(*growth);
}

int specd_grow_tree(const specd_growth* growth, uint32_t* candidates, int32_t* parents,
                    uint32_t* num_nodes) {
  if (growth == nullptr) return NullArgument("growth");
  if (candidates == nullptr) return NullArgument("candidates");
  if (parents == nullptr) return NullArgument("parents");
  if (num_nodes == nullptr) return NullArgument("num_nodes");
  return Guard([&]() -> absl::Status {
    specd_growth adopted;
    if (absl::Status s = Adopt(growth, specd_growth_init, &adopted); !s.ok()) return s;
    return Grow(adopted, candidates, parents, num_nodes);
  });
}

int specd_static_tree(const uint32_t* widths, uint32_t num_widths, int32_t* parents,
                      uint32_t* num_nodes) {
  if (widths == nullptr && num_widths > 0) return NullArgument("widths");
  if (parents == nullptr) return NullArgument("parents");
  if (num_nodes == nullptr) return NullArgument("num_nodes");
  return Guard([&]() -> absl::Status {
    const absl::StatusOr<std::vector<int32_t>> tree =
        specd::StaticTree({widths, num_widths}, SPECD_NODES_MAX);
    if (!tree.ok()) return About("widths", tree.status());
    std::copy(tree->begin(), tree->end(), parents);
    *num_nodes = static_cast<uint32_t>(tree->size());
    return absl::OkStatus();
  });
}

void specd_ngrams_init(specd_ngrams* ngrams) {
  *ngrams = {};
  ngrams->struct_size = sizeof(*ngrams);
  ngrams->min_ngram = 2;
  ngrams->max_ngram = 8;
  ngrams->num_nodes = 8;
  ngrams->max_depth = 8;
  ngrams->width = 1;
}

int specd_draft_ngram(const specd_ngrams* ngrams, int32_t* tokens, int32_t* parents,
                      uint32_t* num_nodes) {
  if (ngrams == nullptr) return NullArgument("ngrams");
  if (tokens == nullptr) return NullArgument("tokens");
  if (parents == nullptr) return NullArgument("parents");
  if (num_nodes == nullptr) return NullArgument("num_nodes");
  return Guard([&]() -> absl::Status {
    specd_ngrams adopted;
    if (absl::Status s = Adopt(ngrams, specd_ngrams_init, &adopted); !s.ok()) return s;
    return DraftNgram(adopted, tokens, parents, num_nodes);
  });
}

}  // extern "C"
