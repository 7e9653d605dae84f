// Regions come and go, and rows may lie in imported device memory. The tests check what Bind
// accepts, and that memory is not unmapped under a round.
#include <doctest/doctest.h>
#include <sys/syscall.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "daemon/session/member_session.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/session/device_fixture.h"
#include "tests/daemon/session/hooked_session.h"
#include "tests/support/eventually.h"
#include "tests/support/sealed_memory.h"
#include "tests/support/session_steps.h"

namespace specd {
namespace {

constexpr uint64_t kRowBytes = 8 * sizeof(float);  // the fixture's vocabulary has 8 tokens

// True if the thread of this process waits at a lock, or for another thread in some other way.
// False for a thread that is about to run, and for one that was not begun (0).
bool WaitsForAnother(pid_t tid) {
  long call = -1;  // "running" is no number
  return tid != 0 && std::ifstream("/proc/self/task/" + std::to_string(tid) + "/syscall") >> call &&
         call == SYS_futex;
}

// A session whose backend says that it runs on `uuid`, and an engine's allocation on the first
// pretended device.
struct Fixture : SessionFixture {
  explicit Fixture(const std::string& uuid = FakeGpuOptions().devices[0].uuid)
      : SessionFixture(false) {
    SessionOptions options = session->options();
    options.importer = &importer;
    auto owned = std::make_unique<HookedBackend>();
    hooked = owned.get();
    backend = hooked;
    backend->uuid = uuid;
    Attach(options, std::move(owned));
    hooked->hook = [this](const RoundBatch& batch) { batches.push_back(batch); };
    // The target rows are memory of the host, so next tokens wait for the end of a round.
    backend->write_next = [this](const RoundBatch& batch) {
      written.emplace_back(batch.slot_outputs, batch.slot_outputs + batch.num_slot_outputs);
      return absl::OkStatus();
    };
  }

  uint32_t RegisterDevice() { return RegisterDevice(session->device_regions()); }
  uint32_t RegisterDevice(DeviceRegions& regions) {
    DeviceRegionSpec spec = test::SpecOf(peer);
    spec.offset_bytes = 4096;
    spec.size_bytes = 64 * kRowBytes;
    const auto region = regions.Register(spec, {}, peer.pid());
    REQUIRE(region.ok());
    return *region;
  }

  absl::Status Bind(TensorRole role, uint32_t region, const TensorSpec& spec) {
    return session->Bind(role, region, spec);
  }
  void Round(const std::string& name = "r") {
    const SequenceHandle s = Open(name);
    backend->script = {Confirm(0, {1})};
    REQUIRE(Submit({s}) == PushResult::kOk);
    REQUIRE(StepSession(session));
  }

  // Calls `end` on the control thread in the middle of a round. True if the one import stays until
  // the round's end.
  bool StaysMappedInRound(const std::function<void()>& end) {
    std::atomic<pid_t> control_tid{0};
    std::atomic<bool> has_ended{false};
    std::thread control;
    bool was_mapped = true;
    hooked->hook = [&](const RoundBatch& batch) {
      batches.push_back(batch);
      control = std::thread([&] {
        control_tid = gettid();
        end();
        has_ended = true;
      });
      // A thread that has not come to the lock yet would leave everything mapped, even if it does
      // then.
      CHECK(Eventually([&] { return has_ended || WaitsForAnother(control_tid); }));
      CHECK_FALSE(has_ended);
      // Enough time to unmap it, if the thread waits for anything except the round.
      for (int i = 0; i < 500 && was_mapped; ++i) {
        std::this_thread::yield();
        was_mapped = platform.gpu->num_imports() == 1;
      }
    };
    Round();
    control.join();
    hooked->hook = [this](const RoundBatch& batch) { batches.push_back(batch); };
    return was_mapped;
  }

