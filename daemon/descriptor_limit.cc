#include "daemon/descriptor_limit.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "daemon/session/regions.h"
#include "ipc/base/descriptors.h"
#include "ipc/base/error.h"
#include "ipc/base/unique_fd.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// Sockets, locks, bells and the queues of ZeroMQ, as /proc/PID/fd shows them without an engine.
constexpr uint64_t kOfDaemon = 24;
constexpr uint64_t kOfTextThread = 16;
constexpr uint64_t kOfTextProcess = 4;
// Its connection, its process, its segment, its regions, and the file of one message.
constexpr uint64_t kOfEngine = 3 + kHostRegionsMax + 1;
constexpr uint64_t kOfTrace = 2;  // of a session: a file of records and one of rows

uint64_t OfEngine(const DaemonConfig& config) {
  return kOfEngine + (config.trace.enabled() ? kOfTrace : 0);
}

uint64_t Limit() {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? uint64_t{limit.rlim_cur} : UINT64_MAX;
}

// The kernel gives the lowest free number. An eventfd needs no file system, which a container may
// lack: one without /dev.
uint64_t CountOpen() {
  const UniqueFd next(eventfd(0, EFD_CLOEXEC));
  return next.valid() ? static_cast<uint64_t>(next.get()) : Limit();
}

}  // namespace

uint64_t CountOwnDescriptors(const DaemonConfig& config) {
  uint64_t count = kOfDaemon;
  if (config.detokenizer == DetokenizerMode::kThread) count += kOfTextThread;
  if (config.detokenizer == DetokenizerMode::kProcess) count += kOfTextProcess;
  return count;
}

absl::Status CheckDescriptors(const DaemonConfig& config, uint64_t to_open) {
  const uint64_t own = CountOpen() + to_open;
  const uint64_t needed = LimitWithRoomFor(own + OfEngine(config));
  if (needed <= Limit()) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_EXHAUSTED, "open_files",
      fmt::format("the limit of open files is {}, and one engine needs at least {}: {} are of this "
                  "daemon, {} of the engine, and a part is kept free for messages; raise the hard "
                  "limit (ulimit -Hn {}, LimitNOFILE={} of a systemd unit)",
                  Limit(), needed, own, OfEngine(config), needed, needed));
}

uint64_t FindLimitForSessions(const DaemonConfig& config) {
  const uint64_t needed = LimitWithRoomFor(CountOpen() + config.max_sessions * OfEngine(config));
  return needed <= Limit() ? 0 : needed;
}

}  // namespace specd
