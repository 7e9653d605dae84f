// PackedSteps packs the oracle's steps for a task of a test: sorted edits of the sequence,
// overrides of the places, rows of a mask.
//
// speculative/ packs its own state. This is a second, naive way, so tests of the kernels need no
// part of speculative/.
#pragma once

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "kernels/core/round.h"
#include "tools/oracle/oracle.h"

namespace specd {

class PackedSteps {
 public:
  // Takes one entry for each place of the chain. The edits of the first place are the sequence's
  // edits; places that differ override them.
  PackedSteps(const std::vector<oracle::Steps>& places, int32_t vocab_size)
      : words_((vocab_size + 31) / 32) {
    const std::map<TokenId, TokenEdit> first = EditsOf(places[0]);
    for (const auto& [id, edit] : first) edits_.push_back(edit);
    if (!places[0].allowed.empty()) allowed_ = WordsOf(places[0].allowed);
    overrides_.resize(places.size());
    for (size_t i = 0; i < places.size(); ++i) AddPlace(places[i], first, &overrides_[i]);
    penalties_ = {.repetition = static_cast<float>(places[0].repetition),
                  .frequency = static_cast<float>(places[0].frequency),
                  .presence = static_cast<float>(places[0].presence)};
  }
  PackedSteps(const PackedSteps&) = delete;
  PackedSteps& operator=(const PackedSteps&) = delete;

  void Apply(Task* task) const {
    task->edits = {.edits = edits_.data(),
                   .num_edits = static_cast<int32_t>(edits_.size()),
                   .allowed = allowed_.empty() ? nullptr : allowed_.data(),
                   .penalties = penalties_};
    task->places = places_.data();
  }

  MaskView mask() const {
    return {mask_.data(), static_cast<int64_t>(mask_.size() / words_),
            static_cast<int64_t>(words_)};
  }

 private:
  static std::map<TokenId, TokenEdit> EditsOf(const oracle::Steps& steps) {
    std::map<TokenId, TokenEdit> edits;
    const auto edit_of = [&](int id) -> TokenEdit& {
      edits[id].id = id;
      return edits[id];
    };
    for (const int id : steps.disallowed) edit_of(id).flags |= kEditDisallowed;
    for (const int id : steps.end_ids) edit_of(id).flags |= kEditEnd;
    for (const int id : steps.banned) edit_of(id).flags |= kEditBanned;
    for (const auto& [id, bias] : steps.bias) edit_of(id).bias = static_cast<float>(bias);
    for (const int id : steps.prompt) edit_of(id).flags |= kEditSeen;
    for (const int id : steps.output) {
      edit_of(id).flags |= kEditSeen;
      ++edit_of(id).count;
    }
    return edits;
  }

  static bool Same(const TokenEdit& a, const TokenEdit& b) {
    return a.flags == b.flags && a.bias == b.bias && a.count == b.count;
  }

  void AddPlace(const oracle::Steps& steps, const std::map<TokenId, TokenEdit>& first,
                std::vector<TokenEdit>* overrides) {
    const std::map<TokenId, TokenEdit> edits = EditsOf(steps);
    std::map<TokenId, TokenEdit> different;
    for (const auto& [id, edit] : edits) {
      if (first.count(id) == 0 || !Same(first.at(id), edit)) different[id] = edit;
    }
    for (const auto& [id, edit] : first) {
      if (edits.count(id) == 0) different[id] = TokenEdit{.id = id};
    }
    for (const auto& [id, edit] : different) overrides->push_back(edit);
    PlaceEdits place;
    place.overrides = overrides->data();
    place.num_overrides = static_cast<int32_t>(overrides->size());
    place.below_min_tokens = steps.below_min_tokens;
    if (steps.forced) place.forced = *steps.forced;
    if (!steps.mask.empty()) {
      place.mask_row = static_cast<int32_t>(mask_.size() / words_);
      const std::vector<uint32_t> row = WordsOf(steps.mask);
      mask_.insert(mask_.end(), row.begin(), row.end());
    }
    places_.push_back(place);
  }

  // Bits after the vocabulary are set, and no kernel may rely on them.
  std::vector<uint32_t> WordsOf(const std::vector<bool>& mask) const {
    std::vector<uint32_t> words(words_, ~0u);
    for (size_t id = 0; id < mask.size(); ++id) {
      if (!mask[id]) words[id / 32] &= ~(1u << (id % 32));
    }
    return words;
  }

  size_t words_;
  std::vector<TokenEdit> edits_;
  std::vector<uint32_t> allowed_;
  std::vector<std::vector<TokenEdit>> overrides_;
  std::vector<PlaceEdits> places_;
  std::vector<uint32_t> mask_;
  Penalties penalties_;
};

// Steps 9 to 11 in the form of a task.
inline Filters FiltersOf(const oracle::Truncation& truncation) {
  Filters filters;
  if (truncation.min_p > 0) filters.min_p = static_cast<float>(std::log2(truncation.min_p));
  filters.top_k = truncation.top_k;
  if (truncation.top_p < 1) filters.top_p = static_cast<uint64_t>(truncation.top_p * 0x1p53);
  filters.joint = truncation.joint;
  return filters;
}

// float(log2(e) / temperature).
inline float ScaleOf(double temperature) {
  return static_cast<float>(1 / std::log(2.0) / temperature);
}

}  // namespace specd
