#include "daemon/server/user_places.h"

#include <algorithm>
#include <map>

namespace specd {

bool IsWithinShare(const Holdings& held, size_t num_places) {
  if (held.of_all > num_places) return false;
  return held.of_all <= num_places - num_places / 4 ||
         held.of_user <= std::max<size_t>(1, num_places - held.of_all);
}

ControlConnection* FindWhoGivesWay(std::span<const std::unique_ptr<ControlConnection>> connections,
                                   bool allowed) {
  const auto may_give_way = [allowed](const ControlConnection& connection) {
    return connection.allowed == allowed && !connection.dropped && !connection.has_attached();
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
