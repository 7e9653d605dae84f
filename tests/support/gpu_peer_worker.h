// GpuPeerWorker does one PeerRequest after another for the other process of gpu_peer.h, with a fake
// GPU or a real one (tests/gpu).
//
// A worker belongs to one thread, and the PeerGpu outlives it.
#pragma once

#include <unistd.h>

#include <functional>
#include <vector>

#include "ipc/base/unique_fd.h"
#include "tests/support/engine_gpu.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/peer_kernels.h"

namespace specd {

// A process's GPU, with operations of an engine's allocators that specd itself never uses.
class PeerGpu {
 public:
  virtual ~PeerGpu() = default;
  virtual EngineGpu& context() = 0;
  // Neighbouring pieces.
  virtual GpuResult AllocateVmm(const std::vector<uint64_t>& piece_bytes, GpuAddress* address) = 0;
  virtual GpuResult AllocateFromPool(uint64_t size_bytes, GpuAddress* address) = 0;
  // Frees memory of any of the three kinds, with any number of pieces.
  virtual GpuResult Free(GpuAddress address) = 0;

  // The first launch of a kernel that is not loaded may wait for the work of CUDA streams
  // (CUDA_MODULE_LOADING in CUDA's guide). If a CUDA stream will wait for a word, the caller
  // therefore loads the kernel first.
  virtual GpuResult LoadKernel(PeerKernel kernel) = 0;
  // REQUIRES: this device reaches memory and words.
  virtual GpuResult Launch(GpuStream stream, const PeerLaunch& launch) = 0;
};

class GpuPeerWorker {
 public:
  explicit GpuPeerWorker(PeerGpu* gpu);
  GpuPeerWorker(const GpuPeerWorker&) = delete;
  GpuPeerWorker& operator=(const GpuPeerWorker&) = delete;

  // If a request needs more than a GPU, it is an error.
  GpuResult Do(const PeerRequest& request, int fd, PeerReply* reply, UniqueFd* reply_fd);

 private:
  // Requests for words, CUDA streams and kernels.
  GpuResult DoInOrder(const PeerRequest& request);
  GpuResult Export(const PeerRequest& request, PeerReply* reply, UniqueFd* reply_fd);
  GpuResult CopyNow(void* target, const void* source, uint64_t size_bytes);

  PeerGpu& gpu_;
  EngineGpu& context_;
  GpuStream stream_;
  GpuStream second_stream_;
  uint64_t* words_ = nullptr;
  GpuAddress words_device_ = 0;
};

// Answers requests on the socket with handle(request, fd, &reply, &reply_fd) until it closes.
template <class F>
void ServePeer(int socket, const F& handle) {
  while (true) {
    PeerRequest request;
    UniqueFd fd;
    if (!ReceiveFromPeer(socket, &request, sizeof(request), &fd)) return;
    PeerReply reply;
    UniqueFd reply_fd;
    reply.code = handle(request, fd.get(), &reply, &reply_fd).code();
    reply.pid = getpid();
    if (!SendToPeer(socket, &reply, sizeof(reply), reply_fd.get())) return;
  }
}

}  // namespace specd
