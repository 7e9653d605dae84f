// FakeGpuDriver is a GpuDriver without a GPU for tests: device memory is host memory, a kernel is
// emulated blocks, and any call can fail.
//
// Device memory is filled with poison. `allocations` and `pinned` hold the memory that is not
// freed. If a kernel gets an address of other host memory, that is an error. If a copy gets a
// device address for a host address, that is an error too. Enqueued work runs as late as possible,
// at Synchronize or Check, or as early as possible, at once. Both calls report its errors. A
// capture keeps the arguments of launches and reads memory when the graph runs. If a capture does
// not allow a call, the call is an error and spoils the capture, as on a device. The test runs the
// work on another's CUDA stream itself, at any time and any number of times. A mark is one of the
// CUDA stream of UseStream; on another's, `before_mark` is the work before it.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/core/gpu_driver.h"
#include "tests/gpu/emulation/emulated_block.h"

namespace specd {

// Outlives the driver, so a test can look at it after the backend has taken the driver.
struct FakeGpu {
  using Blocks = std::map<void*, std::unique_ptr<std::vector<uint64_t>>>;
  using Work = std::function<GpuResult()>;

  std::vector<GpuDevice> devices{
      {.name = "Fake", .uuid = "GPU-00000000-0000-0000-0000-000000000000", .l2_bytes = 1 << 16}};
  std::string failing_call;  // the method with this name fails ...
  int failing_after = 0;     // ... after this many successes
  bool fails_late = false;   // LaunchGraph launches the graph and then fails
  Blocks allocations;
  Blocks pinned;
  // Freed pinned memory is given out again with its contents, if the size is equal.
  bool reuses_pinned = false;
  std::multimap<size_t, std::unique_ptr<std::vector<uint64_t>>> used_pinned;
  // Device memory of other allocators; empty: there is none.
  std::function<bool(const void*)> is_imported;
  // Memory of another device, which only copies reach, and the addresses that were copied to.
  std::function<bool(const void*)> is_on_other_device;
  std::set<const void*> copied_to_other_device;
  std::map<GpuDriver::Graph*, std::unique_ptr<std::vector<Work>>> graphs;
  // The work that was enqueued on the CUDA streams of EnqueueOn, in order. Its first error stays:
  // no later work runs on any CUDA stream.
  std::map<void*, std::vector<Work>> others_work;
  GpuResult fault = GpuResult::Ok();
  // A CUDA stream of the caller's is capturing. Only calls that promise it are then allowed. The
  // name of the first other call is in caller_spoiled_by: that call spoiled the capture.
  bool caller_captures = false;
  bool stream_captures = false;  // the same for the CUDA stream of UseStream
  std::string caller_spoiled_by;
  void Replay(const std::vector<Work>& work);

  void* stream = nullptr;  // set by UseStream
  size_t stream_device = 0;
  size_t used_device = 0;
  std::map<void*, size_t> devices_of_streams;  // other CUDA streams belong to the device in use
  bool runs_at_once = false;
  int idle_checks = 0;               // the number of Checks that find no progress of the device
  int num_launches = 0;              // rounds and transforms that ran
  int num_graph_launches = 0;        // graphs that were enqueued
  int num_resolves = 0;              // launches that resolved a round
  int num_records = 0;               // launches that recorded a round
  int32_t num_threads = 64;          // the threads of an emulated block
  int32_t num_blocks = 3;            // the blocks of the launch of a round
  std::function<void()> after_node;  // after each node of a running graph, in order
  void* marked = nullptr;            // the CUDA stream of the last Mark
  // The work on another's CUDA stream before a mark. The fake runs it as late as possible: when the
  // driver's CUDA stream waits for the mark. Empty: that work is done.
  Work before_mark;
  const uint64_t* done_word = nullptr;                  // the word of the last LaunchEndStaged
  std::function<void(const RoundBatch&)> before_round;  // may delay the round
  std::function<void(const RoundBatch&)> after_round;   // may change the answers of a round
  // A clock that work advances.
  double now_us = 0;
  double round_us = 6;
};

// Upload memory of a CudaBackend in which any round of a test has room.
inline constexpr int64_t kPlenty = int64_t{1} << 30;

class FakeGpuDriver final : public GpuDriver {
 public:
  explicit FakeGpuDriver(FakeGpu* gpu) : gpu_(gpu) {}

