// The other process of tests/support/gpu_peer.h. Its standard input is a socket. The program does
// the test's requests on its pretended GPU until the socket closes.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/control/control.h"
#include "ipc/include/specd/specd.h"
#include "ipc/memory/device_export.h"
#include "ipc/sockets/unix_socket.h"
#include "tests/gpu/driver/fake_peer_gpu.h"
#include "tests/support/gpu_peer_worker.h"
#include "tests/support/peer_engine.h"
#include "tests/support/peer_member.h"
#include "tests/support/pid_namespace.h"

namespace specd {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

class Peer {
 public:
  explicit Peer(size_t device_index) : fake_(FakeGpuOptions(), device_index) {}

  GpuResult Do(const PeerRequest& request, int fd, PeerReply* reply, UniqueFd* reply_fd) {
    if (request.op < PeerOp::kCountViolations) return worker_.Do(request, fd, reply, reply_fd);
    if (request.op < PeerOp::kOpenEngine) return DoAsEngine(request, reply);
    const int code = request.op < PeerOp::kJoin ? engine_.Do(request, reply) : member_.Do(request);
    return code == SPECD_OK ? GpuResult::Ok() : GpuResult::Error(specd_last_error(), code);
  }

 private:
  static GpuResult Answer(const absl::Status& status) {
    if (status.ok()) return GpuResult::Ok();
    return GpuResult::Error(std::string(status.message()), ErrorCodeOf(status));
  }

  GpuResult DoAsEngine(const PeerRequest& request, PeerReply* reply) {
    switch (request.op) {
      case PeerOp::kAttach:
        return Attach(request.path);
      case PeerOp::kRegister: {
        const absl::StatusOr<DeviceExport> exported =
            ExportDeviceMemory(gpu_, FakeGpuOptions().devices, request.address, request.size_bytes);
        if (!exported.ok()) return Answer(exported.status());
        std::vector<int> fds;
        for (const UniqueFd& fd : exported->fds) fds.push_back(fd.get());
        return Ask(RegisterDeviceRegionRequest{exported->spec}, fds, &reply->value);
      }
      case PeerOp::kUnregister:
        return Ask(UnregisterRegionRequest{static_cast<uint32_t>(request.value)}, {}, nullptr);
      default:
        reply->value = gpu_.violations().size();
        return GpuResult::Ok();
    }
  }

  GpuResult Attach(const char* path) {
    absl::StatusOr<UnixConnection> made = UnixConnection::Connect(path, kTimeout);
    if (!made.ok()) return Answer(made.status());
    daemon_ = std::make_unique<UnixConnection>(*std::move(made));
    HelloRequest hello;
    hello.limits = {8, 4, 4, 3, 2, 4};
    const GpuResult greeted = Ask(hello, {}, nullptr);
    return greeted.ok() ? Ask(MappedRequest{}, {}, nullptr) : greeted;
  }

  GpuResult Ask(const Request& request, const std::vector<int>& fds, uint64_t* region) {
    const absl::StatusOr<std::vector<uint8_t>> message = EncodeRequest(request, 1);
    if (!message.ok()) return Answer(message.status());
    absl::Status status = daemon_->Send(*message, fds, kTimeout);
    if (!status.ok()) return Answer(status);
    std::vector<uint8_t> buffer(kControlBytesMax);
    std::vector<UniqueFd> received_fds;
    const absl::StatusOr<Received> received = daemon_->Receive(buffer, &received_fds, kTimeout);
    if (!received.ok()) return Answer(received.status());
    const std::span<const uint8_t> bytes(buffer.data(), received->size_bytes);
    const absl::StatusOr<ControlHeader> header = DecodeHeader(bytes, ControlReader::kLibrary);
    if (!header.ok()) return Answer(header.status());
    const absl::StatusOr<Reply> reply = DecodeReply(*header, bytes);
    if (!reply.ok()) return Answer(reply.status());
    if (const auto* error = std::get_if<ErrorReply>(&*reply)) {
      return GpuResult::Error(error->text, error->code);
    }
    if (const auto* registered = std::get_if<RegionReply>(&*reply)) *region = registered->region;
    return GpuResult::Ok();
  }

  FakePeerGpu fake_;
  FakeGpuContext& gpu_ = fake_.context();
  GpuPeerWorker worker_{&fake_};
  std::unique_ptr<UnixConnection> daemon_;
  PeerEngine engine_{&gpu_};
  PeerMember member_;
};

}  // namespace
}  // namespace specd

int main(int argc, char** argv) {
  specd::EnterPidNamespaceIfAsked();
  specd::Peer peer(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0);
  specd::ServePeer(STDIN_FILENO, [&](const specd::PeerRequest& request, int fd,
                                     specd::PeerReply* reply, specd::UniqueFd* reply_fd) {
    return peer.Do(request, fd, reply, reply_fd);
  });
  return 0;
}
