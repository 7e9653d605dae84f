#include "tools/bench/egress_http.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/base/unique_fd.h"
#include "tools/bench/child_process.h"
#include "tools/bench/egress_scene.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr uint64_t kClients[] = {1, 100, 1000};
constexpr uint64_t kEvents = 102'400;  // of tokens, of all streams
constexpr uint64_t kRoundsMax = 4096;  // of a stream

// specd-http, over the text side of this process.
class HttpProcess {
 public:
  absl::Status Start(const std::string& program, const TextSide& side) {
    path_ = side.folder() + "/http";
    SPECD_TAKE(process_, ChildProcess::Start(
                             {.words = {program, "--listen=unix:" + path_,
                                        // No counters, and no aborts.
                                        "--specd=unix:" + side.folder() + "/none",
                                        "--text=" + side.TextEndpoint(),
                                        "--text_ask=" + side.AskEndpoint(), "--streams_max=2000"},
                              .is_quiet = true}));
    const SteadyClock::time_point start = SteadyClock::now();
    while (!Connect().valid()) {
      if (process_->HasEnded() || SteadyClock::now() - start > kEgressWaitMax) {
        return Broken(program + " does not serve; see --http");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return absl::OkStatus();
  }
  UniqueFd Connect() const {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      fd.Reset();
    }
    return fd;
  }
  // Of the process, so far.
  double CpuSeconds() const {
    timespec time = {};
    clockid_t clock = 0;
    if (clock_getcpuclockid(process_->pid(), &clock) != 0 || clock_gettime(clock, &time) != 0) {
      return 0;
    }
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }

 private:
  std::string path_;
  std::unique_ptr<ChildProcess> process_;
};

// One client: what it has read of its stream, in the framing of completions.
struct SseClient {
  UniqueFd fd;
  std::string unread = {};  // bytes of an event that is not whole, or of the head
  bool has_head = false;
  bool is_done = false;
  std::string text = {};
  uint64_t num_events = 0;
  uint64_t wire_bytes = 0;

  // HTTP/1.0, so the body ends with the connection and has no chunks.
  absl::Status Ask(UniqueFd connected, uint64_t stream) {
    fd = std::move(connected);
    const std::string request =
        fmt::format("GET /v1/streams/r{} HTTP/1.0\r\nHost: localhost\r\n\r\n", stream);
    const bool is_sent = send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) ==
                         static_cast<ssize_t>(request.size());
    return is_sent ? absl::OkStatus() : Broken("a client cannot ask");
  }

  // Takes what has come.
  absl::Status Read() {
    std::array<char, 65536> buffer;
    const ssize_t size = recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size <= 0) return Broken(fmt::format("a text broke off behind {} bytes", text.size()));
    wire_bytes += static_cast<uint64_t>(size);
    unread.append(buffer.data(), static_cast<size_t>(size));
    size_t begin = 0;
    while (!is_done) {
      const size_t end = unread.find(has_head ? "\n\n" : "\r\n\r\n", begin);
      if (end == std::string::npos) break;
      const std::string_view part(unread.data() + begin, end - begin);
      if (has_head) {
        Take(part);
      } else if (part.find(" 200 ") == std::string_view::npos) {
        return Broken(fmt::format("a client was answered {}", part.substr(0, 100)));
      }
      begin = end + (has_head ? 2 : 4);
      has_head = true;
    }
    unread.erase(0, begin);
    return absl::OkStatus();
  }

 private:
  void Take(std::string_view event) {
    constexpr std::string_view kText = "\"text\":\"";
    ++num_events;
    is_done = event.find("data: [DONE]") != std::string_view::npos;
    const size_t at = event.find(kText);
    if (at == std::string_view::npos) return;
    event.remove_prefix(at + kText.size());
    text += event.substr(0, event.find('"'));  // letters and spaces, nothing is escaped
  }
};

class SseClients {
 public:
  SseClients() : poller_(epoll_create1(EPOLL_CLOEXEC)) {}

