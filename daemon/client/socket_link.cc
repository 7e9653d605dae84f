#include "daemon/client/socket_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/client/engine_device.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

class SocketLink : public EngineLink {
 public:
  SocketLink(UnixConnection connection, absl::Duration timeout, std::string path)
      : connection_(std::move(connection)),
        timeout_(timeout),
        path_(std::move(path)),
        buffer_(kControlBytesMax) {}
  ~SocketLink() override {
    if (has_device_memory_ && !broken_) (void)Finish();
  }

  // The daemon unmaps device memory before it closes its end, and until then the memory must not be
  // freed. A child of the process has the socket too, but never comes here (CallGate).
  absl::Status Finish() override {
    broken_ = true;
    connection_.FinishSending();
    std::vector<UniqueFd> fds;
    absl::StatusOr<Received> received = connection_.Receive(buffer_, &fds, timeout_);
    while (received.ok() && received->result == ReceiveResult::kMessage) {
      received = connection_.Receive(buffer_, &fds, timeout_);
    }
    const bool is_closed = received.ok() && received->result == ReceiveResult::kHangup;
    return is_closed || HungUp() ? absl::OkStatus() : Late(SPECD_ERROR_DISCONNECTED);
  }

  absl::StatusOr<Reply> Call(const Request& request, int fd, UniqueFd* segment_fd) override {
    if (std::holds_alternative<JoinRequest>(request)) is_rank_ = true;
    return Exchange(request, {&fd, fd >= 0 ? size_t{1} : 0}, segment_fd);
  }

  absl::StatusOr<Registration> RegisterDevice(uint64_t address, uint64_t size_bytes) override {
    absl::StatusOr<DeviceExport> exported = device_.Export(address, size_bytes);
    if (!exported.ok()) return exported.status();
    std::vector<int> fds;
    for (const UniqueFd& fd : exported->fds) fds.push_back(fd.get());
    const absl::StatusOr<Reply> reply =
        Exchange(RegisterDeviceRegionRequest{exported->spec}, fds, nullptr);
    // The daemon may map the memory later, and for a moment.
    if (ErrorCodeOf(reply.status()) == SPECD_ERROR_TIMEOUT) has_device_memory_ = true;
    if (!reply.ok()) return reply.status();
    const auto* const region = std::get_if<RegionReply>(&*reply);
    if (region == nullptr) {
      return MakeError(SPECD_ERROR_INTERNAL, "reply", "the reply names no region");
    }
    has_device_memory_ = true;
    return Registration{region->region, exported->skip_bytes};
  }

