// Draft tokens that are read before the target model has run: the copy waits for the work before
// the mark, and for nothing after it.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"

namespace specd {
namespace {

using Ids = std::vector<TokenId>;

constexpr int64_t kStride = 5;
constexpr int32_t kDraft = 3;

// An engine with a drafter and a target model on the CUDA stream of its rounds.
struct DrafterOnDevice {
  explicit DrafterOnDevice(int64_t upload_bytes = int64_t{1} << 30) {
    auto owned = std::make_unique<FakeGpuDriver>(&gpu);
    driver = owned.get();
    size_t device = 0;
    REQUIRE(driver->UseStream(&stream, &device).ok());
    REQUIRE(driver->UseDevice(device).ok());
    backend = std::make_unique<CudaBackend>(std::move(owned), upload_bytes);
    REQUIRE(backend->Prepare({.vocab_size = 40, .max_batch = 4, .max_draft = kDraft}).ok());
    void* memory = nullptr;
    REQUIRE(driver->Allocate(4 * kStride * sizeof(TokenId), &memory).ok());
    ids = static_cast<TokenId*>(memory);
  }
  ~DrafterOnDevice() { (void)driver->Free(ids); }

  // Writes the same id everywhere.
  void Draft(TokenId id) {
    REQUIRE(driver
                ->Enqueue("drafter", false,
                          [this, id] {
                            std::fill_n(ids, 4 * kStride, id);
                            return GpuResult::Ok();
                          })
                .ok());
  }
  void RunTarget() {
    REQUIRE(driver
                ->Enqueue("target", false,
                          [this] {
                            has_target_run = true;
                            return GpuResult::Ok();
                          })
                .ok());
  }
  absl::Status ReadEarly(Ids* found) {
    found->assign(2 * kDraft, -5);
    const TokenRowRead reads[] = {{.slot = 3, .num_ids = kDraft, .to = found->data()},
                                  {.slot = 1, .num_ids = 2, .to = found->data() + kDraft}};
    return backend->ReadDraftTokensEarly({ids, kStride, MemorySpace::kDevice}, reads);
  }

  int stream = 0;
  FakeGpu gpu;
  FakeGpuDriver* driver = nullptr;
  std::unique_ptr<CudaBackend> backend;
  TokenId* ids = nullptr;
  bool has_target_run = false;
};

TEST_SUITE("unit") {
  TEST_CASE("an early read has the ids of the mark, and the target model has not run") {
    for (const int64_t upload_bytes : {int64_t{1} << 30, int64_t{1}}) {
      DrafterOnDevice f(upload_bytes);
      f.Draft(7);
      REQUIRE(f.backend->MarkDrafts(&f.stream).ok());
      f.RunTarget();
      f.Draft(9);
      Ids found;
      REQUIRE(f.ReadEarly(&found).ok());
      CHECK(found == Ids{7, 7, 7, 7, 7, -5});
      CHECK_FALSE(f.has_target_run);
      // A later read comes after all work, on the engine's CUDA stream.
      Ids later(kDraft);
      const TokenRowRead read{.slot = 0, .num_ids = kDraft, .to = later.data()};
      REQUIRE(f.backend->ReadDraftTokens({f.ids, kStride, MemorySpace::kDevice}, {&read, 1}).ok());
      CHECK(later == Ids{9, 9, 9});
      CHECK(f.has_target_run);
      // A second mark takes the place of the first.
      f.Draft(2);
      REQUIRE(f.backend->MarkDrafts(&f.stream).ok());
      REQUIRE(f.ReadEarly(&found).ok());
      CHECK(found == Ids{2, 2, 2, 2, 2, -5});
    }
  }

  TEST_CASE("a mark is refused by name while its CUDA stream captures, and on another device") {
    DrafterOnDevice f;
    f.gpu.stream_captures = true;
    const absl::Status captures = f.backend->MarkDrafts(&f.stream);
    CHECK(captures.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(captures.message().find("capturing") != std::string::npos);
    CHECK(f.gpu.caller_spoiled_by.empty());
    f.gpu.stream_captures = false;
    int other = 0;
    f.gpu.devices_of_streams[&other] = 1;
    const absl::Status elsewhere = f.backend->MarkDrafts(&other);
    CHECK(elsewhere.code() == absl::StatusCode::kInvalidArgument);
    CHECK(elsewhere.message().find("device 1") != std::string::npos);
  }

  TEST_CASE("an early read that fails leaves later work on the engine's CUDA stream") {
    for (const std::string call : {"EnqueueAfterMark", "ToHost", "Synchronize"}) {
      CAPTURE(call);
      DrafterOnDevice f;
      f.Draft(7);
      REQUIRE(f.backend->MarkDrafts(&f.stream).ok());
      f.gpu.failing_call = call;
      Ids found;
      CHECK(f.ReadEarly(&found).code() == absl::StatusCode::kInternal);
      f.gpu.failing_call.clear();
      f.RunTarget();
      Ids later(kDraft);
      const TokenRowRead read{.slot = 0, .num_ids = kDraft, .to = later.data()};
      REQUIRE(f.backend->ReadDraftTokens({f.ids, kStride, MemorySpace::kDevice}, {&read, 1}).ok());
      CHECK(later == Ids{7, 7, 7});
      CHECK(f.has_target_run);
    }
  }
}

}  // namespace
}  // namespace specd
