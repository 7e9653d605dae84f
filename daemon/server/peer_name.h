// ProgramOf and NamePeer name the process at the other end of a connection, for logs and operators.
//
// A client is named by the name that it gave itself, by its program (comm), its pid and its uid.
// Safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "ipc/sockets/unix_socket.h"

namespace specd {

// The name of a process, as in its title; "" if there is no such process.
std::string ProgramOf(pid_t pid);

// Such as: "vllm" (program python3, pid 12, uid 1000). The name may have any bytes.
std::string NamePeer(const PeerCredentials& peer, std::string_view name);

}  // namespace specd
