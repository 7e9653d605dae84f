// Staged rounds in a graph of an engine's on a real device, against the CPU, bit for bit: suite
// "gpu". Without a device a case passes and says that nothing was compared, unless
// SPECD_REQUIRE_GPU is set; SPECD_GPU_QUICK makes the rounds few and small.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/driver_api.h"
#include "tests/kernels/cuda/device_or_reason.h"
#include "tests/kernels/cuda/staged_open.h"

namespace specd {
namespace {

// The functions of libcuda.so.1 that capture and replay. The library is loaded already.
struct GraphApi {
  int (*cuStreamBeginCapture_v2)(cuda::Stream stream, int mode);
  int (*cuStreamEndCapture)(cuda::Stream stream, void** graph);
  int (*cuGraphInstantiateWithFlags)(void** made, void* graph, unsigned long long flags);
  int (*cuGraphLaunch)(void* made, cuda::Stream stream);
  int (*cuGraphExecDestroy)(void* made);
  int (*cuGraphDestroy)(void* graph);
};

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  void* const symbol = dlsym(library, name);
  REQUIRE_MESSAGE(symbol != nullptr, name);
  *function = reinterpret_cast<Function>(symbol);
}

#define REQUIRE_CUDA(call) REQUIRE((call) == kGpuOk)

// A stream, memory and graphs, as an engine in this process has them in the device's context.
class Engine final : public CopiedMemory {
 public:
  Engine() : api_(Loaded()) {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    Find(library, "cuStreamBeginCapture_v2", &graphs_.cuStreamBeginCapture_v2);
    Find(library, "cuStreamEndCapture", &graphs_.cuStreamEndCapture);
    Find(library, "cuGraphInstantiateWithFlags", &graphs_.cuGraphInstantiateWithFlags);
    Find(library, "cuGraphLaunch", &graphs_.cuGraphLaunch);
    Find(library, "cuGraphExecDestroy", &graphs_.cuGraphExecDestroy);
    Find(library, "cuGraphDestroy", &graphs_.cuGraphDestroy);
    REQUIRE_CUDA(api_.cuDevicePrimaryCtxRetain(&context_, 0));
    REQUIRE_CUDA(api_.cuCtxPushCurrent_v2(context_));
    REQUIRE_CUDA(api_.cuStreamCreate(&stream_, cuda::kStreamNonBlocking));
  }
  ~Engine() override {
    for (void* const graph : made_) CHECK(graphs_.cuGraphExecDestroy(graph) == kGpuOk);
    CHECK(api_.cuStreamSynchronize(stream_) == kGpuOk);
    CHECK(api_.cuStreamDestroy_v2(stream_) == kGpuOk);
    for (const cuda::Address address : blocks_) CHECK(api_.cuMemFree_v2(address) == kGpuOk);
    CHECK(api_.cuCtxPopCurrent_v2(&context_) == kGpuOk);
    CHECK(api_.cuDevicePrimaryCtxRelease_v2(0) == kGpuOk);
  }

  // A graph of rounds alone. The mode allows the least while it captures.
  void* Capture(Backend& backend, int32_t num_tasks) {
    constexpr int kGlobal = 0;
    REQUIRE_CUDA(graphs_.cuStreamBeginCapture_v2(stream_, kGlobal));
    const absl::Status enqueued = backend.EnqueueStaged(stream_, num_tasks);
    const absl::Status collected = backend.Collect().status();
    void* graph = nullptr;
    REQUIRE_CUDA(graphs_.cuStreamEndCapture(stream_, &graph));
    REQUIRE_OK(enqueued);
    REQUIRE_OK(collected);
    void* made = nullptr;
    REQUIRE_CUDA(graphs_.cuGraphInstantiateWithFlags(&made, graph, 0));
    REQUIRE_CUDA(graphs_.cuGraphDestroy(graph));
    made_.push_back(made);
    return made;
  }
  void Replay(void* graph) { REQUIRE_CUDA(graphs_.cuGraphLaunch(graph, stream_)); }
  void Wait() { REQUIRE_CUDA(api_.cuStreamSynchronize(stream_)); }

  // Copies the ids that the device wrote to where the test looks for them, once: the arrays of the
  // host may die afterwards.
  void CopyIdsBack() {
    for (const IdArray& array : ids_) {
      REQUIRE_CUDA(api_.cuMemcpyAsync(reinterpret_cast<cuda::Address>(array.host),
                                      reinterpret_cast<cuda::Address>(array.device),
                                      static_cast<size_t>(array.size_bytes), stream_));
    }
    Wait();
    ids_.clear();
  }

 private:
  static const cuda::DriverApi& Loaded() {
    GpuResult why = GpuResult::Ok();
    const cuda::DriverApi* const api = cuda::LoadDriver(&why);
    REQUIRE_MESSAGE(api != nullptr, why.text());
    return *api;
  }

  const void* Copy(const void* host, int64_t size_bytes, int64_t shift_bytes) override {
    cuda::Address block = 0;
    REQUIRE_CUDA(api_.cuMemAlloc_v2(&block, static_cast<size_t>(size_bytes + shift_bytes + 64)));
    blocks_.push_back(block);
    const cuda::Address address = block + static_cast<cuda::Address>(shift_bytes);
    REQUIRE_CUDA(api_.cuMemcpyAsync(address, reinterpret_cast<cuda::Address>(host),
                                    static_cast<size_t>(size_bytes), stream_));
    Wait();
    return reinterpret_cast<const void*>(address);
  }

