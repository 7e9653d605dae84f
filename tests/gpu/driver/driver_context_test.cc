// The code over libcuda, against a library that only notes its calls. Every call is made in our
// context and leaves the caller's. A call that fails half-way is undone. The code reads the
// driver's answers as <cuda.h> defines them.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/driver_platform.h"
#include "tests/gpu/driver/stub_cuda.h"

namespace specd {
namespace {

using Calls = std::vector<std::string>;

// A context, and the calls that were made since it was last looked.
struct Driver {
  Driver() {
    TheStubCuda() = StubCuda();
    platform = MakeCudaPlatform();
    REQUIRE(platform->OpenContext(0, &gpu).ok());
    TheStubCuda().calls.clear();
  }
  ~Driver() {
    // These hold after every test.
    CHECK(TheStubCuda().forbidden.empty());
    CHECK(TheStubCuda().capture_mode == 0);
    TheStubCuda() = StubCuda();
  }

  Calls Made() { return std::exchange(TheStubCuda().calls, {}); }

  std::unique_ptr<GpuPlatform> platform;
  std::unique_ptr<GpuContext> gpu;
};

GpuImport ImportOf(GpuMemoryKind kind) {
  GpuImport import{kind, {}, {{5, 0x4000}}};
  import.handle[63] = 9;
  return import;
}

TEST_SUITE("unit") {
  TEST_CASE("driver: devices by the name that nvidia-smi gives them") {
    Driver driver;
    std::vector<GpuDevice> devices;
    REQUIRE(driver.platform->ListDevices(&devices).ok());
    REQUIRE(devices.size() == 1);
    CHECK(devices[0].name == "Stub");
    CHECK(devices[0].uuid == "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
    CHECK(devices[0].has_64_bit_words);
    CHECK(devices[0].has_mps == true);
    CHECK(devices[0].granularity_bytes == 0x2000);
    // A driver that has never heard of MPS as an attribute.
    TheStubCuda().failing_call = "mps";
    REQUIRE(driver.platform->ListDevices(&devices).ok());
    CHECK_FALSE(devices[0].has_mps.has_value());
    TheStubCuda().failing_call = "cuMemGetAllocationGranularity";
    REQUIRE(driver.platform->ListDevices(&devices).ok());
    CHECK(devices[0].granularity_bytes == 0);
    TheStubCuda().failing_call = "cuDeviceGetCount";
    TheStubCuda().failing_code = kGpuNoDevice;
    REQUIRE(driver.platform->ListDevices(&devices).ok());
    CHECK(devices.empty());
    TheStubCuda().failing_code = 999;
    CHECK(driver.platform->ListDevices(&devices).code() == 999);
  }

  TEST_CASE("driver: a stream of somebody else, its device, and whether it records a graph") {
    Driver driver;
    size_t device_index = 7;
    REQUIRE(driver.platform->FindDevice({}, &device_index).ok());
    CHECK(device_index == 0);
    CHECK(TheStubCuda().contexts_pushed == 0);
    CHECK(TheStubCuda().contexts_retained == 1);  // by the open context only
    // One that an engine made with cuCtxCreate: ours cannot work there.
    TheStubCuda().stream_context = &driver;
    CHECK(driver.platform->FindDevice({}, &device_index).code() == kGpuInvalidContext);
    CHECK(TheStubCuda().contexts_retained == 1);
    TheStubCuda().failing_call = "cuStreamGetCtx";
    TheStubCuda().failing_code = kGpuInvalidHandle;
    CHECK(driver.platform->FindDevice({}, &device_index).code() == kGpuInvalidHandle);
    TheStubCuda().failing_call = "cuCtxGetDevice";
    CHECK(driver.platform->FindDevice({}, &device_index).code() == kGpuInvalidHandle);
    CHECK(TheStubCuda().contexts_pushed == 0);

    bool is_capturing = true;
    REQUIRE(driver.gpu->IsCapturing({}, &is_capturing).ok());
    CHECK_FALSE(is_capturing);
    TheStubCuda().capture_status = 2;  // invalidated: it records nothing useful, but it records
    REQUIRE(driver.gpu->IsCapturing({}, &is_capturing).ok());
    CHECK(is_capturing);
  }

  TEST_CASE("driver: the primary context is given back once") {
    {
      Driver driver;
      CHECK(TheStubCuda().contexts_retained == 1);
      driver.gpu.reset();
      CHECK(TheStubCuda().contexts_retained == 0);
    }
    Driver driver;
    TheStubCuda().failing_call = "cuDevicePrimaryCtxRetain";
    std::unique_ptr<GpuContext> none;
    CHECK(driver.platform->OpenContext(0, &none).code() == 1);
    CHECK(none == nullptr);
  }

  TEST_CASE("driver: an error has the call, the name and the number in it") {
    Driver driver;
    TheStubCuda().failing_call = "cuMemHostUnregister";
    TheStubCuda().failing_code = kGpuOutOfMemory;
    int host = 0;
    const GpuResult result = driver.gpu->UnregisterHost(&host);
    CHECK(result.code() == kGpuOutOfMemory);
    CHECK(result.text() == "cuMemHostUnregister: CUDA_ERROR_STUB = 2 (as asked for)");
    CHECK(TheStubCuda().contexts_pushed == 0);  // also after an error
  }

  TEST_CASE("driver: a handle is opened, measured, and closed") {
    Driver driver;
    GpuMapping mapping;
    REQUIRE(driver.gpu->Import(ImportOf(GpuMemoryKind::kIpc), &mapping).ok());
    CHECK(mapping.address == 0x10000);
    CHECK(mapping.size_bytes == 0x8000);
    CHECK(TheStubCuda().last_value == 9 + 256);  // the whole handle; lazy peer access
    CHECK(driver.Made() == Calls{"cuIpcOpenMemHandle_v2", "cuMemGetAddressRange_v2"});
    REQUIRE(driver.gpu->Close(mapping).ok());
    CHECK(driver.Made() == Calls{"cuIpcCloseMemHandle"});
    TheStubCuda().failing_call = "cuMemGetAddressRange_v2";
    CHECK_FALSE(driver.gpu->Import(ImportOf(GpuMemoryKind::kIpc), &mapping).ok());
    CHECK(driver.Made().back() == "cuIpcCloseMemHandle");
    CHECK(TheStubCuda().contexts_pushed == 0);
  }

  TEST_CASE("driver: pieces lie side by side in one range, and go as they came") {
    Driver driver;
    StubCuda& stub = TheStubCuda();
    GpuMapping mapping;
    GpuImport import = ImportOf(GpuMemoryKind::kVmm);
    REQUIRE(driver.gpu->Import(import, &mapping).ok());
    CHECK(stub.fds == std::vector<int>{5});
    CHECK(mapping.address == 0x70000);
    CHECK(mapping.size_bytes == 0x4000);
    CHECK(driver.Made() == Calls{"cuMemAddressReserve", "cuMemImportFromShareableHandle",
                                 "cuMemMap", "cuMemRelease", "cuMemSetAccess"});
    REQUIRE(driver.gpu->Close(mapping).ok());
    CHECK(driver.Made() == Calls{"cuMemUnmap", "cuMemAddressFree"});

    stub.fds.clear();
    stub.ranges.clear();
    import.pieces = {{6, 0x4000}, {7, 0x2000}, { 8, 0x6000 }};
    REQUIRE(driver.gpu->Import(import, &mapping).ok());
    CHECK(stub.fds == std::vector<int>{6, 7, 8});
    CHECK(mapping.address == 0x70000);
    CHECK(mapping.size_bytes == 0xc000);
    const Calls made = driver.Made();
    CHECK(made.front() == "cuMemAddressReserve");
    CHECK(made.back() == "cuMemSetAccess");
    CHECK(std::count(made.begin(), made.end(), "cuMemMap") == 3);
    CHECK(std::count(made.begin(), made.end(), "cuMemSetAccess") == 1);
    using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
    const Ranges pieces = {{0x70000, 0x4000}, {0x74000, 0x2000}, {0x76000, 0x6000}};
    CHECK(stub.ranges ==
          Ranges{{0x70000, 0xc000}, pieces[0], pieces[1], pieces[2], {0x70000, 0xc000}});
    stub.ranges.clear();
    REQUIRE(driver.gpu->Close(mapping).ok());
    CHECK(driver.Made() == Calls{"cuMemUnmap", "cuMemUnmap", "cuMemUnmap", "cuMemAddressFree"});
    CHECK(stub.ranges == Ranges{pieces[0], pieces[1], pieces[2], {0x70000, 0xc000}});
    // A piece that stays mapped keeps its address; the others go.
    stub.failing_call = "cuMemUnmap";
    stub.calls_before_failing = 1;
    CHECK_FALSE(driver.gpu->Close(mapping).ok());
    CHECK(driver.Made() == Calls{"cuMemUnmap", "cuMemUnmap", "cuMemUnmap"});
    CHECK(stub.contexts_pushed == 0);
  }

  TEST_CASE("driver: what fails half-way into the pieces is undone") {
    Driver driver;
    StubCuda& stub = TheStubCuda();
    GpuImport import = ImportOf(GpuMemoryKind::kVmm);
    import.pieces = {{6, 0x4000}, { 7, 0x2000 }};
    // Returns the calls after the one that fails, which is the first of its name or the second.
    const auto after_failing = [&](const char* call, int num_before, const char* text) {
      stub.failing_call = call;
      stub.calls_before_failing = num_before;
      GpuMapping mapping;
      const GpuResult result = driver.gpu->Import(import, &mapping);
      CHECK(result.code() == 1);
      CHECK(result.text().starts_with(text));
      stub.failing_call.clear();
      const Calls made = driver.Made();
      auto failed = made.begin();
      for (int i = 0; i <= num_before; ++i) failed = std::find(failed, made.end(), call) + 1;
      return Calls(failed, made.end());
    };
    const Calls free = {"cuMemAddressFree"};
    const Calls one = {"cuMemUnmap", "cuMemAddressFree"};
    const Calls both = {"cuMemUnmap", "cuMemUnmap", "cuMemAddressFree"};
    const auto released = [](Calls calls) {
      calls.insert(calls.begin(), "cuMemRelease");
      return calls;
    };
    constexpr const char* kImport = "cuMemImportFromShareableHandle";
    CHECK(after_failing("cuMemAddressReserve", 0, "cuMemAddressReserve") == Calls{});
    CHECK(after_failing(kImport, 0, "piece 1 of 2: cuMemImport") == free);
    CHECK(after_failing(kImport, 1, "piece 2 of 2: cuMemImport") == one);
    CHECK(after_failing("cuMemMap", 0, "piece 1 of 2: cuMemMap") == released(free));
    CHECK(after_failing("cuMemMap", 1, "piece 2 of 2: cuMemMap") == released(one));
    CHECK(after_failing("cuMemRelease", 0, "piece 1 of 2: cuMemRelease") == one);
    CHECK(after_failing("cuMemRelease", 1, "piece 2 of 2: cuMemRelease") == both);
    CHECK(after_failing("cuMemSetAccess", 0, "cuMemSetAccess") == both);
    CHECK(stub.contexts_pushed == 0);
  }

  TEST_CASE("driver: a pool's pointer needs its pool, and both go") {
    Driver driver;
    GpuMapping mapping;
    REQUIRE(driver.gpu->Import(ImportOf(GpuMemoryKind::kPool), &mapping).ok());
    CHECK(mapping.address == 0x10000);
    CHECK(mapping.size_bytes == 0x8000);
    CHECK(driver.Made() == Calls{"cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer",
                                 "cuMemGetAddressRange_v2"});
    REQUIRE(driver.gpu->Close(mapping).ok());
    CHECK(driver.Made() == Calls{"cuMemFree_v2", "cuMemPoolDestroy"});
    TheStubCuda().failing_call = "cuMemPoolImportPointer";
    CHECK_FALSE(driver.gpu->Import(ImportOf(GpuMemoryKind::kPool), &mapping).ok());
    CHECK(driver.Made() == Calls{"cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer",
                                 "cuMemPoolDestroy"});
    TheStubCuda().failing_call = "cuMemGetAddressRange_v2";
    CHECK_FALSE(driver.gpu->Import(ImportOf(GpuMemoryKind::kPool), &mapping).ok());
    CHECK(driver.Made().back() == "cuMemPoolDestroy");
  }

  TEST_CASE("driver: what an allocation is, and how it can travel") {
    Driver driver;
    StubCuda& stub = TheStubCuda();
    GpuAllocation found;
    REQUIRE(driver.gpu->Describe(0x12345, &found).ok());
    CHECK(found.base == 0x10000);
    CHECK(found.size_bytes == 0x8000);
    CHECK(found.buffer_id == 77);
    CHECK(found.is_ipc_exportable);
    CHECK_FALSE(found.is_vmm_exportable);
    stub.is_ipc_capable = false;
    stub.handle_types = 1;  // a descriptor, of one mapping of the range
    REQUIRE(driver.gpu->Describe(0x12345, &found).ok());
    CHECK(found.is_vmm_exportable);
    CHECK_FALSE(found.is_pool_exportable);
    CHECK(found.base == 0x12000);
    CHECK(found.size_bytes == 0x2000);
    stub.pool = &stub;
    REQUIRE(driver.gpu->Describe(0x12345, &found).ok());
    CHECK(found.is_pool_exportable);
    CHECK_FALSE(found.is_vmm_exportable);
    CHECK(found.base == 0x10000);
    stub.handle_types = 8;  // a fabric handle is no descriptor
    REQUIRE(driver.gpu->Describe(0x12345, &found).ok());
    CHECK_FALSE(found.is_pool_exportable);
    stub.memory_type = 1;  // the host's, though registered
    CHECK(driver.gpu->Describe(0x12345, &found).code() == kGpuInvalidValue);
    stub.memory_type = 2;
    stub.device_ordinal = -2;
    CHECK_FALSE(driver.gpu->Describe(0x12345, &found).ok());
  }

  TEST_CASE("driver: where an address lies, without a context and without starting the driver") {
    Driver driver;
    std::optional<size_t> device;
    const auto device_of = [&] {
      device = 99;
      const GpuResult result = driver.platform->DeviceOf(0x10000, &device);
      INFO(result.text());
      CHECK(result.ok());
      return device;
    };
    TheStubCuda().device_ordinal = 3;
    CHECK(device_of() == 3);
    CHECK(driver.Made() == Calls{"cuPointerGetAttributes"});
    CHECK(TheStubCuda().contexts_pushed == 0);
    TheStubCuda().is_managed = true;  // which the CPU reads too
    CHECK(device_of() == std::nullopt);
    TheStubCuda().is_managed = false;
    TheStubCuda().memory_type = 1;  // pinned memory of the host
    CHECK(device_of() == std::nullopt);
    TheStubCuda().memory_type = 0;  // memory that the driver does not know
    TheStubCuda().device_ordinal = -2;
    CHECK(device_of() == std::nullopt);
    TheStubCuda().memory_type = 2;
    TheStubCuda().device_ordinal = 0;
    TheStubCuda().failing_call = "cuPointerGetAttributes";
    for (const int code : {kGpuNotInitialized, kGpuNoDevice}) {  // nothing is on a device
      TheStubCuda().failing_code = code;
      CHECK(device_of() == std::nullopt);
    }
  }

  TEST_CASE("driver: bug: a query that failed said that device memory is host memory") {
    Driver driver;
    TheStubCuda().failing_call = "cuPointerGetAttributes";
    for (const int code : {kGpuInvalidValue, kGpuInvalidContext, kGpuIllegalAddress}) {
      TheStubCuda().failing_code = code;
      std::optional<size_t> device = 99;
      const GpuResult result = driver.platform->DeviceOf(0x10000, &device);
      CHECK(result.code() == code);
      CHECK(result.text().find("cuPointerGetAttributes") != std::string::npos);
      CHECK(device == std::nullopt);
    }
  }

  TEST_CASE("driver: exports by kind") {
    Driver driver;
    GpuExport exported;
    REQUIRE(driver.gpu->Export(0x12345, GpuMemoryKind::kIpc, &exported).ok());
    CHECK(exported.fd == -1);
    CHECK(driver.Made() == Calls{"cuIpcGetMemHandle"});
    TheStubCuda().last_fd = 6;
    REQUIRE(driver.gpu->Export(0x12345, GpuMemoryKind::kVmm, &exported).ok());
    CHECK(exported.fd == 6);
    CHECK(driver.Made() ==
          Calls{"cuMemRetainAllocationHandle", "cuMemExportToShareableHandle", "cuMemRelease"});
    TheStubCuda().failing_call = "cuMemExportToShareableHandle";
    CHECK_FALSE(driver.gpu->Export(0x12345, GpuMemoryKind::kVmm, &exported).ok());
    CHECK(exported.fd == -1);
    CHECK(driver.Made().back() == "cuMemRelease");
    REQUIRE(driver.gpu->Export(0x12345, GpuMemoryKind::kPool, &exported).ok());
    CHECK(driver.Made() == Calls{"cuPointerGetAttributes", "cuMemPoolExportPointer",
                                 "cuMemPoolExportToShareableHandle"});
  }

  TEST_CASE("driver: words in their width, waits that compare, events without times") {
    Driver driver;
    const GpuStream stream;
    REQUIRE(driver.gpu->WriteValue(stream, 64, GpuWord::k32, 0x1'0000'0002).ok());
    CHECK(TheStubCuda().last_value == 2);
    REQUIRE(driver.gpu->WriteValue(stream, 64, GpuWord::k64, 0x1'0000'0002).ok());
    CHECK(TheStubCuda().last_value == 0x1'0000'0002);
    REQUIRE(driver.gpu->WaitValue(stream, 64, GpuWord::k32, 2).ok());
    CHECK(TheStubCuda().last_value == 0);  // CU_STREAM_WAIT_VALUE_GEQ
    REQUIRE(driver.gpu->WaitValue(stream, 64, GpuWord::k64, 2).ok());
    CHECK(driver.Made() == Calls{"cuStreamWriteValue32_v2", "cuStreamWriteValue64_v2",
                                 "cuStreamWaitValue32_v2", "cuStreamWaitValue64_v2"});
    GpuEvent event;
    REQUIRE(driver.gpu->CreateEvent(&event).ok());
    CHECK(TheStubCuda().last_value == 2);  // CU_EVENT_DISABLE_TIMING
    driver.Made();
    REQUIRE(driver.gpu
                ->LaunchHostFunction(
                    stream, [](void*) {}, nullptr)
                .ok());
    CHECK(driver.Made() == Calls{"cuLaunchHostFunc"});
    GpuAddress device = 0;
    int host = 0;
    TheStubCuda().failing_call = "cuMemHostGetDevicePointer_v2";
    CHECK_FALSE(driver.gpu->RegisterHost(&host, 4096, &device).ok());
    CHECK(driver.Made().back() == "cuMemHostUnregister");
    CHECK(TheStubCuda().contexts_pushed == 0);
  }
}

}  // namespace
}  // namespace specd
