// The functions here divide the places of ControlServer among the users that it serves.
//
// A place of a connection that has not attached is never kept from a newer connection: one of the
// user with the most of them gives way. IsWithinShare divides sessions: up to three quarters of
// the places, it refuses no user. In the last quarter a user may have as many sessions as he leaves
// free, and always one while one is free. So one user never takes all of them, and a later user
// gets half of what is left. A daemon that serves one user does not ask. Pure functions; safe from
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "daemon/server/control_connection.h"
#include "ipc/sockets/unix_socket.h"

namespace specd {

// What is held; for IsWithinShare with what is asked for.
struct Holdings {
  size_t of_user = 0;
  size_t of_all = 0;
};

// Root and the daemon's own user see what all users have.
bool IsOperator(const PeerCredentials& peer);

// An error if one more session of this user is beyond his share.
absl::Status CheckShare(const Holdings& held, uint32_t uid, size_t num_places);
bool IsWithinShare(const Holdings& held, size_t num_places);

// The connection that gives way to a new one, among those that have not attached, have no request
// at a thread, and are of users who may attach, or may not: the oldest one of the user with the
// most. `connections` has the oldest first. Null if there is none.
ControlConnection* FindWhoGivesWay(std::span<const std::unique_ptr<ControlConnection>> connections,
                                   bool allowed);

}  // namespace specd
