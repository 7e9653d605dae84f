#include "tools/specctl/serve.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string_view>

#include "daemon/base/awake_time.h"
#include "ipc/counters/open_metrics.h"
#include "tools/specctl/health.h"
#include "tools/specctl/http_server.h"

namespace specd::ctl {
namespace {

class Site {
 public:
  explicit Site(const std::string& path) : path_(path), awake_(2 * Health::kLookNs) {}

  absl::StatusOr<CounterSnapshot> Look() {
    absl::StatusOr<CounterSnapshot> found = ReadCounters(path_);
    const auto clock = std::chrono::steady_clock::now().time_since_epoch();
    health_.Look(found, awake_.Step(std::chrono::nanoseconds(clock).count()));
    return found;
  }

  HttpAnswer Answer(std::string_view path) {
    const absl::StatusOr<CounterSnapshot> found = Look();
    const Health::Verdict& verdict = health_.verdict();
    const auto say = [&verdict](bool is_fine) {
      return HttpAnswer{.status = is_fine ? 200U : 503U, .body = verdict.why + "\n"};
    };
    if (path == "/live") return say(verdict.is_live);
    if (path == "/ready") return say(verdict.is_ready);
    if (path != "/metrics") {
      return {.status = 404, .body = "there are /metrics, /live and /ready\n"};
    }
    // The last numbers of a dead daemon would look like those of one that idles.
    if (!found.ok() || !found->is_alive) return say(false);
    return {.content_type = kOpenMetricsType, .body = OpenMetrics(*found)};
  }

 private:
  const std::string path_;
  AwakeTime awake_;
  Health health_;
};

}  // namespace

absl::Status Serve(const std::string& counters_path, const std::string& address) {
  Site site(counters_path);
  absl::StatusOr<HttpServer> server =
      HttpServer::Create({.address = address,
                          .answer = [&site](std::string_view path) { return site.Answer(path); },
                          .look = [&site] { (void)site.Look(); },
                          .look_ms = Health::kLookNs / 1'000'000});
  if (!server.ok()) return server.status();
  fmt::print(stderr, "specctl: serves http://{}/metrics of {}\n", server->address(), counters_path);
  if (!server->is_loopback()) {
    fmt::print(stderr,
               "specctl: everybody who reaches {} may read the counters; put a firewall before "
               "it\n",
               server->address());
  }
  server->Run();
  return absl::OkStatus();
}

}  // namespace specd::ctl
