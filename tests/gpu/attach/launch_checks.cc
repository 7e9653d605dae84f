// Checks of the cost that waiting CUDA streams and kernels have for others: launches, hand-overs,
// copies.
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/gpu/attach/scenarios.h"
#include "tests/gpu/attach/scene.h"

namespace specd {

namespace {

using Clock = std::chrono::steady_clock;

constexpr GpuWord kWord = GpuWord::k64;

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

// CUDA streams of this process that wait for a word until they are released.
class Waiting {
 public:
  // Together with the working CUDA streams these are fewer than CUDA_DEVICE_MAX_CONNECTIONS'
  // default, so that no CUDA stream holds up another.
  static constexpr size_t kStreams = 4;

  Waiting(EngineGpu* gpu, GpuAddress word) : gpu_(*gpu), word_(word), streams_(kStreams) {
    for (GpuStream& stream : streams_) {
      ExpectOk(gpu_.CreateStream(&stream), "making a stream");
      ExpectOk(gpu_.WaitValue(stream, word_, kWord, 1), "waiting");
    }
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void Release(GpuStream stream) {
    for (const GpuStream waiting : streams_) {
      Expect(gpu_.Query(waiting).code() == kGpuNotReady, "a stream does not wait for its word");
    }
    ExpectOk(gpu_.WriteValue(stream, word_, kWord, 1), "writing");
    for (const GpuStream waiting : streams_) {
      ExpectOk(gpu_.Synchronize(waiting), "ending what waited");
      ExpectOk(gpu_.DestroyStream(waiting), "destroying a stream");
    }
  }

 private:
  EngineGpu& gpu_;
  const GpuAddress word_;
  std::vector<GpuStream> streams_;
};

// Hand-overs and copies of this process alone, with their times.
class Work {
 public:
  Work(Scene* scene, const AttachSetting& setting)
      : scene_(*scene), setting_(setting), words_(&scene->gpu()) {
    ExpectOk(scene_.gpu().CreateStream(&second_), "making a stream");
    const uint64_t size_bytes = setting_.copy_bytes;
    void* const pages =
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Expect(pages != MAP_FAILED, "there is no memory for copies");
    std::memset(pages, 0, size_bytes);
    source_ = pages;
    GpuAddress unused = 0;
    ExpectOk(scene_.gpu().RegisterHost(source_, size_bytes, &unused), "registering");
    ExpectOk(scene_.gpu().Allocate(size_bytes, &target_), "allocating");
    CopyMs();  // zeros, also for words of the device
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  GpuAddress host_word(uint64_t word) const { return words_.at(8 + word); }
  // REQUIRES: nothing is being copied there.
  GpuAddress device_word(uint64_t word) const { return target_ + word * sizeof(uint64_t); }

  // Times hand-overs from one CUDA stream to another through `word`: from a store of the CPU until
  // it sees the answer.
  std::vector<double> HandOverUs(GpuAddress word) {
    constexpr uint64_t kPerBatch = 50;
    GpuContext& gpu = scene_.gpu();
    std::vector<double> microseconds;
    for (uint64_t batch = 0; batch < setting_.num_batches; ++batch, first_ += kPerBatch) {
      for (uint64_t value = first_; value < first_ + kPerBatch; ++value) {
        ExpectOk(gpu.WaitValue(scene_.stream(), words_.at(0), kWord, value), "waiting");
        ExpectOk(gpu.WriteValue(scene_.stream(), word, kWord, value), "writing");
        ExpectOk(gpu.WaitValue(second_, word, kWord, value), "waiting");
        ExpectOk(gpu.WriteValue(second_, words_.at(1), kWord, value), "writing");
      }
      for (uint64_t value = first_; value < first_ + kPerBatch; ++value) {
        const auto start = Clock::now();
        words_.Store(0, value);
        Expect(scene_.Await([&] { return words_.Load(1) == value; }), "a hand-over is lost");
        microseconds.push_back(1000 * MsSince(start));
      }
    }
    return microseconds;
  }

  // Times one copy from the host's memory.
  double CopyMs() {
    constexpr int kCopies = 8;
    const auto start = Clock::now();
    for (int i = 0; i < kCopies; ++i) {
      ExpectOk(scene_.gpu().Copy(scene_.stream(), reinterpret_cast<void*>(target_), source_,
                                 setting_.copy_bytes),
               "copying");
    }
    ExpectOk(scene_.gpu().Synchronize(scene_.stream()), "copying");
    return MsSince(start) / kCopies;
  }

 private:
  Scene& scene_;
  const AttachSetting& setting_;
  SharedWords words_;
  GpuStream second_;
  void* source_ = nullptr;  // stays registered until the process ends, as words do
  GpuAddress target_ = 0;
  uint64_t first_ = 1;  // value of the next batch
};

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

// A device asks for a word of the host over the bus. The cost for others decides where words should
// be.
AttachResult CheckWaitingWords(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    NeedWords(scene);
    Work work(&scene, setting);
    AttachResult result = {.status = AttachStatus::kObserved};
    const auto add = [&](const char* name, const std::vector<double>& us, double copy_ms) {
      const double p50 = Percentile(us, 0.5);
      result.detail +=
          fmt::format("{}{}: p50 {:.1f} us", result.detail.empty() ? "" : "; ", name, p50);
      result.figures.emplace_back(fmt::format("{}_p50_us", name), p50);
      result.figures.emplace_back(fmt::format("{}_p99_us", name), Percentile(us, 0.99));
      if (copy_ms == 0) return;
      result.detail += fmt::format(", a copy {:.2f} ms", copy_ms);
      result.figures.emplace_back(fmt::format("{}_copy_ms", name), copy_ms);
    };
    // Copies first set the device's words to zero again.
    const double alone_ms = work.CopyMs();
    add("through_device", work.HandOverUs(work.device_word(0)), 0);
    add("through_host", work.HandOverUs(work.host_word(0)), alone_ms);
    for (const bool on_device : {false, true}) {
      GpuAddress word = work.host_word(1);
      if (on_device) {
        ExpectOk(scene.gpu().Allocate(sizeof(uint64_t), &word), "allocating");
        ExpectOk(scene.gpu().WriteValue(scene.stream(), word, kWord, 0), "writing");
        ExpectOk(scene.gpu().Synchronize(scene.stream()), "writing");
      }
      Waiting waiting(&scene.gpu(), word);
      const std::vector<double> us = work.HandOverUs(work.host_word(0));
      add(on_device ? "beside_waits_on_device" : "beside_waits_on_host", us, work.CopyMs());
      waiting.Release(scene.stream());
      if (on_device) ExpectOk(scene.gpu().Free(word), "freeing");
    }
    return result;
  });
}

}  // namespace specd
