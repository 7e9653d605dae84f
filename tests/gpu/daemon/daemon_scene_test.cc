// DaemonScene with shell scripts in place of the daemon and its engines.
#include "tests/gpu/daemon/daemon_scene.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace specd {
namespace {

class ScriptFolder {
 public:
  ScriptFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "specd-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~ScriptFolder() { std::filesystem::remove_all(path); }
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string script = (path / name).string();
    std::ofstream(script) << "#!/bin/sh\n" << text;
    REQUIRE(chmod(script.c_str(), 0755) == 0);
    return script;
  }

  std::filesystem::path path;
};

TEST_SUITE("process") {
  TEST_CASE("daemon scene: an engine goes on while another is waited for, however much it prints") {
    // Bug: the scene stood still at a full pipe, and did not see whether a killed engine disturbs
    // another.
    const ScriptFolder folder;
    DaemonSetting setting;
    setting.folder = folder.path.string();
    setting.patience_ms = 30'000;
    setting.daemon = folder.Write(
        "daemon", "trap 'exit 0' TERM\necho 'serves on cuda'\nwhile :; do sleep 0.05; done\n");
    // More output than a pipe holds. The other engine ends after all of it has been taken.
    const std::string all = (folder.path / "all_printed").string();
    setting.engine = {folder.Write(
        "engine",
        "case \"$1\" in\n  flood) for i in 1 2 3 4 5 6 7 8; do printf '%32768s\\n' x; done\n"
        "    : >'" +
            all +
            "'; echo 'round 8'; cat ;;\n"
            "  *) while [ ! -e '" +
            all + "' ]; do sleep 0.01; done; echo ok ;;\nesac\n")};
    const AttachResult result = PlayDaemonScene(setting, [](DaemonScene& scene) {
      Child& flood = scene.StartEngine("flood");
      scene.EndsWell(scene.StartEngine("other"));
      scene.Until(flood, "round 8");  // output that was taken meanwhile can still be awaited
      return AttachResult{AttachStatus::kPass, "played"};
    });
    CHECK(result.detail == "played");
  }
}

}  // namespace
}  // namespace specd