  const cuda::DriverApi& api_;
  GraphApi graphs_ = {};
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  std::vector<cuda::Address> blocks_;
  std::vector<void*> made_;
};

TEST_SUITE("gpu") {
  TEST_CASE("CUDA rounds that are staged: a graph of an engine's, replayed") {
    const std::unique_ptr<Backend> backend = DeviceOrReason();
    if (backend == nullptr) return;
    RoundCase::Options options{.vocab_size = Quick() ? 2500 : 32000,
                               .batch = Quick() ? 6 : 48,
                               .max_draft = 4,
                               .dtype = DType::kBFloat16,
                               .seed = 1000};
    REQUIRE_OK(backend->Prepare({.vocab_size = options.vocab_size,
                                 .max_batch = options.batch,
                                 .max_draft = options.max_draft,
                                 .num_slots = 2 * static_cast<uint32_t>(options.batch) + 1,
                                 .records_staged = true}));
    Engine engine;
    std::vector<std::unique_ptr<StagedCase>> rounds;
    std::mt19937_64 random(options.seed);
    for (int i = 0; i < (Quick() ? 6 : 40); ++i) {
      RoundCase::Options sized = options;
      sized.seed += static_cast<uint64_t>(i);
      // Some rounds bring more than the usual, so that threads of a fetch take several pieces.
      if (i % 3 == 2) sized.num_edits = 4 * options.vocab_size;
      sized.batch = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(options.batch));
      rounds.push_back(std::make_unique<StagedCase>(sized, &engine));
      if (i % 2 == 0) rounds.back()->Record();
    }
    // The width of the launches must not matter, and neither must the graph that takes a round. The
    // first capture also takes the memory. During the second a staged round waits.
    void* graphs[2] = {engine.Capture(*backend, 1)};
    REQUIRE_OK(backend->Stage(rounds[0]->batch()));
    graphs[1] = engine.Capture(*backend, options.batch);
    size_t num_staged = 1;
    size_t num_collected = 0;
    while (num_collected < rounds.size()) {
      // Some replays come too early for a round, and some rounds are staged while one runs.
      const size_t most = std::min(rounds.size(), num_collected + kStagedRoundsMax);
      const uint64_t before = random() % 3;
      for (uint64_t j = 0; j < before && num_staged < most; ++j) {
        REQUIRE_OK(backend->Stage(rounds[num_staged++]->batch()));
      }
      for (uint64_t j = random() % 3; j > 0; --j) engine.Replay(graphs[random() % 2]);
      if (num_staged < most) REQUIRE_OK(backend->Stage(rounds[num_staged++]->batch()));
      while (true) {
        const absl::StatusOr<bool> collected = backend->Collect();
        REQUIRE_OK(collected.status());
        if (!*collected) break;
        ++num_collected;
      }
    }
    // Nothing is left, and nothing comes of another replay.
    engine.Replay(graphs[0]);
    engine.Wait();
    const absl::StatusOr<bool> collected = backend->Collect();
    REQUIRE_OK(collected.status());
    CHECK_FALSE(*collected);
    engine.CopyIdsBack();
    int num_compared = 0;
    DecisionCounts counts;
    for (size_t i = 0; i < rounds.size(); ++i) {
      num_compared += rounds[i]->CheckAnswers();
      if (i % 2 == 0) rounds[i]->CheckDecisions(true, &counts);
    }
    CHECK(num_compared > 0);
    CHECK(counts.drawn > 0);
    MESSAGE("compared ", num_compared, " answers");
  }

  TEST_CASE("CUDA rounds that are staged ahead: each goes on where the one before it ends") {
    const std::unique_ptr<Backend> backend = DeviceOrReason();
    if (backend == nullptr) return;
    int num_compared = 0;
    for (RoundCase::Options options : KindsOfOpenRounds()) {
      CAPTURE(options.seed);
      if (Quick()) options.batch = 3;
      Engine engine;
      REQUIRE_OK(backend->Prepare({.vocab_size = options.vocab_size,
                                   .max_batch = options.batch,
                                   .max_draft = options.max_draft,
                                   .num_slots = 2 * static_cast<uint32_t>(options.batch)}));
      void* const graph = engine.Capture(*backend, options.batch);
      SlotRounds rounds(options, true);
      for (int repeat = 0; repeat < 3; ++repeat) {
        std::vector<std::unique_ptr<StagedOpen>> staged;
        for (int i = 0; i < kStagedRoundsMax; ++i) {
          rounds.Next();
          staged.push_back(std::make_unique<StagedOpen>(&rounds, &engine));
          REQUIRE_OK(backend->Stage(staged.back()->batch));
        }
        for (size_t i = 0; i < staged.size(); ++i) engine.Replay(graph);
        engine.Wait();
        for (size_t i = 0; i < staged.size(); ++i) {
          const absl::StatusOr<bool> collected = backend->Collect();
          REQUIRE_OK(collected.status());
          REQUIRE(*collected);
        }
        engine.CopyIdsBack();
        for (const auto& round : staged) num_compared += round->CheckAnswers();
      }
      CHECK(rounds.num_continued() > 0);
    }
    MESSAGE("compared ", num_compared, " answers");
  }
}

}  // namespace
}  // namespace specd
