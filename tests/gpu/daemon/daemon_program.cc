#include "tests/gpu/daemon/daemon_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/gpu/check_program.h"
#include "tests/gpu/daemon/daemon_check.h"
#include "tests/support/stream_engine_program.h"

namespace specd {

namespace {

constexpr char kOptionsText[] =
    "  --daemon PATH    the daemon's program; without it: specd beside this one\n"
    "  --folder FOLDER  where a check makes its folder; without it: /tmp\n"
    "  --rounds N       of a check that counts them; without it: 500\n"
    "  --patience_ms N  how long a step may take; without it: 60000\n";

// Runs the command that DaemonSetting::engine starts: --engine PATIENCE_MS MODE URI ROUNDS.
int ServeAsEngine(const DaemonProgram& program, const std::vector<std::string>& arguments) {
  if (arguments.size() != 5) return 2;
  GpuResult error = GpuResult::Ok();
  EngineGpu* const gpu = program.open_gpu(&error);
  if (gpu == nullptr) {
    fmt::print(stderr, "engine: {}\n", error.text());
    return 3;
  }
  CudaStreamEngine::Options options = program.engine;
  options.rows_on_device = true;
  options.patience_ms = std::atoi(arguments[1].c_str());
  options.uri = arguments[3];
  return RunStreamEngine(gpu, options, arguments[2],
                         std::strtoull(arguments[4].c_str(), nullptr, 10));
}

bool ReadNumber(const std::string& text, uint64_t max, uint64_t* number) {
  char* end = nullptr;
  *number = std::strtoull(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' && *number >= 1 && *number <= max;
}

}  // namespace

int RunDaemonProgram(int argc, char** argv, const DaemonProgram& program) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "--engine") return ServeAsEngine(program, arguments);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  DaemonSetting setting;
  setting.daemon = std::filesystem::path(self).replace_filename("specd").string();
  setting.folder = "/tmp";
  std::string rounds = std::to_string(setting.num_rounds);
  std::string patience_ms = std::to_string(setting.patience_ms);
  CheckProgram checks{.name = "specd-gpu-daemon",
                      .about = "the daemon and engines that attach to it over the device",
                      .options_text = kOptionsText,
                      .options = {{"--daemon", &setting.daemon},
                                  {"--folder", &setting.folder},
                                  {"--rounds", &rounds},
                                  {"--patience_ms", &patience_ms}}};
  for (const DaemonCheck& check : DaemonChecks()) {
    checks.checks.push_back(
        {check.name, check.promise, [&]() -> std::optional<AttachResult> {
           uint64_t patience = 0;
           if (!ReadNumber(rounds, 1'000'000, &setting.num_rounds)) {
             return AttachResult{
                 AttachStatus::kFail,
                 fmt::format("--rounds={} is not a number from 1 to 1000000", rounds)};
           }
           if (!ReadNumber(patience_ms, 3'600'000, &patience)) {
             return AttachResult{
                 AttachStatus::kFail,
                 fmt::format("--patience_ms={} is not a number from 1 to 3600000", patience_ms)};
           }
           setting.patience_ms = static_cast<int>(patience);
           setting.engine = {self, "--engine", patience_ms};
           return check.run(setting);
         }});
  }
  return RunCheckProgram(checks, arguments);
}

}  // namespace specd
