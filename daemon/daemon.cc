#include "daemon/daemon.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/build_identity.h"
#include "daemon/base/logging.h"
#include "daemon/base/mps.h"
#include "daemon/base/service_manager.h"
#include "daemon/base/stop_signals.h"
#include "daemon/base/version.h"
#include "daemon/daemon_device.h"
#include "daemon/descriptor_limit.h"
#include "daemon/metrics/daemon_meters.h"
#include "daemon/models.h"
#include "daemon/recorder/trace_recorder.h"
#include "daemon/server/canary.h"
#include "daemon/server/control_server.h"
#include "daemon/server/verify_loop.h"
#include "daemon/session_opener.h"
#include "daemon/text/publisher.h"
#include "daemon/text/text_worker.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/backend_plugin.h"
#include "speculative/grammar/base/compile_turns.h"
#include "speculative/grammar/base/grammar_memory.h"

namespace specd {
namespace {

constexpr int kExitCouldNotStart = 1;
constexpr int kExitDeviceFailed = 70;  // EX_SOFTWARE: the supervisor should restart the daemon
constexpr char kTokensInside[] = "inproc://tokens";
constexpr char kAbortsInside[] = "inproc://aborts";
constexpr char kAskInside[] = "inproc://ask";

UniqueFd BlockedSignals() {
  sigset_t signals = StopSignals();
  sigaddset(&signals, SIGUSR1);
  // The mask is set before any thread is made. All threads inherit it, and signals reach only the
  // descriptor.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

// The signal that made the descriptor readable; 0 if there is none.
uint32_t TakeSignal(int signal_fd) {
  signalfd_siginfo info = {};
  return read(signal_fd, &info, sizeof(info)) == sizeof(info) ? info.ssi_signo : 0;
}

void LogTrace(TraceSeverity severity, std::string_view text) {
  Log("trace").log(severity == TraceSeverity::kInfo ? spdlog::level::info : spdlog::level::warn,
                   "{}", text);
}

void LogCanary(const absl::Status& verdict) {
  if (verdict.ok()) return Log("verify").info("the canary: the device answers right again");
  Log("verify").error("the canary: the device answers wrong, so /ready is 503: {}",
                      std::string(verdict.message()));
}

class Daemon {
 public:
  Daemon(const DaemonConfig& config, uint64_t epoch, DaemonMeters* meters)
      : config_(config),
        epoch_(epoch),
        meters_(*meters),
        opener_(config, epoch, meters),
        verify_(&sessions_, {config.spin_ns, [this](std::string_view why) { DeviceFailed(why); },
                             [](Session& session, ChannelFault fault) {
                               Log("verify").warn("session {} broke its rings ({}) and is closed",
                                                  session.options().identity.session_id,
                                                  ChannelFaultName(fault));
                             },
                             [](Session& session) {
                               Log("verify").warn(
                                   "session {}: a page of the engine's memory was missing (a hole "
                                   "without memory, no huge page); the session ends",
                                   session.options().identity.session_id);
                             },
                             [this] { publisher_->Ring(); }, meters->verify(),
                             [this](bool has_worked) {
                               if (canary_ != nullptr) canary_->LookWhileIdle(has_worked);
                             }}) {}

  absl::Status Start(UniqueFd listening);
  int Run(int signal_fd);

 private:
  absl::Status StartTextSide();
  absl::Status StartRecorder();
  void DumpTraces();
  absl::Status FindDevice();
  absl::Status StartCanary(std::unique_ptr<Backend> backend);
  void StartDevice();
  absl::Status StartControl(UniqueFd listening);
  bool TextSideAlive() const;
  void DeviceFailed(std::string_view why);

  const DaemonConfig config_;
  const uint64_t epoch_;
  DaemonMeters& meters_;
  SessionOpener opener_;
  std::string device_uuid_;  // the device whose memory rounds may use; "" if there is none
  // Declared before the sessions, whose memory goes back through the platform. Null without such a
  // device.
  std::unique_ptr<GpuPlatform> platform_;
  std::unique_ptr<DeviceImporter> importer_;
  std::string mps_;                          // from DescribeMps
  std::unique_ptr<TraceRecorder> recorder_;  // outlives the sessions; null: no trace
  SessionList sessions_;
  std::unique_ptr<Canary> canary_;  // null: --canary=0
  VerifyLoop verify_;
  std::atomic<bool> device_failed_{false};

  // Destroyed from the last to the first. Sockets are destroyed before their context, and objects
  // with a file before the instance lock.
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<ZmqContext> context_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<TextWorker> text_worker_;
};

absl::Status Daemon::Start(UniqueFd listening) {
  if (config_.memory.constraints_bytes > 0) {
    grammar::GrammarMemory::OfProcess().Bound(config_.memory.constraints_bytes);
  }
  grammar::CompileTurns::OfProcess().Bound(kLongCompiles);
  if (absl::Status status = opener_.LoadModels(); !status.ok()) return status;
  if (absl::Status status = FindDevice(); !status.ok()) return status;
  if (!device_uuid_.empty()) StartDevice();
  if (absl::Status status = StartRecorder(); !status.ok()) return status;
  if (absl::Status status = StartControl(std::move(listening)); !status.ok()) {
    return status;
  }
  if (absl::Status status = StartTextSide(); !status.ok()) return status;
  opener_.SetParts({.importer = importer_.get(),
                    .recorder = recorder_.get(),
                    .has_text_side = [this] { return TextSideAlive(); }});
  // Devices and plugins have opened their files by now, so these are counted too.
  return CheckDescriptors(config_, 0);
}

// A missing device is an error now, not when the first engine attaches.
absl::Status Daemon::FindDevice() {
  for (const std::string& path : config_.backend_plugins) {
    absl::Status status = LoadBackendPlugin(path, &DaemonBackends());
    if (!status.ok()) return status;
  }
  absl::StatusOr<std::unique_ptr<Backend>> backend = DaemonBackends().Make(config_.device);
  if (!backend.ok()) return backend.status();
  device_uuid_ = (*backend)->device_uuid();
  return config_.canary_ns > 0 ? StartCanary(*std::move(backend)) : absl::OkStatus();
}

absl::Status Daemon::StartCanary(std::unique_ptr<Backend> backend) {
  absl::StatusOr<std::unique_ptr<Canary>> canary =
      Canary::Create({.interval_ns = config_.canary_ns,
                      .clock = Clock::Real(),
                      .meters = meters_.verify(),
                      .on_change = &LogCanary,
                      .on_device_failure = [this](std::string_view why) { DeviceFailed(why); }},
                     std::move(backend));
  if (!canary.ok()) return canary.status();
  canary_ = *std::move(canary);
  return absl::OkStatus();
}

absl::Status Daemon::StartTextSide() {
  absl::StatusOr<ZmqContext> context = ZmqContext::Make();
  if (!context.ok()) return context.status();
  context_ = std::make_unique<ZmqContext>(*std::move(context));

  Publisher::Options publisher;
  publisher.sessions = &sessions_;
  publisher.clock = Clock::Real();
  publisher.context = context_.get();
  publisher.epoch = epoch_;
  publisher.tokens_endpoints = {kTokensInside, config_.tokens_endpoint};
  publisher.aborts_endpoints = {kAbortsInside};
  publisher.subscribers =
      SubscribersFor("token events", config_.allowed_uids, config_.memory.endpoint_bytes);
  publisher.text_sides = TextSidesFor("aborts", config_.allowed_uids);
  publisher.ask_endpoints = {kAskInside, config_.ask_endpoint};
  publisher.askers = AskersFor("ask", config_.allowed_uids);
  publisher.keep = KeptFor(config_);
  for (const auto& [name, model] : opener_.models().models()) {
    publisher.tokenizers.emplace(name, model->profile.tokenizer_hash);
  }
  publisher.text_grace_ns = config_.text_grace_ns;
  publisher.meters = meters_.publisher();
  if (config_.detokenizer == DetokenizerMode::kProcess) {
    publisher.aborts_endpoints.push_back(config_.aborts_endpoint);
    publisher.watch_text_side = true;
  }
  auto made = Publisher::Create(publisher);
  if (!made.ok()) return made.status();
  publisher_ = *std::move(made);

  if (config_.detokenizer == DetokenizerMode::kThread) {
    TextWorker::Options worker = TextWorkerFor(config_, opener_.models(), context_.get());
    worker.tokens_endpoint = kTokensInside;
    worker.aborts_endpoint = kAbortsInside;
    worker.ask_endpoint = kAskInside;
    worker.meters = meters_.text();
    auto text = TextWorker::Create(worker);
    if (!text.ok()) return text.status();
    text_worker_ = *std::move(text);
  }
  return absl::OkStatus();
}

absl::Status Daemon::StartRecorder() {
  if (!config_.trace.enabled()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<TraceRecorder>> recorder =
      TraceRecorder::Start({.trace = config_.trace,
                            .process = {.specd_version = kVersion,
                                        .build = kBuildIdentity,
                                        .processor = ProcessorName(),
                                        .tokenizer = config_.model.tokenizer_path},
                            .clock = Clock::Real(),
                            .log = &LogTrace});
  if (!recorder.ok()) return recorder.status();
  recorder_ = *std::move(recorder);
  return absl::OkStatus();
}

// SIGUSR1.
void Daemon::DumpTraces() {
  if (recorder_ != nullptr) return recorder_->DumpAll();
  Log("trace").warn("SIGUSR1 writes a trace, and none is recorded; start with --trace=DIR");
}

void Daemon::StartDevice() {
  platform_ = MakeDaemonPlatform();
  importer_ = std::make_unique<DeviceImporter>(platform_.get(), [this](std::string_view why) {
    DeviceFailed(fmt::format("memory of an engine on it cannot be reached: {}", why));
  });
  std::vector<GpuDevice> devices;
  if (!platform_->ListDevices(&devices).ok()) return;  // the engine that wants to share is told
  mps_ = DescribeMps(devices, MpsPipeDirectory());
  for (const GpuDevice& device : devices) {
    if (device.has_mps.value_or(true)) continue;
    Log("attach").warn(
        "{} ({}) is not shared through MPS: an engine there and this daemon take turns, about 2 ms "
        "each; start nvidia-cuda-mps-control, or run specd embedded",
        device.name, device.uuid);
  }
}

absl::Status Daemon::StartControl(UniqueFd listening) {
  ControlServer::Options options;
  options.path = config_.listen_path;
  options.allowed_uids = config_.allowed_uids;
  options.max_sessions = config_.max_sessions;
  options.clock = Clock::Real();
  options.open_session = [this](const HelloRequest& request, uint32_t uid) {
    return opener_.Open(request, uid);
  };
  options.serve = [this](const std::shared_ptr<Session>& session) {
    sessions_.Add(session);
    verify_.Wake();
  };
  options.sessions = &sessions_;
  options.on_drain = [this] { meters_.SetPhase(DaemonPhase::kDraining); };
  options.meters = meters_.control();
  options.hello.version = kVersion;
  options.hello.device = config_.device;
  options.hello.device_uuid = device_uuid_;
  options.hello.mps = mps_;
  options.hello.tokens_endpoint = config_.tokens_endpoint;
  if (config_.detokenizer != DetokenizerMode::kOff) {
    options.hello.text_endpoint = config_.text_endpoint;
  }
  absl::StatusOr<std::unique_ptr<ControlServer>> control =
      ControlServer::Create(options, std::move(listening));
  if (!control.ok()) return control.status();
  control_ = *std::move(control);
  return absl::OkStatus();
}

bool Daemon::TextSideAlive() const {
  return text_worker_ != nullptr ||
         (config_.detokenizer == DetokenizerMode::kProcess && publisher_->TextSideAlive());
}

void Daemon::DeviceFailed(std::string_view why) {
  Log("verify").critical("the {} device failed, so this process ends and has to be restarted: {}",
                         config_.device, why);
  device_failed_.store(true);
  kill(getpid(), SIGTERM);
}

int Daemon::Run(int signal_fd) {
  std::thread text;
  if (text_worker_ != nullptr) text = std::thread([this] { text_worker_->Run(); });
  std::thread publisher([this] { publisher_->Run(); });
  std::thread verify([this] { verify_.Run(); });
  Log("attach").info("specd {} serves unix:{} on {}", kVersion, config_.listen_path,
                     config_.device);
  NotifyServiceManager("READY=1");
  Log("egress").info("token events on {}", config_.tokens_endpoint);
  WarnOfOpenEndpoint("tokens", config_.tokens_endpoint);
  WarnOfOpenEndpoint("ask", config_.ask_endpoint);
  if (text_worker_ != nullptr) {
    Log("egress").info("text on {}", config_.text_endpoint);
    WarnOfOpenEndpoint("text", config_.text_endpoint);
    WarnOfOpenEndpoint("text_ask", config_.text_ask_endpoint);
  }
  if (config_.detokenizer == DetokenizerMode::kProcess) {
    WarnOfOpenEndpoint("aborts", config_.aborts_endpoint);
  }
  if (recorder_ != nullptr) Log("trace").info("traces in {}", config_.trace.directory);
  if (const uint64_t limit = FindLimitForSessions(config_); limit > 0) {
    Log("attach").warn(
        "the limit of open files is too low for as many engines as --max_sessions = {} allows, if "
        "each registers all that it may; {} is enough for them (ulimit -Hn, LimitNOFILE=)",
        config_.max_sessions, limit);
  }
  meters_.SetPhase(DaemonPhase::kServing);
  control_->Run(signal_fd);
  while (TakeSignal(signal_fd) == SIGUSR1) {
    DumpTraces();
    control_->Run(signal_fd);
  }

  // Drain: the daemon takes nothing new and answers the rounds that were submitted. Then each stage
  // stops after the stage that feeds it.
  meters_.SetPhase(DaemonPhase::kDraining);
  NotifyServiceManager("STOPPING=1");
  Log("attach").info("stopping");
  SessionList::Snapshot all;
  uint64_t version = 0;
  sessions_.Refresh(&version, &all);
  for (const auto& session : all) session->Drain();
  verify_.Stop();
  verify.join();
  control_->Close();
  if (recorder_ != nullptr) recorder_->Stop();
  publisher_->Stop();
  publisher.join();
  if (text_worker_ != nullptr) {
    text_worker_->Stop();
    text.join();
  }
  const Counters sums = meters_.Sums();
  Log("attach").info("stopped after {} rounds, {} tokens, {} drafts of which {} accepted",
                     sums.rounds, sums.kept, sums.drafted, sums.accepted);
  return device_failed_.load() ? kExitDeviceFailed : 0;
}

int FailToStart(const absl::Status& status) {
  std::fprintf(stderr, "specd: %s\n", std::string(status.message()).c_str());
  return kExitCouldNotStart;
}

}  // namespace

int RunDaemon(const DaemonConfig& config, UniqueFd listening) {
  OpenSocketsToGroup();
  const UniqueFd signal_fd = BlockedSignals();
  if (absl::Status status = CheckDescriptors(config, CountOwnDescriptors(config)); !status.ok()) {
    return FailToStart(status);
  }
  const uint64_t epoch = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  const absl::StatusOr<std::unique_ptr<DaemonMeters>> meters =
      DaemonMeters::Create(MetersFor(config, epoch));
  if (!meters.ok()) return FailToStart(meters.status());
  Daemon daemon(config, epoch, meters->get());
  if (absl::Status status = daemon.Start(std::move(listening)); !status.ok())
    return FailToStart(status);
  return daemon.Run(signal_fd.get());
}

}  // namespace specd
