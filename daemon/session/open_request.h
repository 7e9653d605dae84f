// The verifier's half of opening a sequence: the message that asks for it becomes SequenceParams
// and a history.
//
// What the message's own form allows to be wrong is checked here (names that the table does not
// have, lists whose lengths disagree, a file that is too short, numbers in text); what the values
// mean is checked by Verifier::Open. The
// file of lists is read once, into private memory. Safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"
#include "ipc/control/control.h"
#include "speculative/params.h"
#include "speculative/verifier.h"

namespace specd {

// Of all lists in one file together: 4 MiB.
inline constexpr uint64_t kListIdsMax = uint64_t{1} << 20;
// n times the ids of prompt and outputs: each sample remembers them for itself.
inline constexpr uint64_t kSampleIdsMax = uint64_t{1} << 22;

struct OpenRequest {
  SequenceParams params;
  std::vector<TokenId> prompt;
  std::vector<TokenId> outputs;

  SequenceHistory history() const { return {prompt, outputs}; }
};

// `lists` is the descriptor that came with the message; not valid where none did.
absl::StatusOr<OpenRequest> ReadOpenRequest(const OpenSequenceRequest& request,
                                            const UniqueFd& lists);

}  // namespace specd
