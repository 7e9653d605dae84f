// The functions here tell who may make a request, and what it opens, for ControlService.
//
// Pure functions; any thread.
#pragma once

#include <variant>

#include "ipc/control/control_messages.h"

namespace specd {

inline bool IsOfOperator(const Request& request) {
  return std::holds_alternative<ListSequencesRequest>(request) ||
         std::holds_alternative<AbortStreamsRequest>(request) ||
         std::holds_alternative<DrainRequest>(request) ||
         std::holds_alternative<DumpSessionRequest>(request) ||
         std::holds_alternative<ListSessionsRequest>(request);
}

inline bool OpensSequences(const Request& request) {
  return std::holds_alternative<OpenSequenceRequest>(request) ||
         std::holds_alternative<OpenSequencesRequest>(request) ||
         std::holds_alternative<ForkSequenceRequest>(request);
}

// True for the requests that a joined rank may make.
inline bool IsForMembers(const Request& request) {
  return std::holds_alternative<RegisterRegionRequest>(request) ||
         std::holds_alternative<RegisterDeviceRegionRequest>(request) ||
         std::holds_alternative<UnregisterRegionRequest>(request) ||
         std::holds_alternative<BindTensorRequest>(request) ||
         std::holds_alternative<GiveUpRequest>(request);
}

}  // namespace specd
