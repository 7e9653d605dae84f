// TargetChange, DraftChange and CheckRowKind refuse parameters that rows of a kind cannot honour:
// CONTRACT §2, `final`.
//
// specd samples from final probabilities as they are. Parameters that would change them are refused
// by name and never ignored. Pure functions, safe from any thread.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/types.h"
#include "speculative/params/params.h"

namespace specd {

// Returns the first field that changes a target row in steps 1 to 11; empty: none does.
std::string_view TargetChange(const SequenceParams& params, int32_t vocab_size);
// The same for the steps that a drafter declares.
std::string_view DraftChange(const DraftParams& params, int32_t vocab_size);

// Returns an error if rows of this kind cannot carry `change`, one of the fields above.
absl::Status CheckRowKind(const ElementRules& rules, std::string_view role,
                          std::string_view change);

// Returns an error if a tensor's rules do not suit its elements and the session. `role` names the
// tensor in the error.
absl::Status CheckTensor(const TensorView& view, std::string_view role, int32_t vocab_size);

}  // namespace specd
