#include "daemon/session/profile_defaults.h"

#include <algorithm>

#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"
#include "speculative/params/param_numbers.h"

namespace specd {
namespace {

bool NamesThinkingIds(const ThinkingParams& thinking) {
  return thinking.start_id != kNoToken || thinking.newline_id != kNoToken ||
         !thinking.end_ids.empty();
}

bool Names(const OpenSequenceRequest& request, std::string_view name) {
  return std::any_of(request.numbers.begin(), request.numbers.end(),
                     [name](const auto& number) { return number.first == name; });
}

}  // namespace

void ApplyProfile(const ModelProfile& profile, const OpenSequenceRequest& request,
                  SequenceParams* params) {
  if (params->grammar_kind != grammar::GrammarKind::kNone) {
    for (const auto& [name, value] : profile.grammar) {
      if (!Names(request, name)) SPECD_CHECK(SetNumber(name, value, params).ok());
    }
  }
  ThinkingParams& thinking = params->thinking;
  const bool wants_ids = thinking.budget >= 0 || params->relaxed_thinking;
  if (wants_ids && !NamesThinkingIds(thinking)) {
    thinking.start_id = profile.thinking.start_id;
    thinking.end_ids = profile.thinking.end_ids;
    thinking.newline_id = profile.thinking.newline_id;
  }
}

TensorSpec WithProfile(const ModelProfile& profile, TensorSpec spec) {
  if (spec.kind == SPECD_LOGITS && spec.scale == 1 && spec.cap == 0) {
    spec.scale = profile.scale;
    spec.cap = profile.cap;
  }
  return spec;
}

}  // namespace specd
