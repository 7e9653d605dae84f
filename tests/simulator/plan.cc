#include "tests/simulator/plan.h"

#include <array>
#include <string_view>
#include <utility>

#include "ipc/base/fnv.h"
#include "ipc/include/specd/specd.h"

namespace specd::sim {
namespace {

constexpr int32_t kEnd = kVocab - 1;
constexpr std::array<std::string_view, kVocab> kTokens = {"a",        "b",   "c", "ab",
                                                          "\xc3\xa9", "bca", " ", "<end>"};
constexpr std::array<std::string_view, 5> kStops = {"cab", "bb", "\xc3\xa9 ", "aba", "c c"};

}  // namespace

SequencePlan DrawPlan(const std::string& name, Random* random) {
  SequencePlan plan;
  plan.name = name;
  plan.seed = random->Next();
  plan.temperature = random->OneIn(3) ? 0 : 0.7;
  plan.repetition_penalty = random->OneIn(3) ? 1.3 : 1;
  plan.logprobs = random->OneIn(2) ? 0 : -1;
  plan.max_tokens = 1 + static_cast<uint32_t>(random->Below(24));
  if (random->OneIn(2)) plan.stop = kStops[random->Below(kStops.size())];
  plan.prompt.resize(1 + random->Below(3));
  for (int32_t& id : plan.prompt) id = static_cast<int32_t>(random->Below(kEnd));
  return plan;
}

ModelProfile MakeProfile() {
  Vocabulary::Builder builder;
  for (int32_t id = 0; id < kEnd; ++id) builder.Set(id, kTokens[static_cast<size_t>(id)], {});
  builder.Set(kEnd, kTokens[kEnd], {.added = true, .special = true});
  ModelProfile profile;
  profile.vocabulary = std::move(builder).Build();
  profile.tokenizer_hash = 1;
  profile.eos_token_ids = {kEnd};
  return profile;
}

void FillRow(std::span<const int32_t> ids, std::span<float> row) {
  Fnv1a hash;
  for (const int32_t id : ids) hash.Add(id);
  Random random(hash.value());
  for (float& logit : row) logit = static_cast<float>(random.Below(1000)) / 250;
  row[kEnd] -= 2;
}

Expected CutAtStop(const SequencePlan& plan, const ModelProfile& profile, Expected without_stop) {
  Expected cut = std::move(without_stop);
  cut.text.clear();
  for (size_t i = plan.outputs.size(); i < cut.ids.size(); ++i) {
    if (cut.ids[i] == kEnd) continue;  // special: no text
    cut.text += profile.vocabulary->Bytes(cut.ids[i]);
    const size_t at = plan.stop.empty() ? std::string::npos : cut.text.find(plan.stop);
    if (at == std::string::npos) continue;
    cut.text.resize(at);
    cut.ids.resize(i + 1);
    cut.finish_reason = SPECD_FINISH_STOP;
    break;
  }
  return cut;
}

}  // namespace specd::sim
