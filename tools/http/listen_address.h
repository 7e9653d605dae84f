// ListenAddress is where specd-http listens, as its flag says it.
//
// unix:PATH, or a numeric address with a port. Names are refused: the hosts that they admit would
// be another's word. Pure function.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace specd::http {

struct ListenAddress {
  std::string endpoint;     // ipc://PATH or tcp://HOST:PORT, for SocketListener
  bool is_private = false;  // only processes of this machine reach it
};

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

}  // namespace specd::http
