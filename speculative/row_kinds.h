// Which parameters rows of a kind can honour: CONTRACT §2, `final`.
//
// Final probabilities are sampled from as they are, so parameters that would change them are
// refused by name and never ignored. Pure functions, safe from any thread.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/types.h"
#include "speculative/params.h"

namespace specd {

// The first field that changes what a target row says, steps 1 to 11; empty: none does.
std::string_view TargetChange(const SequenceParams& params, int32_t vocab_size);
// The same for the steps a drafter declares.
std::string_view DraftChange(const DraftParams& params, int32_t vocab_size);

// Whether rows of this kind may carry `change`, one of the fields above.
absl::Status CheckRowKind(const ElementRules& rules, std::string_view role,
                          std::string_view change);

// Whether a tensor's rules suit its elements and the session. `role` names it in the error.
absl::Status CheckTensor(const TensorView& view, std::string_view role, int32_t vocab_size);

}  // namespace specd
