// Any bytes on the control socket: decoding ends, stays inside the message, and what it accepts can
// be written and read again with the same result.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/control/control.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

void FuzzRequest(std::span<const uint8_t> message) {
  const absl::StatusOr<ControlHeader> header = DecodeHeader(message, ControlReader::kDaemon);
  if (!header.ok()) {
    SPECD_CHECK(!ErrorFieldOf(header.status()).empty());
    return;
  }
  const absl::StatusOr<Request> request = DecodeRequest(*header, message);
  if (!request.ok()) {
    // Every refusal can be sent to the peer, with any bytes that its texts quote.
    SPECD_CHECK(EncodeReply(MakeErrorReply(request.status()), header->request_id).ok());
    return;
  }
  const absl::StatusOr<std::vector<uint8_t>> again = EncodeRequest(*request, header->request_id);
  SPECD_CHECK(again.ok());
  const absl::StatusOr<ControlHeader> again_header = DecodeHeader(*again, ControlReader::kDaemon);
  SPECD_CHECK(again_header.ok() && again_header->type == header->type);
  const absl::StatusOr<Request> twice = DecodeRequest(*again_header, *again);
  SPECD_CHECK(twice.ok());
  const absl::StatusOr<std::vector<uint8_t>> fixed = EncodeRequest(*twice, header->request_id);
  SPECD_CHECK(fixed.ok() && *fixed == *again);
}

void FuzzReply(std::span<const uint8_t> message) {
  const absl::StatusOr<ControlHeader> header = DecodeHeader(message, ControlReader::kLibrary);
  if (!header.ok()) return;
  const absl::StatusOr<Reply> reply = DecodeReply(*header, message);
  if (reply.ok()) SPECD_CHECK(EncodeReply(*reply, header->request_id).ok());
}

}  // namespace
}  // namespace specd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::span<const uint8_t> message(data, size_bytes);
  specd::FuzzRequest(message);
  specd::FuzzReply(message);
  return 0;
}
