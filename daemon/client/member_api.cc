// The C functions of <specd/specd.h> over Member, for ranks that join from processes of their own.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "daemon/client/api_guard.h"
#include "daemon/client/member.h"
#include "ipc/base/error.h"

struct specd_member {
  std::unique_ptr<specd::Member> member;
  specd::api::CallGate gate{};
};

namespace {

using specd::api::Adopt;
using specd::api::Guard;
using specd::api::NullArgument;
using specd::api::Open;

template <class Body>
int Use(specd_member* member, Body body) {
  return member->gate.Run("member", std::move(body));
}

specd_tensor NextTokens(uint64_t offset_bytes, uint64_t num_rows) {
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.offset_bytes = offset_bytes;
  tensor.num_rows = num_rows;
  return tensor;
}

// With the number of this rank added, any other role could be that of another rank.
bool IsFirstReplica(int role) {
  switch (role) {
    case SPECD_NEXT_TOKEN:
    case SPECD_KEPT_TOKENS:
    case SPECD_NUM_KEPT:
    case SPECD_NUM_ACCEPTED:
    case SPECD_TOTAL_KEPT:
    case SPECD_ACCEPTED_PATH:
    case SPECD_PREDICTS:
    case SPECD_ACCEPT_INDEX:
      return true;
    default:
      return false;
  }
}

template <class Body>
int UseTensor(specd_member* member, int role, const specd_tensor* tensor, Body body) {
  return Use(member, [&]() -> absl::Status {
    if (!IsFirstReplica(role)) {
      return specd::MakeError(SPECD_ERROR_INVALID_ARGUMENT, "role",
                              fmt::format("role = {} is no slot output; a rank binds "
                                          "SPECD_NEXT_TOKEN, SPECD_KEPT_TOKENS and the others "
                                          "without its number, which is added",
                                          role));
    }
    specd_tensor adopted;
    if (absl::Status status = Adopt(tensor, specd_tensor_init, &adopted); !status.ok()) {
      return status;
    }
    return body(adopted);
  });
}

}  // namespace

extern "C" {

void specd_join_options_init(specd_join_options* options) {
  *options = {};
  options->struct_size = sizeof(*options);
  options->timeout_ms = 5000;
}

int specd_join(const char* uri, const char* token, const specd_join_options* options,
               specd_member** member) {
  if (uri == nullptr) return NullArgument("uri");
  if (token == nullptr) return NullArgument("token");
  if (options == nullptr) return NullArgument("options");
  if (member == nullptr) return NullArgument("member");
  return Open(
      options, specd_join_options_init,
      [&](const specd_join_options& adopted) { return specd::Member::Join(uri, token, adopted); },
      member);
}

int specd_member_bind_device(specd_member* member, uint64_t address, uint64_t num_rows) {
  if (member == nullptr) return NullArgument("member");
  return Use(member, [&] {
    const specd_tensor tensor = NextTokens(0, num_rows);
    return member->member->BindDevice(SPECD_NEXT_TOKEN, address, num_rows * sizeof(int32_t),
                                      tensor);
  });
}

int specd_member_bind_fd(specd_member* member, int fd, uint64_t size_bytes, uint64_t offset_bytes,
                         uint64_t num_rows) {
  if (member == nullptr) return NullArgument("member");
  return Use(member, [&] {
    const specd_tensor tensor = NextTokens(offset_bytes, num_rows);
    return member->member->BindFd(SPECD_NEXT_TOKEN, fd, size_bytes, tensor);
  });
}

int specd_member_bind_device_tensor(specd_member* member, int role, uint64_t address,
                                    uint64_t size_bytes, const specd_tensor* tensor) {
  if (member == nullptr) return NullArgument("member");
  if (tensor == nullptr) return NullArgument("tensor");
  return UseTensor(member, role, tensor, [&](const specd_tensor& adopted) {
    return member->member->BindDevice(static_cast<uint32_t>(role), address, size_bytes, adopted);
  });
}

int specd_member_bind_fd_tensor(specd_member* member, int role, int fd, uint64_t size_bytes,
                                const specd_tensor* tensor) {
  if (member == nullptr) return NullArgument("member");
  if (tensor == nullptr) return NullArgument("tensor");
  return UseTensor(member, role, tensor, [&](const specd_tensor& adopted) {
    return member->member->BindFd(static_cast<uint32_t>(role), fd, size_bytes, adopted);
  });
}

int specd_member_check(specd_member* member) {
  if (member == nullptr) return NullArgument("member");
  return Use(member, [&] { return member->member->Check(); });
}

int specd_leave(specd_member* member) {
  if (member == nullptr) return SPECD_OK;
  // The parent's membership goes on. A forked child leaves its copy as it is.
  if (!member->gate.Close()) return SPECD_OK;
  const std::unique_ptr<specd_member> owned(member);
  return Guard([&] { return owned->member->Leave(); });
}

}  // extern "C"
