#include "tests/simulator/sim_daemon.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/core/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/simulator/sim_clock.h"

namespace specd::sim {
namespace {

constexpr char kTokens[] = "inproc://tokens";
constexpr char kAborts[] = "inproc://aborts";
constexpr char kAsk[] = "inproc://ask";

// No run is so long: what readers ask for is kept, and a text side may come back late.
constexpr int64_t kForeverNs = int64_t{1} << 50;

}  // namespace

std::unique_ptr<TextWorker> MakeTextWorker(const ModelProfile& profile, ZmqContext* context) {
  TextWorker::Options options;
  options.vocabularies = {{profile.name, &*profile.vocabulary}};
  options.clock = &SimClock::OfProcess();
  options.context = context;
  options.tokens_endpoint = kTokens;
  options.aborts_endpoint = kAborts;
  options.ask_endpoint = kAsk;
  options.text_endpoint = "inproc://text";
  options.text_ask_endpoint = "inproc://text_ask";
  options.keep.ended_ns = kForeverNs;
  options.tokenizers = {{profile.name, profile.tokenizer_hash}};
  auto worker = TextWorker::Create(options);
  SPECD_CHECK(worker.ok());
  return *std::move(worker);
}

SimDaemon::SimDaemon(const Options& options)
    : options_(options),
      verify_(&sessions_, {.spin_ns = 0,
                           .on_device_failure = [](std::string_view) { SPECD_CHECK(false); },
                           .on_channel_fault = [](Session&, ChannelFault) {}}) {
  Publisher::Options publisher;
  publisher.sessions = &sessions_;
  publisher.clock = &SimClock::OfProcess();
  publisher.context = options.context;
  publisher.epoch = options.epoch;
  publisher.tokens_endpoints = {kTokens + options.host};
  publisher.aborts_endpoints = {kAborts + options.host};
  publisher.ask_endpoints = {kAsk + options.host};
  publisher.keep.ended_ns = kForeverNs;
  publisher.tokenizers = {{options.profile->name, options.profile->tokenizer_hash}};
  publisher.watch_text_side = !options.has_text_side;
  publisher.text_grace_ns = kForeverNs;
  publisher.meters = &meters_;
  auto made = Publisher::Create(publisher);
  SPECD_CHECK(made.ok());
  publisher_ = *std::move(made);
  if (options.has_text_side) text_ = MakeTextWorker(*options.profile, options.context);
}

SimDaemon::~SimDaemon() {
  if (is_running_) Kill();
}

absl::StatusOr<std::shared_ptr<Session>> SimDaemon::OpenSession(const HelloRequest& request) {
  SessionOptions options;
  options.identity = {.session_id = next_session_id_++, .daemon_epoch = options_.epoch};
  options.limits = request.limits;
  options.origin = {
      .resumes = request.resumes, .owner = request.owner, .generation = request.generation};
  options.profile = options_.profile;
  options.clock = &SimClock::OfProcess();
  options.names = &names_;
  options.piece_work = options_.piece_work;
  options.memory = &memory_;
  options.memory_bytes_max = kSessionsBytes;
  options.publish_events = true;
  options.text_side = [this] { return text_ != nullptr || publisher_->TextSideAlive(); };
  options.text_side_comes = true;
  return Session::Create(options, MakeCpuBackend());
}

std::shared_ptr<SimDaemon::Connection> SimDaemon::Accept() {
  StepControl();  // a hang-up is served before a new connection
  ControlHost host;
  host.open_session = [this](const HelloRequest& request) { return OpenSession(request); };
  host.serve = [this](const std::shared_ptr<Session>& session) { sessions_.Add(session); };
  host.hello.version = "simulated";
  auto connection = std::make_shared<Connection>();
  connection->service.emplace(std::move(host));
  connections_.push_back(connection);
  return connection;
}

void SimDaemon::StepControl() {
  std::erase_if(connections_, [](const std::shared_ptr<Connection>& connection) {
    const std::shared_ptr<Session>& session = connection->service->session();
    const bool has_ended = session != nullptr && session->ended();
    if (connection->has_engine && !has_ended) return false;
    if (session != nullptr) session->EndAll();
    connection->is_open = false;
    connection->service.reset();
    return true;
  });
}

void SimDaemon::HangUp() {
  for (const auto& connection : connections_) {
    connection->is_open = false;
    connection->service.reset();
  }
  connections_.clear();
  text_.reset();
  publisher_.reset();
  is_running_ = false;
}

void SimDaemon::Kill() {
  uint64_t version = 0;
  sessions_.Refresh(&version, &dead_);
  for (const auto& connection : connections_) {
    if (connection->service->session() != nullptr) dead_.push_back(connection->service->session());
  }
  HangUp();
}

void SimDaemon::Stop() {
  SessionList::Snapshot all;
  uint64_t version = 0;
  sessions_.Refresh(&version, &all);
  for (const auto& session : all) session->Drain();
  verify_.Stop();
  for (int idle = 0; idle < 2;) idle = verify_.Step() || publisher_->Step() ? 0 : idle + 1;
  for (const auto& connection : connections_) {
    if (connection->service->session() != nullptr) connection->service->session()->EndAll();
  }
  publisher_->Stop();
  publisher_->Run();
  if (text_ != nullptr) {
    text_->Stop();
    text_->Run();
  }
  all.clear();
  HangUp();
}

std::vector<uint64_t> SimDaemon::SessionBytes() const {
  std::vector<uint64_t> bytes;
  for (const auto& connection : connections_) {
    bytes.push_back(connection->service->session()->memory()->taken_bytes());
  }
  return bytes;
}

std::string SimDaemon::Leftovers() const {
  SessionList::Snapshot all;
  uint64_t version = 0;
  sessions_.Refresh(&version, &all);
  if (!all.empty()) return fmt::format("{} sessions are listed", all.size());
  if (memory_.taken_bytes() != 0) return fmt::format("{} bytes are taken", memory_.taken_bytes());
  if (meters_.open_sequences.value() != 0) {
    return fmt::format("{} streams are open", meters_.open_sequences.value());
  }
  return {};
}

}  // namespace specd::sim
