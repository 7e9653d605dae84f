#include "tests/support/peer_member.h"

#include <string>
#include <utility>

namespace specd {

int PeerMember::Do(const PeerRequest& request) {
  switch (request.op) {
    case PeerOp::kJoin: {
      specd_join_options options;
      specd_join_options_init(&options);
      options.rank = static_cast<uint32_t>(request.word);
      options.timeout_ms = 60000;
      const std::string token(request.handle.begin(), request.handle.end());
      return specd_join(request.path, token.c_str(), &options, &member_);
    }
    case PeerOp::kBindMember:
      return specd_member_bind_device(member_, request.address, request.size_bytes);
    case PeerOp::kBindOutput: {
      specd_tensor tensor;
      specd_tensor_init(&tensor);
      tensor.dtype = SPECD_INT32;
      tensor.num_rows = request.value;
      return specd_member_bind_device_tensor(member_, static_cast<int>(request.word),
                                             request.address, request.size_bytes, &tensor);
    }
    case PeerOp::kCheckMember:
      return specd_member_check(member_);
    case PeerOp::kLeave:
      return specd_leave(std::exchange(member_, nullptr));
    default:
      return SPECD_ERROR_UNSUPPORTED;
  }
}

}  // namespace specd
