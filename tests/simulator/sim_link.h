// SimLink is the link of an engine to the daemon of a simulated run, in place of SocketLink.
//
// Its requests go to the ControlService of the daemon's end as bytes. Any request or reply may be
// the last one: the daemon dies on the way. One thread.
#pragma once

#include <memory>

#include "daemon/client/engine_link.h"
#include "tests/simulator/sim_engine.h"

namespace specd::sim {

std::unique_ptr<EngineLink> MakeSimLink(Host* host);

}  // namespace specd::sim
