#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/build_identity.h"
#include "daemon/base/cpus.h"
#include "daemon/base/version.h"
#include "daemon/client/engine_device.h"
#include "daemon/client/engine_link.h"
#include "daemon/client/socket_link.h"
#include "daemon/recorder/trace_recorder.h"
#include "daemon/session/control_service.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/sockets/unix_socket.h"

namespace specd {
namespace {

// Every allocation of a device begins at a multiple of this. Rows are read in words of 16 bytes.
constexpr uint64_t kRegionAlignBytes = 16;

class LocalLink : public EngineLink {
 public:
  LocalLink(std::string device, const EngineLinkOptions& options,
            std::unique_ptr<ServedModel> model, std::unique_ptr<TraceRecorder> recorder)
      : recorder_(std::move(recorder)),
        device_(std::move(device)),
        threads_(ResolveThreads(options.threads)),
        allow_lossy_(options.model.allow_lossy != 0),
        cuda_stream_(options.cuda_stream),
        model_(std::move(model)),
        service_(MakeHost()) {}
  ~LocalLink() override {
    if (service_.session() != nullptr) service_.session()->EndAll();
    pending_.Stop();  // while the model and the session are there
  }

  absl::StatusOr<Reply> Call(const Request& request, int fd, UniqueFd* segment_fd) override {
    absl::StatusOr<std::vector<uint8_t>> message = EncodeRequest(request, ++request_id_);
    if (!message.ok()) return message.status();
    std::vector<UniqueFd> fds;
    if (fd >= 0) fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    const ControlService::Answer answer = service_.Handle(*message, std::move(fds));
    if (segment_fd != nullptr && answer.fd >= 0) {
      *segment_fd = UniqueFd(fcntl(answer.fd, F_DUPFD_CLOEXEC, 0));
    }
    return ReadReply(answer.message, request_id_);
  }

  absl::StatusOr<Registration> RegisterDevice(uint64_t address, uint64_t size_bytes) override {
    if (!reads_device_memory_) {
      return MakeError(
          SPECD_ERROR_UNSUPPORTED, "address",
          fmt::format("rounds of this engine run on \"{}\", which reads host memory only; open "
                      "embedded:cuda, attach to a daemon with --device=cuda, or share rows in "
                      "memory from specd_alloc",
                      device_));
    }
    // A region begins at an address that is aligned for rows. The rest of the address goes into the
    // offset of tensors, which must be a multiple of their elements.
    const uint64_t skip_bytes = address % kRegionAlignBytes;
    absl::StatusOr<DeviceRegion> memory = gpus_.Own(address - skip_bytes, size_bytes + skip_bytes);
    if (!memory.ok()) return memory.status();
    const absl::StatusOr<uint32_t> region =
        service_.session()->device_regions().Adopt(*std::move(memory));
    if (!region.ok()) return region.status();
    return Registration{*region, skip_bytes};
  }

  absl::StatusOr<Registration> RegisterLent(void* data, uint64_t size_bytes) override {
    const uint64_t skip_bytes = reinterpret_cast<uintptr_t>(data) % kRegionAlignBytes;
    const absl::StatusOr<uint32_t> region = service_.session()->LendRegion(
        {.data = static_cast<char*>(data) - skip_bytes, .size_bytes = size_bytes + skip_bytes});
    if (!region.ok()) return region.status();
    return Registration{*region, skip_bytes};
  }

  absl::Status Finish() override { return absl::OkStatus(); }

  absl::Status MarkDrafts(void* stream, uint64_t number) override {
    return service_.session()->MarkDrafts(stream, number);
  }
  absl::Status CheckStaging() override { return service_.session()->CheckStaging(); }
  absl::Status EnqueueStaged(void* stream, uint32_t num_sequences) override {
    return service_.session()->EnqueueStaged(stream, num_sequences);
  }