  absl::StatusOr<Registration> RegisterLent(void*, uint64_t) override {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "data",
                     "a daemon is another process and cannot read memory of this one; take memory "
                     "from specd_alloc, import a memfd with specd_import_fd, or open an embedded "
                     "engine");
  }

  absl::Status Reconnect() override {
    absl::StatusOr<UnixConnection> connection = UnixConnection::Connect(path_, timeout_);
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
    num_owed_ = 0;
    given_up_.reset();
    broken_ = false;
    held_ = false;
    has_device_memory_ = false;
    return absl::OkStatus();
  }

  // Device memory must not be freed while that daemon has it.
  void Drop() override {
    if (has_device_memory_ && !broken_) {
      (void)Finish();
      return;
    }
    broken_ = true;
    connection_.FinishSending();
  }

  void SetHeld(bool held) override { held_ = held; }

  absl::StatusOr<SessionSequences::Text> TextOf(uint64_t) override {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "uri",
        "a daemon gives the text to subscribers and not to the engine; subscribe to it "
        "(docs/PROTOCOL.md, \"Events\"; specd.subscribe in Python), or open an "
        "embedded engine");
  }

  bool StepPiece() override { return false; }
  bool is_embedded() const override { return false; }
  bool PeerGone() const override { return broken_ || HungUp(); }
  bool HungUp() const override { return held_ || connection_.PeerGone(); }
  int hangup_fd() const override { return connection_.fd(); }

  absl::Status MarkDrafts(void*, uint64_t) override {
    return MakeError(SPECD_ERROR_INTERNAL, "cuda_stream", "a daemon finds marks in the segment");
  }
  absl::Status CheckStaging() override {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "uri",
                     "the rounds of a daemon are in no graph of this process; open embedded:cuda, "
                     "or submit them with specd_submit_on_stream behind the graph's launch");
  }
  absl::Status EnqueueStaged(void*, uint32_t) override { return CheckStaging(); }

 private:
  // Sends the request with descriptors, and waits for its reply.
  absl::StatusOr<Reply> Exchange(const Request& request, std::span<const int> fds,
                                 UniqueFd* segment_fd) {
    if (broken_ || held_) return NotThere();
    const int64_t deadline_ns = Clock::Real()->NowNs() + absl::ToInt64Nanoseconds(timeout_);
    const auto left = [deadline_ns] {
      return absl::Nanoseconds(std::max<int64_t>(0, deadline_ns - Clock::Real()->NowNs()));
    };
    if (absl::Status status = SendGiveUp(left()); !status.ok()) return status;
    const uint32_t request_id = ++request_id_;
    absl::StatusOr<std::vector<uint8_t>> message = EncodeRequest(request, request_id);
    if (!message.ok()) return message.status();
    if (absl::Status status = Send(*message, fds, left()); !status.ok()) return status;
    std::vector<UniqueFd> received_fds;
    while (true) {
      absl::StatusOr<Received> received = connection_.Receive(buffer_, &received_fds, left());
      if (!received.ok() || received->result == ReceiveResult::kHangup) return Disconnected();
      if (received->result == ReceiveResult::kTimeout) return GiveUp(request_id);
      const std::span<const uint8_t> reply(buffer_.data(), received->size_bytes);
      if (IsOwed(reply, request_id)) continue;
      if (segment_fd != nullptr && received_fds.size() == 1) {
        *segment_fd = std::move(received_fds.front());
      }
      return ReadReply(reply, request_id);
    }
  }

  // True for the reply to an earlier request, which is dropped.
  bool IsOwed(std::span<const uint8_t> reply, uint32_t request_id) {
    const absl::StatusOr<ControlHeader> header = DecodeHeader(reply, ControlReader::kLibrary);
    if (num_owed_ == 0 || !header.ok() || header->request_id == request_id) return false;
    --num_owed_;
    return true;
  }

  // The reply to the request comes later or never.
  absl::Status GiveUp(uint32_t request_id) {
    ++num_owed_;
    given_up_ = request_id;
    // A rank cannot know which of its memory the daemon writes to. It leaves, and joins again.
    if (is_rank_) {
      broken_ = true;
      return Late(SPECD_ERROR_DISCONNECTED);
    }
    (void)SendGiveUp(absl::ZeroDuration());
    return Late(SPECD_ERROR_TIMEOUT);
  }

  // Tells the daemon about the last request that was given up. If there is no room for the message
  // now, it goes out before the next request.
  absl::Status SendGiveUp(absl::Duration timeout) {
    if (!given_up_.has_value()) return absl::OkStatus();
    const absl::StatusOr<std::vector<uint8_t>> message =
        EncodeRequest(GiveUpRequest{*given_up_}, ++request_id_);
    SPECD_CHECK(message.ok());
    if (absl::Status status = Send(*message, {}, timeout); !status.ok()) return status;
    given_up_.reset();
    ++num_owed_;
    return absl::OkStatus();
  }

  absl::Status Send(std::span<const uint8_t> message, std::span<const int> fds,
                    absl::Duration timeout) {
    const absl::Status sent = connection_.Send(message, fds, timeout);
    if (sent.ok()) return sent;
    return ErrorCodeOf(sent) == SPECD_ERROR_TIMEOUT ? Late(SPECD_ERROR_TIMEOUT) : Disconnected();
  }

  absl::Status Late(int code) const {
    return MakeError(code, "timeout_ms",
                     fmt::format("the daemon did not answer within {}; it may be busy or stuck, or "
                                 "timeout_ms too short",
                                 absl::FormatDuration(timeout_)));
  }

  absl::Status Disconnected() {
    broken_ = true;
    return NotThere();
  }
  static absl::Status NotThere() {
    return MakeError(SPECD_ERROR_DISCONNECTED, "",
                     "the daemon has closed the connection or ended; start it and attach again");
  }

  UnixConnection connection_;
  EngineDevice device_;
  const absl::Duration timeout_;
  const std::string path_;
  std::vector<uint8_t> buffer_;
  uint32_t request_id_ = 0;
  uint32_t num_owed_ = 0;  // replies that no call waits for
  // The request that was given up last, until the daemon is told.
  std::optional<uint32_t> given_up_;
  bool is_rank_ = false;
  bool broken_ = false;
  bool held_ = false;
  bool has_device_memory_ = false;
};

}  // namespace

std::unique_ptr<EngineLink> MakeSocketLink(UnixConnection connection, absl::Duration timeout,
                                           std::string path) {
  return std::make_unique<SocketLink>(std::move(connection), timeout, std::move(path));
}

}  // namespace specd