  // Until all clients have the heads of their answers.
  absl::Status Connect(uint64_t count, const HttpProcess& http) {
    clients_.resize(count);
    for (uint64_t i = 0; i < count; ++i) {
      SPECD_TRY(clients_[i].Ask(http.Connect(), i + 1));
      epoll_event event = {.events = EPOLLIN, .data = {.u64 = i}};
      epoll_ctl(poller_.get(), EPOLL_CTL_ADD, clients_[i].fd.get(), &event);
    }
    return ReadUntil(&SseClient::has_head);
  }
  // To the end of all texts, which must be those of the streams.
  absl::Status ReadAll(uint64_t num_tokens) {
    SPECD_TRY(ReadUntil(&SseClient::is_done));
    for (uint64_t i = 0; i < clients_.size(); ++i) {
      std::string expected;
      const TokenEvent all = TokensEvent(i + 1, 0, num_tokens);
      for (const TokenId id : all.tokens()->ids) {
        expected += fmt::format(" {}x", static_cast<char>('a' + id));
      }
      if (clients_[i].text != expected) return Broken(fmt::format("client {} has another text", i));
    }
    return absl::OkStatus();
  }
  double Sum(uint64_t SseClient::*member) const {
    uint64_t sum = 0;
    for (const SseClient& each : clients_) sum += each.*member;
    return static_cast<double>(sum);
  }

 private:
  absl::Status ReadUntil(bool SseClient::*is_over) {
    std::array<epoll_event, 64> events;
    auto num_left = std::count_if(clients_.begin(), clients_.end(),
                                  [&](const SseClient& each) { return !(each.*is_over); });
    while (num_left > 0) {
      const int num_events =
          epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()),
                     static_cast<int>(std::chrono::milliseconds(kEgressWaitMax).count()));
      if (num_events <= 0) return Broken("the texts have no end");
      for (int i = 0; i < num_events; ++i) {
        SseClient& client = clients_[events[static_cast<size_t>(i)].data.u64];
        const bool was_over = client.*is_over;
        SPECD_TRY(client.Read());
        if (!was_over && client.*is_over) --num_left;
        if (client.is_done) epoll_ctl(poller_.get(), EPOLL_CTL_DEL, client.fd.get(), nullptr);
      }
    }
    return absl::OkStatus();
  }

  const UniqueFd poller_;
  std::vector<SseClient> clients_;
};

absl::Status MeasureClients(const std::string& program, uint64_t num_clients, Output* out) {
  EgressScene scene;
  SPECD_TRY(scene.Start());
  SPECD_TRY(scene.side.Start());
  // This reader knows when the text side has begun.
  SPECD_TRY(
      EgressReader(&scene.side).Subscribe(&scene.side, [&] { scene.source.SendHeartbeat(); }));
  HttpProcess http;
  SPECD_TRY(http.Start(program, scene.side));
  scene.source.OpenAll(num_clients);
  SseClients clients;
  SPECD_TRY(clients.Connect(num_clients, http));
  const uint64_t num_rounds = std::min(kEvents / num_clients, kRoundsMax);
  const double before_bytes = clients.Sum(&SseClient::wire_bytes);
  const double before_s = http.CpuSeconds();
  const LoadMeter meter;
  const SteadyClock::time_point start = SteadyClock::now();
  std::thread writer([&] { scene.source.WriteAll(num_clients, num_rounds); });
  const absl::Status status = clients.ReadAll(num_rounds * kTokensOfRound);
  const double seconds = MicrosSince(start) / 1e6;
  writer.join();
  SPECD_TRY(status);
  const auto num_tokens = static_cast<double>(num_clients * num_rounds * kTokensOfRound);
  const double num_events = clients.Sum(&SseClient::num_events);
  const double wire_bytes = clients.Sum(&SseClient::wire_bytes) - before_bytes;
  Line line;
  line.Name("case", "http", 10)
      .Count("clients", static_cast<int64_t>(num_clients), 8)
      .Count("tokens", static_cast<int64_t>(num_tokens), 8)
      .Cell("tokens/s", 9, "{:.0f}", num_tokens / seconds)
      .Cell("sse/s", 8, "{:.0f}", num_events / seconds)
      .Cell("MB/s", 7, "{:.1f}", wire_bytes / seconds / 1e6)
      .Cell("tokens/sse", 10, "{:.1f}", num_tokens / num_events)
      .Cell("cpu us/sse", 10, "{:.1f}", 1e6 * (http.CpuSeconds() - before_s) / num_events)
      .Json("tokens_per_s", num_tokens / seconds)
      .Load(meter.Read());
  out->Print(line);
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureHttp(const std::string& program, Output* out) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  out->NextTable();
  for (const uint64_t num_clients : kClients) {
    out->Show(fmt::format("{} clients", num_clients));
    SPECD_TRY(MeasureClients(program, num_clients, out));
  }
  return absl::OkStatus();
}

}  // namespace specd::bench
