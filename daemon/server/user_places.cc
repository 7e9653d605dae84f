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
                                   bool allowed) {
  const auto may_give_way = [allowed](const ControlConnection& connection) {
    return connection.allowed == allowed && !connection.dropped && !connection.busy &&
           !connection.has_attached();
  };
  std::map<uint32_t, size_t> by_uid;
  size_t most = 0;
  for (const auto& connection : connections) {
    if (may_give_way(*connection)) most = std::max(most, ++by_uid[connection->peer.uid]);
  }
  const auto found =
      std::find_if(connections.begin(), connections.end(), [&](const auto& connection) {
        return may_give_way(*connection) && by_uid[connection->peer.uid] == most;
      });
  return found == connections.end() ? nullptr : found->get();
}

}  // namespace specd
