// The other process of tests/support/gpu_peer.h: does on its pretended GPU what the test asks for
// on the socket that is its standard input, until that closes.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/control.h"
#include "ipc/device_export.h"
#include "ipc/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/unix_socket.h"
#include "tests/support/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/peer_engine.h"

namespace specd {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

class Peer {
 public:
  explicit Peer(size_t device_index) : gpu_(FakeGpuOptions(), device_index) {
    (void)gpu_.CreateStream(&stream_);
  }

  GpuResult Do(const PeerRequest& request, int fd, PeerReply* reply, UniqueFd* reply_fd) {
    const GpuAddress word = words_device_ + request.word * sizeof(uint64_t);
    switch (request.op) {
      case PeerOp::kAllocate:
        return Allocate(request, &reply->address);
      case PeerOp::kFree:
        return gpu_.Free(request.address);
      case PeerOp::kExport:
        return Export(request, reply, reply_fd);
      case PeerOp::kFill: {
        const std::vector<char> bytes(request.size_bytes, static_cast<char>(request.value));
        return CopyNow(reinterpret_cast<void*>(request.address), bytes.data(), bytes.size());
      }
      case PeerOp::kRead:
        return CopyNow(&reply->value, reinterpret_cast<void*>(request.address), sizeof(uint64_t));
      case PeerOp::kImport: {
        GpuMapping mapping;
        const GpuResult result =
            gpu_.Import({{request.kind, request.handle, fd}, request.size_bytes}, &mapping);
        reply->address = mapping.address;
        reply->size_bytes = mapping.size_bytes;
        return result;
      }
      case PeerOp::kClose:
        return gpu_.Close({.kind = request.kind, .address = request.address});
      case PeerOp::kWords:
        words_ =
            static_cast<uint64_t*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        return gpu_.RegisterHost(words_, 4096, &words_device_);
      case PeerOp::kStore:
        __atomic_store_n(words_ + request.word, request.value, __ATOMIC_RELEASE);
        return GpuResult::Ok();
      case PeerOp::kWriteValue:
        return gpu_.WriteValue(stream_, word, GpuWord::k64, request.value);
      case PeerOp::kWaitValue:
        return gpu_.WaitValue(stream_, word, GpuWord::k64, request.value);
      case PeerOp::kQuery:
        return gpu_.Query(stream_);
      case PeerOp::kCreateEvent: {
        const GpuResult result = gpu_.CreateSharedEvent(&event_);
        return result.ok() ? gpu_.ExportEvent(event_, &reply->handle) : result;
      }
      case PeerOp::kOpenEvent:
        return gpu_.OpenEvent(request.handle, &event_);
      case PeerOp::kDestroyEvent:
        return gpu_.DestroyEvent(event_);
      case PeerOp::kRecordEvent:
        return gpu_.RecordEvent(event_, stream_);
      case PeerOp::kWaitEvent:
        return gpu_.WaitEvent(stream_, event_);
      case PeerOp::kCountViolations:
        reply->value = gpu_.violations().size();
        return GpuResult::Ok();
      default:
        return DoAsEngine(request, reply);
    }
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
        const DeviceRegionSpec& spec = exported->spec;
        return Ask(RegisterDeviceRegionRequest{spec.kind, spec.device_uuid, spec.handle,
                                               spec.base_bytes, spec.offset_bytes, spec.size_bytes,
                                               spec.buffer_id, spec.export_pid},
                   exported->fd.get(), &reply->value);
      }
      case PeerOp::kUnregister:
        return Ask(UnregisterRegionRequest{static_cast<uint32_t>(request.value)}, -1, nullptr);
      default: {
        const int code = engine_.Do(request, reply);
        return code == SPECD_OK ? GpuResult::Ok() : GpuResult::Error(specd_last_error(), code);
      }
    }
  }

  GpuResult Attach(const char* path) {
    absl::StatusOr<UnixConnection> made = UnixConnection::Connect(path, kTimeout);
    if (!made.ok()) return Answer(made.status());
    daemon_ = std::make_unique<UnixConnection>(*std::move(made));
    HelloRequest hello;
    hello.limits = {8, 4, 4, 3, 2, 4};
    const GpuResult greeted = Ask(hello, -1, nullptr);
    return greeted.ok() ? Ask(MappedRequest{}, -1, nullptr) : greeted;
  }

  GpuResult Ask(const Request& request, int fd, uint64_t* region) {
    const absl::StatusOr<std::vector<uint8_t>> message = EncodeRequest(request, 1);
    if (!message.ok()) return Answer(message.status());
    absl::Status status = daemon_->Send(*message, {&fd, fd >= 0 ? size_t{1} : 0}, kTimeout);
    if (!status.ok()) return Answer(status);
    std::vector<uint8_t> buffer(kControlBytesMax);
    std::vector<UniqueFd> fds;
    const absl::StatusOr<Received> received = daemon_->Receive(buffer, &fds, kTimeout);
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

  GpuResult Allocate(const PeerRequest& request, uint64_t* address) {
    if (request.kind == GpuMemoryKind::kVmm) return gpu_.AllocateVmm(request.size_bytes, address);
    if (request.kind == GpuMemoryKind::kPool) {
      return gpu_.AllocateFromPool(request.size_bytes, address);
    }
    return gpu_.Allocate(request.size_bytes, address);
  }

  GpuResult Export(const PeerRequest& request, PeerReply* reply, UniqueFd* reply_fd) {
    GpuAllocation allocation;
    GpuResult result = gpu_.Describe(request.address, &allocation);
    if (!result.ok()) return result;
    GpuExport exported;
    result = gpu_.Export(request.address, request.kind, &exported);
    reply_fd->Reset(exported.fd);
    reply->handle = exported.handle;
    reply->address = allocation.base;
    reply->size_bytes = allocation.size_bytes;
    reply->buffer_id = allocation.buffer_id;
    return result;
  }

  GpuResult CopyNow(void* target, const void* source, uint64_t size_bytes) {
    const GpuResult result = gpu_.Copy(stream_, target, source, size_bytes);
    return result.ok() ? gpu_.Synchronize(stream_) : result;
  }

  FakeGpuContext gpu_;
  GpuStream stream_;
  GpuEvent event_;
  uint64_t* words_ = nullptr;
  GpuAddress words_device_ = 0;
  std::unique_ptr<UnixConnection> daemon_;
  PeerEngine engine_{&gpu_};
};

}  // namespace
}  // namespace specd

int main(int argc, char** argv) {
  specd::Peer peer(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0);
  while (true) {
    specd::PeerRequest request;
    specd::UniqueFd fd;
    if (!specd::ReceiveFromPeer(STDIN_FILENO, &request, sizeof(request), &fd)) return 0;
    specd::PeerReply reply;
    specd::UniqueFd reply_fd;
    reply.code = peer.Do(request, fd.get(), &reply, &reply_fd).code();
    reply.pid = getpid();
    if (!specd::SendToPeer(STDIN_FILENO, &reply, sizeof(reply), reply_fd.get())) return 0;
  }
}
