#include "daemon/server/user_places.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

bool IsWithinShare(const Holdings& held, size_t num_places) {
  if (held.of_all > num_places) return false;
  return held.of_all <= num_places - num_places / 4 ||
         held.of_user <= std::max<size_t>(1, num_places - held.of_all);
}

bool IsOperator(const PeerCredentials& peer) { return peer.uid == 0 || peer.uid == geteuid(); }

absl::Status CheckShare(const Holdings& held, uint32_t uid, size_t num_places) {
  const Holdings after{.of_user = held.of_user + 1, .of_all = held.of_all + 1};
  if (IsWithinShare(after, num_places)) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_EXHAUSTED, "max_sessions",
      fmt::format("{} of the {} engines that --max_sessions allows are here, {} of them of uid "
                  "{}. In the last quarter a user may have as many as he leaves free; close one, "
                  "or start the daemon with a larger --max_sessions",
                  held.of_all, num_places, held.of_user, uid));
}

ControlConnection* FindWhoGivesWay(std::span<const std::unique_ptr<ControlConnection>> connections,
                                   const Newcomer& newcomer) {
  const auto has_place = [&newcomer](const ControlConnection& connection) {
    return connection.allowed == newcomer.allowed && (connection.busy || !connection.dropped) &&
           !connection.has_attached();
  };
  std::map<uint32_t, size_t> held;
  for (const auto& connection : connections) {
    if (has_place(*connection)) ++held[connection->peer.uid];
  }
  ControlConnection* found = nullptr;
  for (const auto& connection : connections) {
    if (!has_place(*connection) || connection->busy) continue;
    const size_t needed = found == nullptr ? held[newcomer.uid] : held[found->peer.uid] + 1;
    if (held[connection->peer.uid] >= needed) found = connection.get();
  }
  return found;
}

absl::Status CheckDumps(std::span<const std::unique_ptr<ControlConnection>> connections,
                        const ControlConnection& asking, size_t num_places) {
  Holdings held;
  for (const auto& connection : connections) {
    if (!connection->busy || connection->allowed != asking.allowed || connection->has_attached()) {
      continue;
    }
    ++held.of_all;
    if (connection->peer.uid == asking.peer.uid) ++held.of_user;
  }
  const Holdings after{.of_user = held.of_user + 1, .of_all = held.of_all + 1};
  if (IsWithinShare(after, num_places)) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_EXHAUSTED, "session",
      fmt::format("{} dumps are under way, {} of them of uid {}, and the daemon has {} places for "
                  "connections that have not attached. Ask again once one of them is answered",
                  held.of_all, held.of_user, asking.peer.uid, num_places));
}

}  // namespace specd
