// BuildNetwork compiles the text of a constraint, by the front end of its kind.
//
// The caller gives it a deep stack and a budget (deep_stack.h, budget.h). Pure function, for any
// thread.
//
//   std::vector<std::string> warnings;
//   auto network = BuildNetwork(request, ByteSet::All(), &warnings);
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/byte_set.h"
#include "speculative/grammar/base/grammar_request.h"
#include "speculative/grammar/network/network.h"

namespace specd::grammar {

// Texts with bytes outside `spelled_bytes`, those of a tokenizer's tokens, are left out.
// InvalidArgument: the text is wrong (with the offset or the JSON pointer), or no text satisfies
// it. Unimplemented: it is right, and cannot be enforced. ResourceExhausted: it is past a limit.
absl::StatusOr<Network> BuildNetwork(const GrammarRequest& request, const ByteSet& spelled_bytes,
                                     std::vector<std::string>* warnings);

}  // namespace specd::grammar
