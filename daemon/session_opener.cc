#include "daemon/session_opener.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/base/logging.h"
#include "daemon/compile_log.h"
#include "daemon/daemon_device.h"
#include "daemon/models.h"

namespace specd {
namespace {

// The daemon's own user, and those of --allow_uid.
std::vector<uint32_t> ServedUids(const DaemonConfig& config) {
  std::vector<uint32_t> uids = config.allowed_uids;
  uids.push_back(geteuid());
  return uids;
}

}  // namespace

SessionOpener::SessionOpener(const DaemonConfig& config, uint64_t epoch, DaemonMeters* meters)
    : config_(config),
      epoch_(epoch),
      meters_(*meters),
      models_(config.compile_limits, LogAndCountCompiles(meters)),
      memory_(config.memory.sessions_bytes, "memory_mib"),
      user_memory_(&memory_, ServedUids(config)) {}

absl::Status SessionOpener::LoadModels() { return specd::LoadModels(config_, &models_); }

absl::StatusOr<std::shared_ptr<Session>> SessionOpener::Open(const HelloRequest& request,
                                                             uint32_t uid) {
  if (absl::Status status = CheckSessionBounds(config_.session, request.limits); !status.ok()) {
    return status;
  }
  const absl::StatusOr<ServedModel*> model = models_.Find(request.profile);
  if (!model.ok()) return model.status();
  if (absl::Status status = CheckTokenizer((*model)->profile, request.tokenizer_hash);
      !status.ok()) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<Backend>> backend = DaemonBackends().Make(config_.device);
  if (!backend.ok()) return backend.status();
  SessionOptions options;
  options.identity = {.session_id = next_session_id_, .daemon_epoch = epoch_};
  options.limits = request.limits;
  options.origin = {.resumes = request.resumes,
                    .owner = request.owner,
                    .generation = request.generation,
                    .join_token = ParseJoinToken(request.join_token)};
  options.profile = &(*model)->profile;
  options.grammars = &(*model)->grammars;
  options.clock = Clock::Real();
  options.names = &names_;
  options.threads = config_.threads;
  options.allow_lossy = config_.allow_lossy;
  if (config_.memory.sessions_bytes > 0) options.memory = user_memory_.Of(uid);
  options.memory_bytes_max = config_.memory.session_bytes;
  options.meters = meters_.OfModel(request.profile);
  options.publish_events = true;
  options.importer = parts_.importer;
  options.recorder = parts_.recorder;
  options.text_side = parts_.has_text_side;
  options.text_side_comes = config_.detokenizer == DetokenizerMode::kProcess;
  options.openings_per_second = config_.session.openings_per_second;
  absl::StatusOr<std::shared_ptr<Session>> session = Session::Create(options, *std::move(backend));
  if (!session.ok()) return session;
  ++next_session_id_;
  const std::string warning = WarnOfUnreachableIds((*model)->profile, request.limits.vocab_size);
  if (!warning.empty()) {
    LogOfPeer({"attach", spdlog::level::warn, "unreachable ids"}, "\"{}\": {}",
              Printable(request.name), warning);
  }
  return session;
}

}  // namespace specd