  test::SeenPlatform platform;
  DeviceImporter importer{&platform, [](std::string_view) {}};
  GpuPeer peer;
  HookedBackend* hooked = nullptr;
  std::vector<RoundBatch> batches;
  std::vector<std::vector<SlotOutput>> written;  // the arrays of each write of next tokens
};

TEST_SUITE("process") {
  TEST_CASE("a round is given device memory where it lies, and each role its own kind") {
    Fixture f;
    const uint32_t device = f.RegisterDevice();
    const RowMemory memory = f.session->device_regions().Find(device)->memory;
    REQUIRE(f.Bind(TensorRole::kTargetRows, device, {SPECD_FLOAT32, 2 * kRowBytes, 4, 13}).ok());
    REQUIRE(f.Bind(TensorRole::kGrammarMask, device, {SPECD_FLOAT32, 4, 3, 0}).ok());
    f.Round();
    REQUIRE(f.batches.size() == 1);
    const TensorView& target = f.batches[0].target;
    CHECK(target.space == MemorySpace::kDevice);
    CHECK(target.data == static_cast<const char*>(memory.data) + 2 * kRowBytes);
    CHECK(target.row_stride == 13);
    CHECK(f.batches[0].mask.space == MemorySpace::kDevice);
    CHECK(f.batches[0].mask.words == static_cast<const uint32_t*>(memory.data) + 1);
    CHECK(f.batches[0].draft.space == MemorySpace::kHost);
  }

  TEST_CASE("tensors in device memory have the bounds of tensors in host memory") {
    Fixture f;
    const uint32_t device = f.RegisterDevice();
    const TensorRole role = TensorRole::kTargetRows;
    CHECK(f.Bind(role, device, {SPECD_FLOAT32, 0, 64, 0}).ok());
    struct Bad {
      TensorSpec spec;
      const char* field;
    };
    for (const Bad& bad :
         {Bad{{SPECD_FLOAT32, 0, 65, 0}, "num_rows"}, Bad{{SPECD_FLOAT32, 4, 64, 0}, "num_rows"},
          Bad{{SPECD_FLOAT32, 64 * kRowBytes, 1, 0}, "offset_bytes"},
          Bad{{SPECD_FLOAT32, ~uint64_t{3}, 1, 0}, "offset_bytes"},
          Bad{{SPECD_FLOAT32, 2, 1, 0}, "offset_bytes"},
          Bad{{SPECD_FLOAT32, 0, 2, uint64_t{1} << 40}, "num_rows"},
          Bad{{SPECD_FLOAT32, 0, 2, 7}, "row_stride"}}) {
      CHECK(ErrorFieldOf(f.Bind(role, device, bad.spec)) == bad.field);
    }
  }

  TEST_CASE("memory of another device than that of the rounds is refused by region and role") {
    const std::string other = FakeGpuOptions().devices[1].uuid;
    for (const std::string& uuid : {other, std::string()}) {
      Fixture f(uuid);
      const absl::Status status =
          f.Bind(TensorRole::kDraftRows, f.RegisterDevice(), {SPECD_FLOAT32, 0, 1, 0});
      CHECK(ErrorCodeOf(status) == SPECD_ERROR_UNSUPPORTED);
      CHECK(ErrorFieldOf(status) == "region");
      const std::string text(status.message());
      CAPTURE(text);
      CHECK(text.find("region = 65536") != std::string::npos);
      CHECK(text.find("SPECD_DRAFT_ROWS") != std::string::npos);
      CHECK(text.find(uuid.empty() ? "--device=cuda" : other) != std::string::npos);
    }
  }

  TEST_CASE("next tokens may lie on another device than that of the rounds, but not for the CPU") {
    const TensorSpec spec = {0, 0, 4, 0};
    Fixture device(FakeGpuOptions().devices[1].uuid);
    REQUIRE(device.Bind(TensorRole::kNextToken, device.RegisterDevice(), spec).ok());
    device.Round();
    REQUIRE(device.written.size() == 1);
    REQUIRE(device.written[0].size() == 1);
    CHECK(device.written[0][0].space == MemorySpace::kOtherDevice);
    Fixture same;
    REQUIRE(same.Bind(TensorRole::kNextToken, same.RegisterDevice(), spec).ok());
    same.Round();
    REQUIRE(same.written.size() == 1);
    CHECK(same.written[0][0].space == MemorySpace::kDevice);
    Fixture cpu((std::string()));
    const absl::Status status = cpu.Bind(TensorRole::kNextToken, cpu.RegisterDevice(), spec);
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_UNSUPPORTED);
    CHECK(std::string(status.message()).find("SPECD_NEXT_TOKEN") != std::string::npos);
  }

