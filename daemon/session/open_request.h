// ReadOpenRequest turns a message that opens a sequence into SequenceParams and a history, for
// ControlService.
//
// This file checks the form of the message: names that the table does not have, lists whose lengths
// disagree, a file that is too short, numbers in text. SequenceOpening checks the values
// (speculative/sequence/sequence_opening.h). A file of lists is read once, into private memory.
// Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"
#include "ipc/control/control.h"
#include "speculative/params/params.h"
#include "speculative/verifier.h"

namespace specd {

// The ids of all lists in one file together: 4 MiB.
inline constexpr uint64_t kListIdsMax = uint64_t{1} << 20;
// The number n times the ids of prompt and outputs. Each sample has its own copy of them.
inline constexpr uint64_t kSampleIdsMax = uint64_t{1} << 22;

struct OpenRequest {
  SequenceParams params;
  std::vector<TokenId> prompt;
  std::vector<TokenId> outputs;
  SequenceHistory resumed;  // without the tokens

  SequenceHistory history() const {
    SequenceHistory history = resumed;
    history.prompt = prompt;
    history.outputs = outputs;
    return history;
  }
};

// `lists` is the descriptor that came with the message, or an invalid one.
absl::StatusOr<OpenRequest> ReadOpenRequest(const OpenSequenceRequest& request,
                                            const UniqueFd& lists);
// The same if the bytes of that file have been read.
absl::StatusOr<OpenRequest> ReadOpenRequest(const OpenSequenceRequest& request,
                                            std::span<const char> lists);

// The sequence that the request names, and why a daemon before has refused it.
absl::StatusOr<SequenceHistory> ReadRefused(const OpenSequenceRequest& request,
                                            absl::Status* refusal);

// Checks the numbers of a message that opens several at once.
absl::Status CheckOpenings(const OpenSequencesRequest& request);
absl::Status TooManySequences(size_t count);

// Reads the first `bytes.size()` bytes of a memfd of the engine.
absl::Status ReadListFile(const UniqueFd& fd, std::span<char> bytes);

}  // namespace specd
