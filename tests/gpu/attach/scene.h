// Scene gives the scenarios of the attach checks both processes' ends. A failed expectation ends a
// scenario with the expectation's text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ipc/base/unique_fd.h"
#include "tests/gpu/attach/attach_check.h"

namespace specd {

// Expect throws it and PlayScene catches it: a scenario ends at the first failed expectation.
struct SceneOver {
  AttachStatus status = AttachStatus::kFail;
  std::string why = {};
};

void Expect(bool condition, const std::string& otherwise);
void ExpectOk(const GpuResult& result, const char* what);

// A page of words that both processes' devices reach. A scenario that ends early may leave CUDA
// streams that wait for words of the page. The page therefore stays mapped until the process ends,
// and the destructor stores values that release them.
class SharedWords {
 public:
  explicit SharedWords(GpuContext* context);
  ~SharedWords();
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;

  GpuAddress at(uint64_t word) const { return device_ + word * sizeof(uint64_t); }
  int fd() const { return fd_.get(); }
  uint64_t* host(uint64_t word) { return host_ + word; }
  void Store(uint64_t word, uint64_t value) {
    __atomic_store_n(host_ + word, value, __ATOMIC_RELEASE);
  }
  uint64_t Load(uint64_t word) const { return __atomic_load_n(host_ + word, __ATOMIC_ACQUIRE); }

 private:
  GpuContext& context_;
  UniqueFd fd_;
  uint64_t* host_ = nullptr;
  GpuAddress device_ = 0;
};

// Memory of the peer as this process receives it.
struct PeerMemory {
  PeerReply reply;
  UniqueFd fd;
  GpuAddress address_there = 0;
  GpuImport import() const { return {kind, reply.handle, {{fd.get(), reply.size_bytes}}}; }
  GpuMemoryKind kind = GpuMemoryKind::kIpc;
};

// Memory of the peer in several pieces.
struct PeerPieces {
  GpuAddress address_there = 0;
  GpuImport import{.kind = GpuMemoryKind::kVmm};
  std::vector<UniqueFd> fds;
  std::vector<uint8_t> values;  // one value for each piece, in all its bytes
};

class Scene {
 public:
  explicit Scene(const AttachSetting& setting);
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  EngineGpu& gpu() { return gpu_; }
  const GpuDevice& device() const { return setting_.device; }
  GpuStream stream() const { return stream_; }
  GpuPeer& peer();  // started by the first call
  // Starts another peer in place of the present one.
  void StartPeer(const PeerEnvironment& environment);

  // REQUIRES: nothing waits yet.
  void LoadKernels();
  // Launches on this process's CUDA stream.
  void Launch(const PeerLaunch& launch);

  // Returns the peer's answer. A bad answer ends the scenario.
  PeerReply Ask(const PeerRequest& request, int fd = -1, UniqueFd* reply_fd = nullptr);
  bool HasPeerMemory(GpuMemoryKind kind);
  // Asks the peer for memory that is filled with `value`, and exported by an address that far into
  // it. Skips the check if the device does not have that kind of memory.
  PeerMemory MemoryOfPeer(GpuMemoryKind kind, uint64_t size_bytes, uint8_t value,
                          uint64_t offset_bytes = 0);
  // The last piece has the rest of the size.
  PeerPieces PiecesOfPeer(uint64_t size_bytes, uint64_t piece_bytes);
  uint8_t ByteAt(GpuAddress address);

  // True once `condition` holds; false if it does not hold within patience_ms.
  bool Await(const std::function<bool()>& condition, int patience_ms);
  bool Await(const std::function<bool()>& condition) {
    return Await(condition, setting_.patience_ms);
  }
  // True if the CUDA stream has done its work. Any answer except "done" and "not done yet" ends the
  // scenario.
  bool IsIdle();
  bool IsPeerIdle();

 private:
  // Skips the check if the device does not have that kind of memory.
  GpuAddress AllocateThere(const PeerRequest& request);

  const AttachSetting& setting_;
  EngineGpu& gpu_;
  GpuStream stream_;
  std::unique_ptr<GpuPeer> peer_;
};

// Skips the check if CUDA streams have no words of 64 bits.
void NeedWords(const Scene& scene);

// Plays the scenario and returns its result.
AttachResult PlayScene(const AttachSetting& setting,
                       const std::function<AttachResult(Scene&)>& scenario);

// The value that about this share of the values does not exceed.
double Percentile(std::vector<double> values, double share);

}  // namespace specd
