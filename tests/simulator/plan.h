// SequencePlan is a sequence of a simulated run, and Expected is what must come of it.
//
// The rows of the model depend on the ids before them alone. So a token that is lost, repeated or
// drawn with another coin changes all that follows. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/session/model_profile.h"
#include "tests/simulator/random.h"

namespace specd::sim {

inline constexpr uint32_t kVocab = 8;

struct SequencePlan {
  std::string name;
  uint64_t seed = 0;
  double temperature = 1;
  double repetition_penalty = 1;
  int32_t logprobs = -1;
  uint32_t max_tokens = 1;
  std::string stop;  // empty: none
  std::vector<int32_t> prompt;
  std::vector<int32_t> outputs;  // of a fork: those of its source, which come before its stream
};

struct Expected {
  std::vector<int32_t> ids;
  uint32_t finish_reason = 0;
  std::string text;
  double cumulative_logprob = 0;
};

SequencePlan DrawPlan(const std::string& name, Random* random);

// Of eight tokens; some have several letters, one is the end of a text.
ModelProfile MakeProfile();

// The logits after these ids.
void FillRow(std::span<const int32_t> ids, std::span<float> row);

// What becomes of the outputs of the same sequence without its stop string. The text is that of the
// sequence's own stream.
Expected CutAtStop(const SequencePlan& plan, const ModelProfile& profile, Expected without_stop);

}  // namespace specd::sim
