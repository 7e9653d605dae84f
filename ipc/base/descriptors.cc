#include "ipc/base/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace specd {

namespace {

uint64_t ReserveOf(uint64_t limit) { return std::min<uint64_t>(kReservedDescriptors, limit / 4); }

}  // namespace

bool IsReservedFrom(Peer peer, int fd) {
  rlimit limit = {};
  if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const uint64_t reserve = ReserveOf(limit.rlim_cur);
  const uint64_t kept = peer == Peer::kSubscriber ? 2 * reserve : reserve;
  return static_cast<uint64_t>(fd) >= limit.rlim_cur - kept;
}

uint64_t LimitWithRoomFor(uint64_t count) {
  uint64_t limit = count;
  while (limit - ReserveOf(limit) < count) ++limit;
  return limit;
}

}  // namespace specd
