#include "tests/gpu/attach/attach_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/attach/attach_check.h"
#include "tests/gpu/check_program.h"
#include "tests/support/pid_namespace.h"

namespace specd {

namespace {

int ServeAsPeer(const MakePeerGpu& make_gpu) {
  EnterPidNamespaceIfAsked();
  GpuDevice device;
  GpuResult error = GpuResult::Ok();
  const std::unique_ptr<PeerGpu> gpu = make_gpu(&device, &error);
  if (gpu == nullptr) {
    fmt::print(stderr, "error: the other process: {}\n", error.text());
    return 3;
  }
  GpuPeerWorker worker(gpu.get());
  ServePeer(STDIN_FILENO,
            [&](const PeerRequest& request, int fd, PeerReply* reply, UniqueFd* reply_fd) {
              const GpuResult result = worker.Do(request, fd, reply, reply_fd);
              if (!result.ok() && result.code() != kGpuNotReady) {
                fmt::print(stderr, "the other process: {}\n", result.text());
              }
              return result;
            });
  return 0;
}

std::optional<AttachResult> Play(const AttachCheck& check, const MakePeerGpu& make_gpu) {
  AttachSetting setting;
  GpuResult error = GpuResult::Ok();
  // Never destroyed: after a scenario has broken a context, the context may not be destroyed in
  // order.
  PeerGpu* const gpu = make_gpu(&setting.device, &error).release();
  if (gpu == nullptr) {
    fmt::print(stderr, "error: {}\n", error.text());
    return std::nullopt;
  }
  setting.gpu = gpu;
  setting.start_peer = [](const PeerEnvironment& environment) {
    return std::make_unique<GpuPeer>("/proc/self/exe", std::vector<std::string>{"--peer"},
                                     environment);
  };
  return check.run(setting);
}

}  // namespace

int RunAttachProgram(int argc, char** argv, const MakePeerGpu& make_gpu) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"--peer"}) return ServeAsPeer(make_gpu);
  CheckProgram program{.name = "specd-gpu-attach",
                       .about = "what two processes may rely on when they share a device"};
  for (const AttachCheck& check : AttachChecks()) {
    program.checks.push_back(
        {check.name, check.promise, [&check, &make_gpu] { return Play(check, make_gpu); }});
  }
  return RunCheckProgram(program, arguments);
}

}  // namespace specd
