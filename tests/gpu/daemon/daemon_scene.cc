#include "tests/gpu/daemon/daemon_scene.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "tests/support/cuda_stream_engine.h"

namespace specd {

DaemonScene::DaemonScene(const DaemonSetting& setting) : setting_(setting) {
  folder_ = setting.folder + "/check.XXXXXX";
  Expect(mkdtemp(folder_.data()) != nullptr,
         fmt::format("no folder can be made in '{}'", setting.folder));
}

DaemonScene::~DaemonScene() {
  engines_.clear();
  daemon_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void DaemonScene::Fail(Child& child, const std::string& what) {
  const bool has_ended = child.has_closed_output() || !child.IsRunning();
  const int status = has_ended ? child.AwaitEnd(setting_.patience_ms) : 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kEngineSkips) {
    throw SceneOver{AttachStatus::kSkipped, child.LastLine()};
  }
  std::string text = fmt::format("{} {}: {}", child.name(), what, child.LastLine());
  // If the daemon has ended, an engine's error does not say why. The daemon's output does.
  if (daemon_ != nullptr && &child != daemon_.get() && !daemon_->IsRunning()) {
    daemon_->SkipPrinted();
    text += "; the daemon has ended: " + daemon_->LastLine();
  }
  throw SceneOver{AttachStatus::kFail, text};
}

void DaemonScene::StartDaemon() {
  daemon_.reset();
  daemon_ = std::make_unique<Child>(
      "the daemon", std::vector<std::string>{setting_.daemon, "--listen=unix:" + folder_ + "/s",
                                             "--device=cuda", "--detokenizer=off"});
  Until(*daemon_, " on cuda\n");
}

Child& DaemonScene::StartEngine(const std::string& mode, const Child::Environment& environment) {
  std::vector<std::string> command = setting_.engine;
  command.insert(command.end(),
                 {mode, "unix:" + folder_ + "/s", std::to_string(setting_.num_rounds)});
  engines_.push_back(std::make_unique<Child>(
      fmt::format("engine {} ({})", engines_.size() + 1, mode), command, environment));
  return *engines_.back();
}

// Waits in slices. Another engine must continue meanwhile, and would stand still at a full pipe.
bool DaemonScene::Await(Child& child, const std::string& text) {
  constexpr int kSliceMs = 10;
  for (int left_ms = setting_.patience_ms; left_ms > 0; left_ms -= kSliceMs) {
    for (const auto& engine : engines_) engine->TakePrinted();
    if (child.AwaitText(text, std::min(left_ms, kSliceMs))) return true;
    if (child.has_closed_output()) return false;
  }
  return false;
}

void DaemonScene::Until(Child& child, const std::string& text) {
  if (Await(child, text)) return;
  Fail(child, child.has_closed_output()
                  ? "ends"
                  : fmt::format("does not come to '{}' within {} ms",
                                text.substr(0, text.find('\n')), setting_.patience_ms));
}

void DaemonScene::EndsWell(Child& engine, const std::string& text) {
  Until(engine, text + "\n");
  const int status = engine.AwaitEnd(setting_.patience_ms);
  if (status != 0) Fail(engine, fmt::format("ends with wait status {:#x}", status));
}

void DaemonScene::GoesOn(Child& engine) {
  engine.SkipPrinted();
  // The first round may have been under way.
  for (int i = 0; i < 2; ++i) Until(engine, "round ");
}

void DaemonScene::StopDaemon() {
  daemon_->Signal(SIGTERM);
  const int status = daemon_->AwaitEnd(setting_.patience_ms);
  if (status != 0) Fail(*daemon_, fmt::format("stops with wait status {:#x}", status));
}

AttachResult PlayDaemonScene(const DaemonSetting& setting,
                             const std::function<AttachResult(DaemonScene&)>& scenario) {
  try {
    DaemonScene scene(setting);
    scene.StartDaemon();
    const AttachResult result = scenario(scene);
    scene.StopDaemon();
    return result;
  } catch (const SceneOver& over) {
    return {over.status, over.why};
  }
}

}  // namespace specd