  bool StepPiece() override {
    return service_.session() != nullptr && service_.session()->StepPiece(/*is_alone=*/true);
  }
  std::string WhyDeviceFailed() const override {
    return service_.session() != nullptr ? service_.session()->WhyDeviceFailed() : std::string();
  }
  absl::StatusOr<SessionSequences::Text> TextOf(uint64_t sequence) override {
    return service_.session()->TextOf(sequence);
  }
  const Vocabulary* vocabulary() const override {
    return model_->profile.vocabulary.has_value() ? &*model_->profile.vocabulary : nullptr;
  }
  std::string WarningsOfModel(uint32_t vocab_size) const override {
    return WarnOfUnreachableIds(model_->profile, vocab_size);
  }
  bool is_embedded() const override { return true; }
  bool PeerGone() const override { return false; }
  bool HungUp() const override { return false; }
  int hangup_fd() const override { return -1; }

 private:
  // If a CUDA stream was given, errors of other codes than these are about it. They are no reason
  // to give up the backend, because a CUDA stream that captures now will not always capture.
  absl::Status NoBackend(const absl::Status& status) const {
    const int code = ErrorCodeOf(status);
    const bool is_about_uri =
        cuda_stream_ == nullptr || code == SPECD_ERROR_UNSUPPORTED || code == SPECD_ERROR_NOT_FOUND;
    return MakeError(
        code, is_about_uri ? "uri" : "cuda_stream",
        fmt::format("uri = \"embedded:{}\": {}", device_, std::string(status.message())));
  }

  ControlHost MakeHost() {
    ControlHost host;
    host.open_session =
        [this](const HelloRequest& request) -> absl::StatusOr<std::shared_ptr<Session>> {
      absl::StatusOr<std::unique_ptr<Backend>> backend =
          EngineBackends().Make(device_, {.cuda_stream = cuda_stream_});
      if (!backend.ok()) return NoBackend(backend.status());
      reads_device_memory_ = !(*backend)->device_uuid().empty();
      SessionOptions options;
      options.identity = {.session_id = 1, .daemon_epoch = std::random_device{}()};
      options.limits = request.limits;
      options.profile = &model_->profile;
      options.grammars = &model_->grammars;
      options.clock = Clock::Real();
      options.names = &names_;
      options.threads = threads_;
      options.may_stage = true;
      options.allow_lossy = allow_lossy_;
      options.recorder = recorder_.get();
      return Session::Create(options, *std::move(backend));
    };
    host.serve = [](const std::shared_ptr<Session>&) {};
    host.pending = &pending_;
    host.peer_pid = getpid();
    host.hello.version = kVersion;
    host.hello.device = device_;
    return host;
  }

  const std::unique_ptr<TraceRecorder> recorder_;  // outlives the session; null: no trace
  const std::string device_;                       // such as "cuda:1"
  const int32_t threads_;
  const bool allow_lossy_;
  void* const cuda_stream_;
  bool reads_device_memory_ = false;  // set with the session
  EngineDevice gpus_;
  const std::unique_ptr<ServedModel> model_;
  SharedNames names_;
  PendingOpenings pending_;
  ControlService service_;
  uint32_t request_id_ = 0;
};

// Over a socket the daemon records.
absl::Status CheckNoTrace(const EngineLinkOptions& options) {
  for (const auto& [field, text] :
       {std::pair<std::string_view, const std::string&>{"trace", options.trace},
        {"trace_options", options.trace_options}}) {
    if (text.empty()) continue;
    return MakeError(SPECD_ERROR_UNSUPPORTED, field,
                     fmt::format("{} = \"{}\" is for embedded mode; leave it NULL and start the "
                                 "daemon with --{}={}",
                                 field, text, field, text));
  }
  return absl::OkStatus();
}

// Null without a trace.
absl::StatusOr<std::unique_ptr<TraceRecorder>> StartRecorder(const EngineLinkOptions& options) {
  absl::StatusOr<TraceOptions> trace = ParseTraceOptions(options.trace, options.trace_options);
  if (!trace.ok()) return trace.status();
  if (!trace->enabled()) return std::unique_ptr<TraceRecorder>();
  return TraceRecorder::Start({.trace = *std::move(trace),
                               .process = {.specd_version = kVersion,
                                           .build = kBuildIdentity,
                                           .processor = ProcessorName(),
                                           .tokenizer = options.model.fields.tokenizer_path},
                               .clock = Clock::Real(),
                               .log = [](TraceSeverity, std::string_view text) {
                                 // The library has no log, and a trace was asked for.
                                 std::fprintf(stderr, "specd: %.*s\n",
                                              static_cast<int>(text.size()), text.data());
                               }});
}

absl::Status BadUri(const std::string& uri) {
  return MakeError(
      SPECD_ERROR_INVALID_ARGUMENT, "uri",
      fmt::format("uri = \"{}\" is neither unix:/path/to/socket nor embedded: and the name of a "
                  "device, such as embedded:cpu",
                  uri));
}

}  // namespace

absl::Status CheckTimeout(std::string_view field, uint32_t timeout_ms, uint32_t min_ms) {
  constexpr uint32_t kTimeoutMaxMs = 3'600'000;
  if (timeout_ms >= min_ms && timeout_ms <= kTimeoutMaxMs) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_INVALID_ARGUMENT, field,
      fmt::format("{} = {} is outside {} .. {}", field, timeout_ms, min_ms, kTimeoutMaxMs));
}

