#include "tools/bench/ipc_scene.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "ipc/sockets/unix_socket.h"
#include "tools/bench/rows.h"
#include "tools/bench/steady_clock.h"

namespace specd::bench {
namespace {

constexpr std::chrono::seconds kPatience(20);
constexpr int kTimeoutMs = 20'000;

absl::Status Broken(std::string_view what) {
  return absl::InternalError(fmt::format("ipc: {}", what));
}

absl::Status Refused(std::string_view call) {
  return Broken(fmt::format("{}: {}", call, specd_last_error()));
}

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

// Shared memory with target rows, bound to the engine. Returns the best id of each row.
absl::StatusOr<std::vector<int32_t>> BindRows(specd_engine* engine, const IpcRound& round) {
  const absl::StatusOr<RowPool> pool =
      RowPool::Make({.vocab_size = static_cast<int32_t>(round.vocab_size),
                     .num_rows = int64_t{round.num_draft} + 1});
  if (!pool.ok()) return pool.status();
  const uint64_t num_rows = uint64_t{round.num_draft} + 1;
  const auto bytes = static_cast<uint64_t>(pool->row_bytes()) * num_rows;
  specd_region region;
  if (specd_alloc(engine, bytes, &region) != SPECD_OK) return Refused("specd_alloc");
  std::vector<int32_t> best;
  for (int64_t i = 0; i < static_cast<int64_t>(num_rows); ++i) {
    std::memcpy(static_cast<std::byte*>(region.data) + i * pool->row_bytes(),
                RowAt(pool->view(), i).data, static_cast<size_t>(pool->row_bytes()));
    best.push_back(pool->best_id(i));
  }
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.num_rows = num_rows;
  if (specd_bind(engine, SPECD_TARGET_ROWS, &tensor) != SPECD_OK) return Refused("specd_bind");
  return best;
}

}  // namespace

absl::StatusOr<std::unique_ptr<IpcDaemon>> IpcDaemon::Start(const std::string& program, int cpu,
                                                            int32_t spin_us) {
  std::string directory = std::filesystem::temp_directory_path() / "specd-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return Broken(directory + " cannot be made");
  const pid_t pid = fork();
  if (pid < 0) return Broken("no process for the daemon");
  if (pid == 0) {
    BecomeDaemon(program, directory, cpu, spin_us);
    _exit(1);
  }
  std::unique_ptr<IpcDaemon> daemon(new IpcDaemon(std::move(directory), pid));
  if (absl::Status status = daemon->AwaitSocket(); !status.ok()) return status;
  return daemon;
}

IpcDaemon::~IpcDaemon() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::Status IpcDaemon::AwaitSocket() const {
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

absl::StatusOr<std::unique_ptr<IpcEngine>> IpcEngine::Open(const std::string& uri,
                                                           const IpcRound& round, int32_t spin_us) {
  std::unique_ptr<IpcEngine> engine(new IpcEngine);
  if (absl::Status status = engine->Start(uri, round, spin_us); !status.ok()) return status;
  return engine;
}

IpcEngine::~IpcEngine() { specd_close(engine_); }

absl::Status IpcEngine::Start(const std::string& uri, const IpcRound& round, int32_t spin_us) {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = round.vocab_size;
  options.max_batch = 1;
  options.max_draft = round.num_draft;
  if (uri.starts_with("embedded:")) options.threads = 1;
  options.timeout_ms = kTimeoutMs;
  options.spin_us = spin_us;
  if (specd_open(uri.c_str(), &options, &engine_) != SPECD_OK) return Refused("specd_open");
  absl::StatusOr<std::vector<int32_t>> best = BindRows(engine_, round);
  if (!best.ok()) return best.status();
  drafts_ = *std::move(best);
  drafts_.pop_back();
  rows_.resize(size_t{round.num_draft} + 1);
  std::iota(rows_.begin(), rows_.end(), 0);
  specd_params params;
  specd_params_init(&params);
  params.temperature = 0.8;
  params.has_seed = 1;
  params.seed = 1;
  params.max_tokens = std::numeric_limits<int32_t>::max();
  specd_sequence_info info = {};
  info.struct_size = sizeof(info);
  if (specd_open_sequence(engine_, "bench", &params, &info) != SPECD_OK) {
    return Refused("specd_open_sequence");
  }
  sequence_ = info.sequence;
  return absl::OkStatus();
}

absl::StatusOr<double> IpcEngine::RunRound() {
  specd_draft part = {};
  part.struct_size = sizeof(part);
  part.sequence = sequence_;
  part.num_nodes = static_cast<uint32_t>(drafts_.size());
  part.tokens = drafts_.data();
  part.target_rows = rows_.data();
  specd_completion done = {};
  done.struct_size = sizeof(done);
  done.result_size = sizeof(specd_result);
  const SteadyClock::time_point start = SteadyClock::now();
  if (specd_submit(engine_, ++num_rounds_, &part, 1) != SPECD_OK) return Refused("specd_submit");
  if (specd_poll(engine_, &done, kTimeoutMs) != SPECD_OK) return Refused("specd_poll");
  const std::chrono::duration<double, std::micro> time = SteadyClock::now() - start;
  if (done.results[0].status != SPECD_STATUS_OK) return Broken("a round was not verified");
  for (uint32_t i = 0; i < done.results[0].num_kept; ++i) {
    digest_ = (digest_ ^ static_cast<uint64_t>(done.results[0].tokens[i])) * 0x100000001b3;
  }
  return time.count();
}

}  // namespace specd::bench
