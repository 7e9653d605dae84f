// A daemon in a folder of its own and the engines of one check. A step that does not come ends the
// check, with the last line of whoever was to take it. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/gpu_check/attach/scene.h"
#include "tools/gpu_check/daemon/child.h"
#include "tools/gpu_check/daemon/daemon_check.h"

namespace specd {

class DaemonScene {
 public:
  explicit DaemonScene(const DaemonSetting& setting);
  ~DaemonScene();
  DaemonScene(const DaemonScene&) = delete;
  DaemonScene& operator=(const DaemonScene&) = delete;

  // In place of the one there was; returns when it serves.
  void StartDaemon();
  Child& daemon() { return *daemon_; }

  // In a mode of tests/support/stream_engine_program.h. It lives as long as the scene.
  Child& StartEngine(const std::string& mode, const Child::Environment& environment = {});
  // Skips the check where the child ends because the device does not have what it needs.
  void Until(Child& child, const std::string& text);
  // It prints that and ends with status 0.
  void EndsWell(Child& engine, const std::string& text = "ok");
  // Rounds go on that have not been printed yet.
  void GoesOn(Child& engine);
  // Asked to stop, it drains and ends with status 0.
  void StopDaemon();

 private:
  bool Await(Child& child, const std::string& text);
  [[noreturn]] void Fail(Child& child, const std::string& what);

  const DaemonSetting& setting_;
  std::string folder_;
  std::unique_ptr<Child> daemon_;
  std::vector<std::unique_ptr<Child>> engines_;
};

// Plays it, stops the daemon, and says what came of it.
AttachResult PlayDaemonScene(const DaemonSetting& setting,
                             const std::function<AttachResult(DaemonScene&)>& scenario);

}  // namespace specd
