#include "tools/bench/c_engine.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "ipc/sockets/unix_socket.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr std::chrono::seconds kPatience(20);

absl::Status Broken(std::string_view what) { return absl::InternalError(std::string(what)); }

// The child's process becomes the daemon, which ends with its parent. Returns if it cannot.
void BecomeDaemon(const std::string& program, const std::string& directory, int cpu,
                  int32_t spin_us) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0) return;
  const std::string listen = fmt::format("--listen=unix:{}/s", directory);
  const std::string spin = fmt::format("--spin_us={}", spin_us);
  execl(program.c_str(), program.c_str(), listen.c_str(), spin.c_str(), "--detokenizer=off",
        "--threads=1", "--log_level=off", nullptr);
}

bool HasEnded(pid_t pid) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == pid;
}

}  // namespace

absl::Status Done(std::string_view call, int code) {
  if (code == SPECD_OK) return absl::OkStatus();
  return absl::InternalError(fmt::format("{}: {}", call, specd_last_error()));
}

std::string DaemonProgram(const std::string& given) {
  if (!given.empty()) return given;
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "specd";
}

absl::StatusOr<std::unique_ptr<DaemonProcess>> DaemonProcess::Start(const std::string& program,
                                                                    int cpu, int32_t spin_us) {
  std::string directory = std::filesystem::temp_directory_path() / "specd-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return Broken(directory + " cannot be made");
  const pid_t pid = fork();
  if (pid < 0) return Broken("no process for the daemon");
  if (pid == 0) {
    BecomeDaemon(program, directory, cpu, spin_us);
    _exit(1);
  }
  std::unique_ptr<DaemonProcess> daemon(new DaemonProcess(std::move(directory), pid));
  SPECD_TRY(daemon->AwaitSocket());
  return daemon;
}

DaemonProcess::~DaemonProcess() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::Status DaemonProcess::AwaitSocket() const {
  const SteadyClock::time_point end = SteadyClock::now() + kPatience;
  // The socket file is there before the daemon listens.
  while (!UnixConnection::Connect(directory_ + "/s", absl::ZeroDuration()).ok()) {
    const bool has_ended = HasEnded(pid_);
    if (has_ended || SteadyClock::now() > end)
      return Broken("the daemon does not serve; see --specd");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return absl::OkStatus();
}

CEngine::~CEngine() { specd_close(engine_); }

absl::Status CEngine::Open(const std::string& uri, const specd_options& options) {
  return Done("specd_open", specd_open(uri.c_str(), &options, &engine_));
}

absl::StatusOr<float*> CEngine::Bind(uint32_t role, uint32_t num_rows, uint32_t vocab_size) {
  specd_region region;
  const uint64_t num_elements = uint64_t{num_rows} * vocab_size;
  SPECD_TRY(Done("specd_alloc", specd_alloc(engine_, num_elements * sizeof(float), &region)));
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = num_rows;
  SPECD_TRY(Done("specd_bind", specd_bind(engine_, role, &tensor)));
  auto* const rows = static_cast<float*>(region.data);
  std::fill(rows, rows + num_elements, 0.0f);
  return rows;
}

absl::StatusOr<specd_sequence_info> CEngine::OpenSequence(const std::string& name,
                                                          const specd_params& params) {
  specd_sequence_info info = {};
  info.struct_size = sizeof(info);
  SPECD_TRY(
      Done("specd_open_sequence", specd_open_sequence(engine_, name.c_str(), &params, &info)));
  return info;
}

absl::StatusOr<double> CEngine::RunRound(const std::vector<specd_draft>& parts,
                                         specd_completion* done) {
  *done = {};
  done->struct_size = sizeof(*done);
  done->result_size = sizeof(specd_result);
  const SteadyClock::time_point start = SteadyClock::now();
  SPECD_TRY(Done("specd_submit", specd_submit(engine_, NextRound(), parts.data(),
                                              static_cast<uint32_t>(parts.size()))));
  SPECD_TRY(Done("specd_poll", specd_poll(engine_, done, kTimeoutMs)));
  const double time_us = MicrosSince(start);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (done->results[i].status != SPECD_STATUS_OK) return Broken("a sequence was not verified");
  }
  return time_us;
}

}  // namespace specd::bench