  TEST_CASE("device memory that a role is bound to stays mapped until the role has other memory") {
    Fixture f;
    const uint32_t device = f.RegisterDevice();
    REQUIRE(f.Bind(TensorRole::kDraftRows, device, {SPECD_FLOAT32, 0, 1, 0}).ok());
    const absl::Status status = f.session->UnregisterRegion(device);
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_STATE);
    CHECK(std::string(status.message()).find("SPECD_DRAFT_ROWS") != std::string::npos);
    CHECK(f.platform.gpu->num_imports() == 1);
    // A role whose binding failed is not bound.
    REQUIRE_FALSE(f.Bind(TensorRole::kTargetRows, device, {SPECD_FLOAT32, 0, 99, 0}).ok());
    REQUIRE(f.Bind(TensorRole::kDraftRows, 1, {SPECD_FLOAT32, 0, 1, 0}).ok());
    CHECK(f.session->UnregisterRegion(device).ok());
    CHECK(f.platform.gpu->num_imports() == 0);
    CHECK(ErrorCodeOf(f.Bind(TensorRole::kDraftRows, device, {SPECD_FLOAT32, 0, 1, 0})) ==
          SPECD_ERROR_NOT_FOUND);
  }

  TEST_CASE("the end of a session waits for the round that reads device memory") {
    Fixture f;
    const uint32_t device = f.RegisterDevice();
    REQUIRE(f.Bind(TensorRole::kTargetRows, device, {SPECD_FLOAT32, 0, 4, 0}).ok());
    CHECK(f.StaysMappedInRound([&] { f.session->EndAll(); }));
    CHECK(f.platform.gpu->num_imports() == 0);
    CHECK_FALSE(StepSession(f.session));
  }

  TEST_CASE(
      "a rank that leaves waits for the round that writes its memory, and is in no later one") {
    Fixture f;
    const auto member = MemberSession::Join(f.session, {.rank = 3});
    REQUIRE(member.ok());
    const uint32_t region = f.RegisterDevice((*member)->regions().device());
    REQUIRE((*member)->Bind(static_cast<TensorRole>(4 + 3), region, {0, 0, 4, 0}).ok());
    CHECK(f.StaysMappedInRound([&] { (*member)->Leave(); }));
    CHECK(f.platform.gpu->num_imports() == 0);
    f.Round("behind it");
    REQUIRE(f.batches.size() == 2);
    REQUIRE(f.written.size() == 1);  // the round behind it had none to write
    CHECK(f.written[0].size() == 1);
    CHECK(f.session->ranks().bound_ranks() == 0);
  }
}

TEST_SUITE("unit") {
  TEST_CASE("host regions are unregistered too, unless a role is bound to them") {
    SessionFixture f(false);  // its target rows lie in region 1
    CHECK(ErrorCodeOf(f.session->UnregisterRegion(1)) == SPECD_ERROR_STATE);
    const TensorSpec spec = {SPECD_FLOAT32, 0, 4, 0};
    const auto second = f.session->RegisterRegion(SealedMemory(4096), 4096);
    REQUIRE(second.ok());
    REQUIRE(f.session->Bind(TensorRole::kTargetRows, *second, spec).ok());
    CHECK(f.session->UnregisterRegion(1).ok());
    for (const uint32_t gone : {0u, 1u, *second + 1}) {
      CHECK(ErrorCodeOf(f.session->UnregisterRegion(gone)) == SPECD_ERROR_NOT_FOUND);
      CHECK(ErrorCodeOf(f.session->Bind(TensorRole::kDraftRows, gone, spec)) ==
            SPECD_ERROR_NOT_FOUND);
    }
  }

  TEST_CASE("sixteen host regions at a time; no number is used twice") {
    SessionFixture f(false);
    uint32_t last = 1;
    for (int i = 1; i < 16; ++i) last = *f.session->RegisterRegion(SealedMemory(4096), 4096);
    CHECK(ErrorCodeOf(f.session->RegisterRegion(SealedMemory(4096), 4096).status()) ==
          SPECD_ERROR_EXHAUSTED);
    CHECK(f.session->UnregisterRegion(last).ok());
    const auto next = f.session->RegisterRegion(SealedMemory(4096), 4096);
    REQUIRE(next.ok());
    CHECK(*next == last + 1);
  }
}

}  // namespace
}  // namespace specd
