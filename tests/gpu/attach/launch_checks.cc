// The check of a kernel's first launch beside CUDA streams and kernels that wait.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/gpu/attach/scenarios.h"
#include "tests/gpu/attach/scene.h"

namespace specd {

namespace {

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The first launch of a kernel beside work of the same process that waits for a word.
struct LaunchCase {
  const char* loading;     // CUDA_MODULE_LOADING
  bool is_loaded;          // before anything waits
  bool is_held_by_kernel;  // a kernel waits, not a CUDA stream
  int patience_ms;         // then the word is stored
  uint64_t first_word;     // first of the words that are this case's alone
};

struct LaunchAnswer {
  bool is_held = false;  // until the word was stored
  double ms = 0;         // the launch's call
};

// Always comes to its end: the word is stored when patience is over.
LaunchAnswer LaunchBesideWaiting(Scene& scene, SharedWords& words, const LaunchCase& given) {
  const uint64_t holder = given.first_word;
  const uint64_t launched = holder + kNumPeerWords;
  scene.StartPeer({fmt::format("CUDA_MODULE_LOADING={}", given.loading)});
  scene.Ask({.op = PeerOp::kWords}, words.fd());
  if (given.is_loaded) scene.Ask({.op = PeerOp::kLoadKernel});
  if (given.is_held_by_kernel) {
    const PeerLaunch echo = {.kernel = PeerKernel::kEcho, .count = 1};
    scene.Ask({.op = PeerOp::kLoadKernel, .launch = echo});
    scene.Ask({.op = PeerOp::kLaunch, .word = holder, .launch = echo});
    Expect(scene.Await([&] { return words.Load(holder + kProgress) == 1; }),
           "the kernel that is to wait does not begin");
  } else {
    scene.Ask({.op = PeerOp::kWaitValue, .word = holder + kUntil, .value = 1});
  }
  const auto has_run = [&] { return words.Load(launched + kProgress) == 1; };
  std::atomic<bool> is_held = false;
  std::thread release([&] {
    is_held = !scene.Await(has_run, given.patience_ms);
    words.Store(holder + kUntil, 1);
  });
  const auto start = Clock::now();
  const PeerReply reply = scene.peer().Call(
      {.op = PeerOp::kLaunch, .word = launched, .value = 1, .launch = {.count = 1}});
  const double ms = MsSince(start);
  release.join();
  Expect(reply.code == kGpuOk, fmt::format("the launch gives error {}", reply.code));
  Expect(scene.Await([&] { return has_run() && scene.IsPeerIdle(); }),
         "a store does not release what waits");
  return {is_held, ms};
}

}  // namespace

// With CUDA_MODULE_LOADING=LAZY, the default, a kernel is loaded at its first launch. The load may
// wait for all other work of the process (CUDA's guide, "Lazy Loading"). An engine whose CUDA
// stream waits for the daemon would stand still if the daemon in turn waited for the engine. A
// daemon whose own CUDA streams wait for engines would stand still too. specd therefore loads every
// kernel before the first round (kernels/cuda/round_kernels.h), which has to be enough.
AttachResult CheckFirstLaunch(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    NeedWords(scene);
    SharedWords words(&scene.gpu());
    AttachResult result = {.status = AttachStatus::kObserved};
    uint64_t first_word = 0;
    for (const bool by_kernel : {false, true}) {
      const char* const holder = by_kernel ? "kernel" : "stream";
      const auto launch = [&](const char* loading, bool is_loaded, int patience_ms) {
        const uint64_t words_of_case = first_word;
        first_word += 2 * kNumPeerWords;
        return LaunchBesideWaiting(scene, words,
                                   {loading, is_loaded, by_kernel, patience_ms, words_of_case});
      };
      const LaunchAnswer lazy = launch("LAZY", false, setting.held_up_ms);
      const LaunchAnswer loaded = launch("LAZY", true, setting.patience_ms);
      Expect(!loaded.is_held, fmt::format("a kernel that is loaded waits for a {}", holder));
      const LaunchAnswer eager = launch("EAGER", false, setting.patience_ms);
      Expect(!eager.is_held, fmt::format("with EAGER a first launch waits for a {}", holder));
      result.detail += fmt::format(
          "{}beside a {} that waits a first launch {} ({:.1f} ms), one of "
          "a loaded kernel does not ({:.1f} ms)",
          by_kernel ? "; " : "", holder, lazy.is_held ? "waits too" : "does not wait", lazy.ms,
          loaded.ms);
      result.figures.emplace_back(fmt::format("held_by_{}", holder), lazy.is_held ? 1.0 : 0.0);
      result.figures.emplace_back(fmt::format("lazy_ms_by_{}", holder), lazy.ms);
      result.figures.emplace_back(fmt::format("loaded_ms_by_{}", holder), loaded.ms);
      result.figures.emplace_back(fmt::format("eager_ms_by_{}", holder), eager.ms);
    }
    return result;
  });
}

}  // namespace specd
