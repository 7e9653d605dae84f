// AskDaemon sends an operator's message over the daemon's socket and returns the reply.
//
// Each message has a connection of its own. One thread.
//
//   const absl::StatusOr<AbortedReply> reply = AskDaemon<AbortedReply>(path, request);
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/base/error.h"
#include "ipc/control/control.h"
#include "ipc/include/specd/answers.h"

namespace specd::ctl {

// An ErrorReply comes back as its status. NOT_FOUND or UNAVAILABLE: no daemon listens.
absl::StatusOr<Reply> Exchange(const std::string& socket_path, const Request& request);

template <class T>
absl::StatusOr<T> AskDaemon(const std::string& socket_path, const Request& request) {
  absl::StatusOr<Reply> reply = Exchange(socket_path, request);
  if (!reply.ok()) return reply.status();
  if (T* const body = std::get_if<T>(&*reply)) return *std::move(body);
  return MakeError(SPECD_ERROR_INTERNAL, "reply", "the reply is of another type than the request");
}

}  // namespace specd::ctl