  GpuResult ListDevices(std::vector<GpuDevice>* devices) override;
  GpuResult UseDevice(size_t index) override;
  size_t device_in_use() const override { return gpu_->used_device; }
  GpuResult FindDevice(void* stream, size_t* device) override;
  GpuResult UseStream(void* stream, size_t* device) override;
  GpuResult IsCapturing(bool* is_capturing) override;
  void EnqueueOn(void* stream) override {
    enqueues_on_ = stream;
    is_after_mark_ = false;
  }
  GpuResult Mark(void* stream, bool* is_capturing) override;
  GpuResult EnqueueAfterMark() override;
  void* launch_stream() const override {
    return enqueues_on_ != nullptr ? enqueues_on_ : gpu_->stream;
  }
  GpuResult Allocate(size_t size_bytes, void** memory) override;
  GpuResult AllocateZeroed(size_t size_bytes, void** memory) override;
  GpuResult Free(void* memory) override;
  GpuResult AllocatePinned(size_t size_bytes, void** memory) override;
  GpuResult FreePinned(void* memory) override;
  GpuResult ToDevice(void* device, const void* host, size_t size_bytes) override;
  GpuResult ToHost(void* host, const void* device, size_t size_bytes) override;
  GpuResult LaunchFetch(const FetchPlan& plan) override;
  GpuResult LaunchResolve(const FusedRound* round, const RoundBounds& bounds) override;
  GpuResult LaunchRound(const FusedRound* round, const RoundBounds& bounds) override;
  GpuResult LaunchRecord(const FusedRound* round, TokenId* tokens,
                         const RoundBounds& bounds) override;
  GpuResult LaunchTakeStaged(const StagedPlan& plan) override;
  GpuResult LaunchEndStaged(const StagedPlan& plan) override;
  GpuResult LaunchTransforms(const TransformBatch& batch, void* workspaces) override;
  GpuResult BeginCapture() override;
  GpuResult EndCapture(Graph** graph) override;
  GpuResult LaunchGraph(Graph* graph) override;
  GpuResult DestroyGraph(Graph* graph) override;
  GpuResult Synchronize() override;
  GpuResult Check() override;

  // For work of others on the driver's CUDA stream.
  // The result of a call that a capture does not allow.
  GpuResult Call(const std::string& name);
  // The result of a call that enqueues or, if `may_be_captured`, is captured.
  GpuResult Enqueue(const std::string& name, bool may_be_captured, FakeGpu::Work work);
  GpuResult CheckRange(const char* what, const void* begin, size_t size_bytes) const;

 private:
  GpuResult FailureOf(const std::string& name);
  void RunNow(const FakeGpu::Work& work);
  void RunPending();
  // Runs the work before the mark, and then that of EnqueueAfterMark.
  void RunAfterMark();

  bool IsDeviceMemory(const void* address) const;
  // An emulated kernel could read host memory, and a real one cannot. The driver therefore checks a
  // kernel's addresses: each must be null, in device memory or in pinned memory.
  GpuResult CheckAddresses(const char* what, std::initializer_list<const void*> addresses) const;
  GpuResult CheckTask(const Task& task) const;

  GpuResult RunFetchPlan(const FetchPlan& plan);
  GpuResult CheckRound(const FusedRound* round, const RoundBounds& bounds) const;
  GpuResult RunResolvePlan(const FusedRound* round, const RoundBounds& bounds);
  GpuResult RunRound(const FusedRound* round, const RoundBounds& bounds);
  GpuResult RunRecordOf(const FusedRound* round, TokenId* tokens, const RoundBounds& bounds);
  static bool IsEmpty(const FusedRound& round, const RoundBounds& bounds);
  GpuResult RunBodies(const FusedRound& round, const RoundBounds& bounds);
  GpuResult CheckPlan(const StagedPlan& plan) const;
  GpuResult RunTakeStaged(const StagedPlan& plan);
  GpuResult RunFetchStaged(const StagedPlan& plan);
  GpuResult RunEndStaged(const StagedPlan& plan);
  GpuResult RunTransforms(const TransformBatch& batch, void* workspaces);
  // One emulated block for each i, with its workspace poisoned.
  GpuResult RunBlocks(
      int32_t num_blocks, int32_t vocab_size, int32_t max_draft, void* workspaces,
      const std::function<void(EmulatedTeam&, const TaskWorkspace&, int32_t i)>& body);
  static GpuResult CheckProgress(const FusedRound& round);
  static void ForgetTasks(const FusedRound& round);
  GpuResult RunBody(const std::function<void(EmulatedThread)>& body);

  FakeGpu* gpu_;
  std::vector<FakeGpu::Work> pending_;
  GpuResult first_error_ = GpuResult::Ok();  // the first error of work since Synchronize
  std::vector<FakeGpu::Work> captured_;
  bool capturing_ = false;
  std::string spoiled_by_;
  void* enqueues_on_ = nullptr;
  size_t num_marked_ = 0;  // of pending_, from the first on
  bool is_after_mark_ = false;
  std::vector<FakeGpu::Work> after_mark_;
};

}  // namespace specd
