#include "tools/gpu_check/attach/attach_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/pid_namespace.h"
#include "tools/gpu_check/attach/attach_check.h"

namespace specd {

namespace {

constexpr const char* kUsage =
    "specd-gpu-attach: what two processes may rely on when they share a device\n"
    "\n"
    "  --list           the checks, a line each: name <tab> what it promises\n"
    "  --check NAME     plays one; prints status <tab> detail, the status being pass, fail,\n"
    "                   skipped, or observed where CUDA promises nothing\n"
    "  --json           the result as a JSON object, with its figures\n"
    "  --help           this text\n"
    "\n"
    "Exit status: 0 not failed, 1 failed, 2 the arguments, 3 no device.\n";

std::string JsonText(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string JsonOf(const AttachCheck& check, const AttachResult& result) {
  std::string figures;
  for (const auto& [name, value] : result.figures) {
    figures += fmt::format("{}{}: {}", figures.empty() ? "" : ", ", JsonText(name), value);
  }
  return fmt::format("{{\"name\": {}, \"status\": \"{}\", \"detail\": {}, \"figures\": {{{}}}}}\n",
                     JsonText(check.name), NameOf(result.status), JsonText(result.detail), figures);
}

int UsageError(const std::string& why) {
  fmt::print(stderr, "error: {}; see specd-gpu-attach --help\n", why);
  return 2;
}

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

int Play(const AttachCheck& check, bool as_json, const MakePeerGpu& make_gpu) {
  AttachSetting setting;
  GpuResult error = GpuResult::Ok();
  const std::unique_ptr<PeerGpu> gpu = make_gpu(&setting.device, &error);
  if (gpu == nullptr) {
    fmt::print(stderr, "error: {}\n", error.text());
    return 3;
  }
  setting.gpu = gpu.get();
  setting.start_peer = [](const PeerEnvironment& environment) {
    return std::make_unique<GpuPeer>("/proc/self/exe", std::vector<std::string>{"--peer"},
                                     environment);
  };
  const AttachResult result = check.run(setting);
  if (as_json) {
    fmt::print("{}", JsonOf(check, result));
  } else {
    fmt::print("{}\t{}\n", NameOf(result.status), result.detail);
  }
  std::fflush(stdout);
  // What a scenario broke may not let a context be taken down in order.
  _exit(result.status == AttachStatus::kFail ? 1 : 0);
}

}  // namespace

int RunAttachProgram(int argc, char** argv, const MakePeerGpu& make_gpu) {
  std::string name;
  bool as_json = false;
  bool is_list = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--peer") return ServeAsPeer(make_gpu);
    if (argument == "--help") {
      fmt::print("{}", kUsage);
      return 0;
    }
    if (argument == "--list") {
      is_list = true;
    } else if (argument == "--json") {
      as_json = true;
    } else if (argument == "--check" && i + 1 < argc) {
      name = argv[++i];
    } else {
      return UsageError(fmt::format("unknown argument '{}', or one without its value", argument));
    }
  }
  if (is_list) {
    for (const AttachCheck& check : AttachChecks()) {
      fmt::print("{}\t{}\n", check.name, check.promise);
    }
    return 0;
  }
  for (const AttachCheck& check : AttachChecks()) {
    if (name == check.name) return Play(check, as_json, make_gpu);
  }
  return UsageError(name.empty() ? "--list or --check NAME"
                                 : fmt::format("--check={} is none of --list", name));
}

}  // namespace specd
