#include "tests/simulator/sim_link.h"

#include <fcntl.h>

#include <utility>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd::sim {
namespace {

class SimLink : public EngineLink {
 public:
  explicit SimLink(Host* host) : host_(*host) { SPECD_CHECK(Reconnect().ok()); }
  ~SimLink() override { Drop(); }

  absl::StatusOr<Reply> Call(const Request& request, int fd, UniqueFd* segment_fd) override {
    host_.on_way();
    if (PeerGone()) return Disconnected();
    const absl::StatusOr<std::vector<uint8_t>> message = EncodeRequest(request, ++request_id_);
    if (!message.ok()) return message.status();
    std::vector<UniqueFd> fds;
    if (fd >= 0) fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    const ControlService::Answer answer = connection_->service->Handle(*message, std::move(fds));
    UniqueFd segment(answer.fd < 0 ? -1 : fcntl(answer.fd, F_DUPFD_CLOEXEC, 0));
    host_.on_way();
    if (PeerGone()) return Disconnected();
    if (segment_fd != nullptr) *segment_fd = std::move(segment);
    return ReadReply(answer.message, request_id_);
  }

  absl::Status Reconnect() override {
    Drop();
    SimDaemon* const daemon = host_.daemon();
    if (daemon == nullptr) {
      return MakeError(SPECD_ERROR_NOT_FOUND, "uri", "no daemon listens");
    }
    connection_ = daemon->Accept();
    return absl::OkStatus();
  }
  void Drop() override {
    if (connection_ != nullptr) connection_->has_engine = false;
    connection_.reset();
  }
  absl::Status Finish() override {
    Drop();
    return absl::OkStatus();
  }

  bool PeerGone() const override { return connection_ == nullptr || !connection_->is_open; }
  bool HungUp() const override { return PeerGone(); }
  bool StepPiece() override { return false; }
  bool is_embedded() const override { return false; }
  int hangup_fd() const override { return -1; }

  // ---- what no simulated engine asks for

  absl::StatusOr<Registration> RegisterDevice(uint64_t, uint64_t) override { return Absent(); }
  absl::StatusOr<Registration> RegisterLent(void*, uint64_t) override { return Absent(); }
  absl::Status MarkDrafts(void*, uint64_t) override { return Absent(); }
  absl::Status CheckStaging() override { return Absent(); }
  absl::Status EnqueueStaged(void*, uint32_t) override { return Absent(); }
  absl::StatusOr<SessionSequences::Text> TextOf(uint64_t) override { return Absent(); }

 private:
  static absl::Status Absent() { return MakeError(SPECD_ERROR_UNSUPPORTED, "", "simulated"); }
  static absl::Status Disconnected() {
    return MakeError(SPECD_ERROR_DISCONNECTED, "", "the daemon has ended");
  }

  Host& host_;
  std::shared_ptr<SimDaemon::Connection> connection_;
  uint32_t request_id_ = 0;
};

}  // namespace

std::unique_ptr<EngineLink> MakeSimLink(Host* host) { return std::make_unique<SimLink>(host); }

}  // namespace specd::sim
