// The functions here divide the places of ControlServer among the users that it serves.
//
// A connection that has not attached gives way to a newer one, unless it waits for a dump. One of
// the user with the most of them gives way. IsWithinShare divides sessions and such dumps: up to
// three quarters of the places, it refuses no user. In the last quarter a user may have as many as
// he leaves free, and always one while one is free. So one user never takes all of them, and a
// later user gets half of what is left. A daemon that serves one user does not divide its sessions.
// Pure functions; safe from any thread.
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

// A connection that finds no place.
struct Newcomer {
  uint32_t uid = 0;
  bool allowed = false;  // users who may not attach have places of their own
};

// The connection that gives way to the newcomer: the oldest one of the user who holds the most, of
// connections that have not attached. One that waits for a dump counts, and does not give way.
// Null if there is none, or if the newcomer's user holds more than any who could give way.
// `connections` has the oldest first.
ControlConnection* FindWhoGivesWay(std::span<const std::unique_ptr<ControlConnection>> connections,
                                   const Newcomer& newcomer);

// An error if one more dump, for `asking`, is beyond the share of its user. `num_places`: for
// connections that have not attached. Without a bound, dumps would take all of those places.
absl::Status CheckDumps(std::span<const std::unique_ptr<ControlConnection>> connections,
                        const ControlConnection& asking, size_t num_places);

}  // namespace specd
