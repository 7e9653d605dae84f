#include "tools/replay/doctor/round_tests.h"

namespace specd::replay {

void RoundTests::Take(const TraceTask& task, const std::vector<JudgedDraft>& judged,
                      bool is_whole) {
  for (const JudgedDraft& draft : judged) {
    if (draft.share && draft.coin) passed_.Add(draft.passes, *draft.share);
    if (!draft.is_drawn || !draft.p || !draft.q || *draft.q <= 0) continue;
    ratio_.Add(*draft.p / *draft.q);
    if (is_whole) whole_ratio_.Add(*draft.p / *draft.q);
    if (task.method != VerifyMethod::kToken) continue;
    if (draft.stands) {
      residuals_.Add(0);
    } else if (draft.residual_mass && *draft.residual_mass > 0) {
      residuals_.Add(1 / *draft.residual_mass);
    }
  }
}

bool RoundTests::IsSuspect() const {
  return whole_ratio_.count >= kCountMin && whole_ratio_.GuardedZ(1) < -kSigmas;
}

// If q is right and leaves ids out, the residuals are as if it did not, so they do not lean.
bool RoundTests::IsWrong() const {
  const double residuals = residuals_.count >= kCountMin ? residuals_.GuardedZ(1) : 0;
  const bool is_large = ratio_.count >= kCountMin && ratio_.z(1) > kSigmas;
  return is_large || std::abs(residuals) > kSigmas || (IsSuspect() && std::abs(residuals) > 2.5);
}

}  // namespace specd::replay
