#include "tools/replay/rejection_cause.h"

#include <fmt/format.h>

#include "tools/replay/names.h"

namespace specd::replay {
namespace {

CauseKind KindOf(ZeroStep step) {
  switch (step) {
    case ZeroStep::kGrammar:
    case ZeroStep::kMask:
    case ZeroStep::kAllowed:
    case ZeroStep::kDisallowed:
      return CauseKind::kMask;
    case ZeroStep::kMinP:
    case ZeroStep::kTopK:
    case ZeroStep::kTopP:
    case ZeroStep::kTopKOrTopP:
      return CauseKind::kFilter;
    case ZeroStep::kNone:
    case ZeroStep::kForced:
    case ZeroStep::kMinTokens:
    case ZeroStep::kBanned:
    case ZeroStep::kRow:
    case ZeroStep::kUnderflow:
      break;
  }
  return CauseKind::kRule;
}

}  // namespace

RejectionCause CauseOfRejection(VerifyMethod method, std::optional<double> p, ZeroStep step) {
  if (step != ZeroStep::kNone) return {KindOf(step), fmt::format("p is 0: {}", NameOf(step))};
  if (method == VerifyMethod::kGreedy) return {CauseKind::kOtherToken, "another id is the argmax"};
  if (method == VerifyMethod::kExactMatch) {
    return {CauseKind::kOtherToken, "the SAMPLE coin drew another id"};
  }
  if (method == VerifyMethod::kTypical || method == VerifyMethod::kRelaxed) {
    return {CauseKind::kOtherToken, "the place has another token, and the lossy rule refused it"};
  }
  const bool reads_p = method != VerifyMethod::kSynthetic;
  if (!p && reads_p) return {CauseKind::kRule, "not known: its p was not computed"};
  if (p && *p == 0) return {CauseKind::kRule, "p is 0 (the trace has no step)"};
  return {CauseKind::kCoin, "the coin"};
}

}  // namespace specd::replay
