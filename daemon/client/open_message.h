// The functions here turn specd_params into the message that opens a sequence, for Engine.
//
// They check only the things that do not travel: the caller's arrays and has_seed. The verifier
// checks names and values; its half is daemon/session/open_request.h. Pure except for the memfd
// that is made; safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"
#include "ipc/control/control.h"
#include "ipc/include/specd/specd.h"

namespace specd {

// An opening before it is packed. The caller's params outlive it.
struct OpenContent {
  OpenSequenceRequest request;
  // The two parts of the file beside the message.
  std::vector<int32_t> ids;
  std::string_view text;
  uint32_t num_sequences = 1;
};

absl::StatusOr<OpenContent> ReadOpenContent(std::string_view request_id,
                                            const specd_params& params);

struct OpenMessage {
  OpenSequenceRequest request;
  UniqueFd lists;  // valid if the request has ids outside the message
  uint32_t num_sequences = 1;
};

absl::StatusOr<OpenMessage> MakeOpenMessage(std::string_view request_id,
                                            const specd_params& params);

// Several openings in one message with one file.
struct OpeningsMessage {
  OpenSequencesRequest request;
  UniqueFd file;
  uint32_t num_sequences = 0;
};

// Puts openings into one file. Add returns false if the file has no room for another one; a first
// opening that has no room is an error.
class OpeningsFile {
 public:
  absl::StatusOr<bool> Add(OpenContent content);
  absl::StatusOr<OpeningsMessage> Finish() &&;

 private:
  std::string bytes_;
  uint32_t num_openings_ = 0;
  uint32_t num_sequences_ = 0;
};

struct NamedParams {
  std::string_view request_id;
  const specd_params* params = nullptr;
};

// After a refusal of one opening *refused is its index.
absl::StatusOr<OpeningsMessage> MakeOpeningsMessage(std::span<const NamedParams> openings,
                                                    uint32_t* refused);

}  // namespace specd
