#include "tools/replay/doctor/round_tests.h"

#include <algorithm>

namespace specd::replay {

void RoundTests::Take(const TraceTask& task, const std::vector<JudgedDraft>& judged,
                      bool is_whole) {
  for (const JudgedDraft& draft : judged) {
    if (draft.share && draft.coin) passed_.Add(draft.passes, *draft.share);
    if (!draft.is_drawn || !draft.p || !draft.q || *draft.q <= 0) continue;
    const double ratio = *draft.p / *draft.q;
    ratio_.Add(ratio);
    ratio_above_.Add(ratio);
    if (is_whole) whole_ratio_.Add(ratio);
    if (task.method != VerifyMethod::kToken) continue;
    const bool has_residual = draft.residual_mass && *draft.residual_mass > 0;
    if (!draft.is_accepted && !has_residual) continue;
    const double residual = draft.is_accepted ? 0 : 1 / *draft.residual_mass;
    residuals_.Add(residual);
    residuals_above_.Add(residual);
  }
}

bool RoundTests::IsSuspect() const {
  return whole_ratio_.count >= kCountMin && whole_ratio_.GuardedZ(1) < -kSigmas;
}

bool RoundTests::IsWrong() const {
  return std::max(ratio_above_.log_evidence(), residuals_above_.log_evidence()) >
         kLogEvidence4Sigma;
}

}  // namespace specd::replay
