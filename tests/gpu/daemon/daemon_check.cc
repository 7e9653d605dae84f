#include "tests/gpu/daemon/daemon_check.h"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "tests/gpu/daemon/daemon_scene.h"

namespace specd {

namespace {

const Child::Environment kDeviceWaits = {"SPECD_STREAM_WAITS=device"};
const Child::Environment kHostWaits = {"SPECD_STREAM_WAITS=host"};

AttachResult Passed(const DaemonSetting& setting, const char* what) {
  return {AttachStatus::kPass, fmt::format("{} rounds {}", setting.num_rounds, what)};
}

AttachResult CheckRounds(const DaemonSetting& setting) {
  return PlayDaemonScene(setting, [&](DaemonScene& scene) {
    scene.EndsWell(scene.StartEngine("rounds", kDeviceWaits));
    return Passed(setting, "give the ids that their rows say, to the engine and on the device");
  });
}

AttachResult CheckPair(const DaemonSetting& setting) {
  return PlayDaemonScene(setting, [&](DaemonScene& scene) {
    scene.EndsWell(scene.StartEngine("pair", kDeviceWaits));
    return Passed(setting, "on each of two streams");
  });
}

AttachResult CheckHostWaits(const DaemonSetting& setting) {
  return PlayDaemonScene(setting, [&](DaemonScene& scene) {
    scene.EndsWell(scene.StartEngine("rounds", kHostWaits));
    return Passed(setting, "with functions of the host in the stream's place");
  });
}

AttachResult CheckEngineKilled(const DaemonSetting& setting) {
  return PlayDaemonScene(setting, [&](DaemonScene& scene) {
    Child& steady = scene.StartEngine("endless");
    scene.GoesOn(steady);
    // One engine is killed in the middle of rounds, and one with a round whose rows are never
    // ready.
    Child& busy = scene.StartEngine("endless");
    scene.GoesOn(busy);
    busy.Kill();
    scene.Until(scene.daemon(), " ended: ");
    scene.GoesOn(steady);
    Child& held = scene.StartEngine("held");
    scene.Until(held, "held");
    held.Kill();
    scene.Until(scene.daemon(), " ended: ");
    scene.GoesOn(steady);
    // There is room again, and the other engine has lost nothing.
    scene.EndsWell(scene.StartEngine("rounds"));
    steady.SendLine();
    scene.EndsWell(steady);
    return AttachResult{AttachStatus::kPass, "the other engine goes on, and a new one is served"};
  });
}

AttachResult CheckLateEngine(const DaemonSetting& setting) {
  return PlayDaemonScene(setting, [&](DaemonScene& scene) {
    Child& late = scene.StartEngine("held");
    scene.Until(late, "held");
    scene.EndsWell(scene.StartEngine("rounds"));
    late.SendLine();
    scene.EndsWell(late);
    return AttachResult{AttachStatus::kPass,
                        "it holds up nobody, and is answered when its rows are there"};
  });
}

// Stops the daemon before it can see the rounds.
void PlayLateDaemon(DaemonScene* scene) {
  Child& engine = scene->StartEngine("late");
  scene->Until(engine, "attached");
  scene->daemon().Signal(SIGSTOP);
  engine.SendLine();
  scene->Until(engine, "aborted");
  scene->daemon().Signal(SIGCONT);
  engine.SendLine();
  scene->EndsWell(engine);
}

// Stops the daemon at any moment, also in the middle of a round. Between claim and completion the
// daemon holds the CUDA stream until it continues; such a stop shows nothing.
int PlayStoppedDaemon(DaemonScene* scene) {
  using Clock = std::chrono::steady_clock;
  constexpr int kStops = 10;
  constexpr int kPatienceMs = 1000;
  int num_aborts = 0;
  Child& engine = scene->StartEngine("stopped");
  for (int i = 0; i < kStops; ++i) {
    scene->GoesOn(engine);
    const Clock::time_point step = Clock::now();
    scene->Until(engine, "round ");
    // The next step takes as long, so each stop finds the daemon elsewhere.
    std::this_thread::sleep_for((Clock::now() - step) * i / kStops);
    scene->daemon().Signal(SIGSTOP);
    engine.SkipPrinted();
    if (engine.AwaitText("aborted", kPatienceMs)) ++num_aborts;
    scene->daemon().Signal(SIGCONT);
  }
  engine.SendLine();
  scene->EndsWell(engine);
  return num_aborts;
}

AttachResult CheckLateDaemon(const DaemonSetting& setting) {
  return PlayDaemonScene(setting, [&](DaemonScene& scene) {
    PlayLateDaemon(&scene);
    const int num_aborts = PlayStoppedDaemon(&scene);
    Expect(num_aborts > 0, "no stop of the daemon released the stream");
    return AttachResult{
        AttachStatus::kPass,
        fmt::format("the stream is released, and what comes late is written nowhere; so {} times "
                    "more in the middle of rounds",
                    num_aborts)};
  });
}

AttachResult CheckDaemonKilled(const DaemonSetting& setting) {
  return PlayDaemonScene(setting, [&](DaemonScene& scene) {
    Child& engine = scene.StartEngine("wait");
    scene.Until(engine, "attached");
    scene.daemon().Signal(SIGSTOP);  // so that it cannot answer first
    engine.SendLine();
    scene.Until(engine, "waiting");
    scene.daemon().Kill();
    scene.EndsWell(engine, "released");
    scene.StartDaemon();
    scene.EndsWell(scene.StartEngine("rounds"));
    return AttachResult{AttachStatus::kPass,
                        "the stream is released with nothing confirmed, and the next one serves"};
  });
}

AttachResult CheckDaemonReplaced(const DaemonSetting& setting) {
  return PlayDaemonScene(setting, [&](DaemonScene& scene) {
    Child& engine = scene.StartEngine("replaced");
    for (int i = 0; i < 3; ++i) {
      scene.GoesOn(engine);
      scene.daemon().Kill();
      scene.StartDaemon();
    }
    scene.GoesOn(engine);
    engine.SendLine();
    scene.Until(engine, "reattached 3, ");
    scene.EndsWell(engine);
    return AttachResult{AttachStatus::kPass, "rows, outputs and streams go on at the next daemon"};
  });
}

double NumberBehind(const std::string& line, const std::string& field) {
  const size_t found = line.find("\"" + field + "\":");
  return found == std::string::npos ? 0
                                    : std::strtod(line.c_str() + found + field.size() + 3, nullptr);
}

// The figures are lines of JSON. The result has the figures of the first way onto a CUDA stream
// that the device has.
AttachResult CheckRoundTime(const DaemonSetting& setting) {
  return PlayDaemonScene(setting, [&](DaemonScene& scene) {
    AttachResult result{AttachStatus::kObserved};
    std::string without;
    for (const Child::Environment& waits : {kDeviceWaits, kHostWaits}) {
      Child& engine = scene.StartEngine("time", waits);
      scene.EndsWell(engine);
      std::istringstream lines(engine.text());
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("without ")) without = "; " + line;
        if (line.empty() || line[0] != '{') continue;
        std::printf("%s\n", line.c_str());
        if (!result.figures.empty() || line.find("\"road\":\"stream") == std::string::npos) {
          continue;
        }
        result.figures = {{"median_us", NumberBehind(line, "median_us")},
                          {"p99_us", NumberBehind(line, "p99_us")}};
      }
    }
    Expect(!result.figures.empty(), "no round on a stream was timed");
    result.detail =
        fmt::format("a round of one sequence on a stream{}: median {:.1f} us, p99 {:.1f}{}",
                    without.empty() ? "" : ", host waits", result.figures[0].second,
                    result.figures[1].second, without);
    return result;
  });
}

}  // namespace

const std::vector<DaemonCheck>& DaemonChecks() {
  static const auto* const checks = new std::vector<DaemonCheck>{
      {"rounds", "an engine's stream finds the right ids, next tokens and words after rounds",
       CheckRounds},
      {"pair", "two engines of one process do not stand in each other's way", CheckPair},
      {"host_waits", "the same as rounds where functions of the host wait in the stream's place",
       CheckHostWaits},
      {"engine_killed", "an engine that is killed disturbs no other", CheckEngineKilled},
      {"late_engine", "rows that are not ready hold up no other engine", CheckLateEngine},
      {"late_daemon", "a daemon that is late confirms nothing and writes nothing", CheckLateDaemon},
      {"daemon_killed", "a daemon that is killed leaves no stream waiting", CheckDaemonKilled},
      {"daemon_replaced", "an engine goes on at the next daemon", CheckDaemonReplaced},
      {"round_time", "what a round takes, as the engine sees it", CheckRoundTime}};
  return *checks;
}

}  // namespace specd
