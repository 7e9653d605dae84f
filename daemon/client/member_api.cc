// The C functions of <specd/specd.h> over Member, for ranks that join from processes of their own.
#include <memory>
#include <utility>

#include "daemon/client/api_guard.h"
#include "daemon/client/member.h"

struct specd_member {
  std::unique_ptr<specd::Member> member;
  specd::api::CallGate gate{};
};

namespace {

using specd::api::Guard;
using specd::api::NullArgument;
using specd::api::Open;

template <class Body>
int Use(specd_member* member, Body body) {
  return member->gate.Run("member", std::move(body));
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
  return Use(member, [&] { return member->member->BindDevice(address, num_rows); });
}

int specd_member_bind_fd(specd_member* member, int fd, uint64_t size_bytes, uint64_t offset_bytes,
                         uint64_t num_rows) {
  if (member == nullptr) return NullArgument("member");
  return Use(member,
             [&] { return member->member->BindFd(fd, size_bytes, offset_bytes, num_rows); });
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
