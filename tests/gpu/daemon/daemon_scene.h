// DaemonScene runs a daemon in a folder of its own and the engines of one check. If an awaited step
// does not come, the check ends with the last line of the child that should have taken it. One
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/attach/scene.h"
#include "tests/gpu/daemon/child.h"
#include "tests/gpu/daemon/daemon_check.h"

namespace specd {

class DaemonScene {
 public:
  explicit DaemonScene(const DaemonSetting& setting);
  ~DaemonScene();
  DaemonScene(const DaemonScene&) = delete;
  DaemonScene& operator=(const DaemonScene&) = delete;

  // Replaces the present daemon, if there is one. Returns when the new daemon serves.
  void StartDaemon();
  Child& daemon() { return *daemon_; }

  // Starts an engine in a mode of tests/support/stream_engine_program.h. The engine lives as long
  // as the scene.
  Child& StartEngine(const std::string& mode, const Child::Environment& environment = {});
  // Waits until the child prints `text`. Skips the check if the child ends because the device lacks
  // a feature that it needs.
  void Until(Child& child, const std::string& text);
  // Waits until the engine prints `text` and ends with status 0.
  void EndsWell(Child& engine, const std::string& text = "ok");
  // Waits for rounds that have not been printed yet.
  void GoesOn(Child& engine);
  // Asks the daemon to stop. It must drain and end with status 0.
  void StopDaemon();

 private:
  bool Await(Child& child, const std::string& text);
  [[noreturn]] void Fail(Child& child, const std::string& what);

  const DaemonSetting& setting_;
  std::string folder_;
  std::unique_ptr<Child> daemon_;
  std::vector<std::unique_ptr<Child>> engines_;
};

// Plays the scenario, stops the daemon, and returns the result.
AttachResult PlayDaemonScene(const DaemonSetting& setting,
                             const std::function<AttachResult(DaemonScene&)>& scenario);

}  // namespace specd