absl::StatusOr<Reply> ReadReply(std::span<const uint8_t> message, uint32_t request_id) {
  absl::StatusOr<ControlHeader> header = DecodeHeader(message, ControlReader::kLibrary);
  if (!header.ok()) return header.status();
  absl::StatusOr<Reply> reply = DecodeReply(*header, message);
  if (!reply.ok()) return reply.status();
  if (const auto* error = std::get_if<ErrorReply>(&*reply)) return StatusFromReply(*error);
  if (header->request_id != request_id) {
    return MakeError(
        SPECD_ERROR_INTERNAL, "request_id",
        fmt::format("the reply answers request {}, not {}", header->request_id, request_id));
  }
  return reply;
}

absl::Status UnexpectedReply() {
  return MakeError(SPECD_ERROR_INTERNAL, "reply", "the reply is of another type than the request");
}

absl::StatusOr<std::unique_ptr<EngineLink>> MakeEngineLink(const std::string& uri,
                                                           const EngineLinkOptions& options) {
  const std::string_view text = uri;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon + 1 == text.size()) return BadUri(uri);
  const std::string_view scheme = text.substr(0, colon);
  const std::string rest(text.substr(colon + 1));
  if (options.threads > kThreadsMax) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "threads",
                     fmt::format("threads = {} is outside 0 .. {}", options.threads, kThreadsMax));
  }
  if (scheme == "unix") {
    if (options.cuda_stream != nullptr) return NoCudaStream(uri);
    if (options.threads != 0) {
      return MakeError(SPECD_ERROR_UNSUPPORTED, "threads",
                       fmt::format("threads = {} is for embedded mode; leave it 0 and start the "
                                   "daemon with --threads={}",
                                   options.threads, options.threads));
    }
    if (absl::Status status = CheckNoProfile(options.model); !status.ok()) return status;
    if (absl::Status status = CheckNoTrace(options); !status.ok()) return status;
    absl::StatusOr<UnixConnection> connection = UnixConnection::Connect(rest, options.timeout);
    if (!connection.ok()) return connection.status();
    return MakeSocketLink(*std::move(connection), options.timeout, rest);
  }
  if (scheme != "embedded") return BadUri(uri);
  if (!options.profile.empty()) {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "profile",
        fmt::format("profile = \"{}\" is one of a daemon's; leave it NULL, and give an "
                    "embedded engine the path of its file in profile_file",
                    options.profile));
  }
  if (absl::Status status = CheckEmbedded(uri, rest, options.cuda_stream); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<ServedModel>> model = LoadEmbeddedModel(options.model);
  if (!model.ok()) return model.status();
  absl::StatusOr<std::unique_ptr<TraceRecorder>> recorder = StartRecorder(options);
  if (!recorder.ok()) return recorder.status();
  return std::make_unique<LocalLink>(rest, options, *std::move(model), *std::move(recorder));
}

}  // namespace specd
