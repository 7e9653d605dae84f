// specd-simulator runs simulated worlds from seeds, and prints the first one that breaks a promise.
#include <fmt/format.h>
#include <signal.h>
#include <sys/personality.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "daemon/base/logging.h"
#include "kernels/core/check.h"
#include "tests/simulator/network.h"
#include "tests/simulator/world.h"

namespace specd::sim {
namespace {

constexpr char kUsage[] =
    "usage: specd-simulator [--seeds=N] [--first=SEED] [--steps=M]\n"
    "       specd-simulator --seed=SEED [--steps=M]     one run, with a log of what happens\n"
    "Each seed is a run of engines, daemons, text sides and readers (tests/simulator/README.md).\n"
    "A run that breaks a promise is printed with its seed. Exit status: 0 none did, 1 one did.\n";

struct Flags {
  uint64_t first = 1;
  uint64_t num_seeds = 1000;
  uint64_t num_steps = 400;
  bool logs = false;
};

bool ReadFlag(std::string_view argument, Flags* flags) {
  const size_t equals = argument.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = argument.substr(0, equals);
  char* end = nullptr;
  const uint64_t value = std::strtoull(argument.data() + equals + 1, &end, 10);
  if (end == argument.data() + equals + 1 || *end != '\0') return false;
  if (name == "--seeds") {
    flags->num_seeds = value;
  } else if (name == "--first") {
    flags->first = value;
  } else if (name == "--steps") {
    flags->num_steps = value;
  } else if (name == "--seed") {
    flags->first = value;
    flags->num_seeds = 1;
    flags->logs = true;
  } else {
    return false;
  }
  return true;
}

// The run in which a check of the product failed.
uint64_t current_seed = 0;

void OnAbort(int) {
  char text[64];
  const int size = std::snprintf(text, sizeof(text), "in seed %llu\n",
                                 static_cast<unsigned long long>(current_seed));
  if (write(STDERR_FILENO, text, static_cast<size_t>(size)) < 0) _exit(2);
}

size_t CountFiles() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

absl::Status RunSeed(uint64_t seed, const Flags& flags) {
  const size_t num_files = CountFiles();
  absl::Status status =
      World({.seed = seed, .num_steps = flags.num_steps, .logs = flags.logs}).Run();
  if (!status.ok()) return status;
  if (const size_t num_now = CountFiles(); num_now != num_files) {
    return absl::DataLossError(
        fmt::format("{} files were open before, and {} are", num_files, num_now));
  }
  const size_t num_sockets = Network::OfProcess().num_sockets();
  if (num_sockets == 0) return status;
  return absl::DataLossError(fmt::format("{} sockets are left", num_sockets));
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    if (ReadFlag(argv[i], &flags)) continue;
    std::fputs(kUsage, stderr);
    return 2;
  }
  // Hash tables order their elements by addresses too: a seed has the same run in each process.
  const int persona = personality(0xffffffff);
  if ((persona & ADDR_NO_RANDOMIZE) == 0 &&
      personality(static_cast<unsigned long>(persona) | ADDR_NO_RANDOMIZE) != -1) {
    execv("/proc/self/exe", argv);
  }
  signal(SIGABRT, OnAbort);
  SPECD_CHECK(SetUpLogging({.levels = flags.logs ? "warn" : "off"}).ok());
  for (uint64_t seed = flags.first; seed < flags.first + flags.num_seeds; ++seed) {
    current_seed = seed;
    const absl::Status status = RunSeed(seed, flags);
    if (status.ok()) continue;
    fmt::print("seed {} breaks a promise: {}\nreplay it: specd-simulator --seed={} --steps={}\n",
               seed, std::string(status.message()), seed, flags.num_steps);
    return 1;
  }
  fmt::print("{} seeds from {} on keep every promise\n", flags.num_seeds, flags.first);
  return 0;
}

}  // namespace
}  // namespace specd::sim

int main(int argc, char** argv) { return specd::sim::Main(argc, argv); }
