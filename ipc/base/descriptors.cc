#include "ipc/base/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace specd {

bool IsReservedFrom(Peer peer, int fd) {
  rlimit limit = {};
  if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t reserve = std::min<rlim_t>(kReservedDescriptors, limit.rlim_cur / 4);
  const rlim_t kept = peer == Peer::kSubscriber ? 2 * reserve : reserve;
  return static_cast<rlim_t>(fd) >= limit.rlim_cur - kept;
}

}  // namespace specd
