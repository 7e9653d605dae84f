// SessionOpener makes the sessions of engines that attach to a daemon, and owns what all of them
// share: the models, the memory and the names.
//
// It outlives the sessions. The control thread calls Open.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/memory_budget.h"
#include "daemon/base/user_budgets.h"
#include "daemon/config.h"
#include "daemon/metrics/daemon_meters.h"
#include "daemon/session/model_profiles.h"
#include "daemon/session/session.h"
#include "daemon/session/shared_names.h"
#include "ipc/control/control_messages.h"

namespace specd {

class SessionOpener {
 public:
  // `meters` outlive this object.
  SessionOpener(const DaemonConfig& config, uint64_t epoch, DaemonMeters* meters);

  // The parts that the daemon has made by the time it serves.
  struct Parts {
    DeviceImporter* importer = nullptr;  // null: device memory is refused
    TraceRecorder* recorder = nullptr;   // null: no trace
    std::function<bool()> has_text_side = nullptr;
  };
  void SetParts(Parts parts) { parts_ = std::move(parts); }

  // Reads the models that the configuration names. Call it once, first.
  absl::Status LoadModels();
  const ModelProfiles& models() const { return models_; }

  absl::StatusOr<std::shared_ptr<Session>> Open(const HelloRequest& request, uint32_t uid);

 private:
  const DaemonConfig config_;
  const uint64_t epoch_;
  DaemonMeters& meters_;
  ModelProfiles models_;
  SharedNames names_;
  MemoryBudget memory_;
  UserBudgets user_memory_;
  Parts parts_;
  uint64_t next_session_id_ = 1;
};

}  // namespace specd
