#include "tests/support/gpu_peer_worker.h"

#include <sys/mman.h>

#include <algorithm>
#include <vector>

namespace specd {

namespace {

std::vector<uint64_t> PiecesOf(const PeerRequest& request) {
  const uint64_t most_bytes = request.piece_bytes == 0 ? request.size_bytes : request.piece_bytes;
  std::vector<uint64_t> pieces;
  for (uint64_t left_bytes = request.size_bytes; left_bytes > 0; left_bytes -= pieces.back()) {
    pieces.push_back(std::min(left_bytes, most_bytes));
  }
  return pieces;
}

}  // namespace

GpuPeerWorker::GpuPeerWorker(PeerGpu* gpu) : gpu_(*gpu), context_(gpu->context()) {
  (void)context_.CreateStream(&stream_);
  (void)context_.CreateStream(&second_stream_);
}

GpuResult GpuPeerWorker::Do(const PeerRequest& request, int fd, PeerReply* reply,
                            UniqueFd* reply_fd) {
  switch (request.op) {
    case PeerOp::kAllocate:
      if (request.kind == GpuMemoryKind::kVmm) {
        return gpu_.AllocateVmm(PiecesOf(request), &reply->address);
      }
      if (request.kind == GpuMemoryKind::kPool) {
        return gpu_.AllocateFromPool(request.size_bytes, &reply->address);
      }
      return context_.Allocate(request.size_bytes, &reply->address);
    case PeerOp::kFree:
      return gpu_.Free(request.address);
    case PeerOp::kExport:
      return Export(request, reply, reply_fd);
    case PeerOp::kFill: {
      const std::vector<char> bytes(request.size_bytes, static_cast<char>(request.value));
      return CopyNow(reinterpret_cast<void*>(request.address), bytes.data(), bytes.size());
    }
    case PeerOp::kRead:
      return CopyNow(&reply->value, reinterpret_cast<void*>(request.address), sizeof(uint64_t));
    case PeerOp::kImport: {
      GpuMapping mapping;
      const GpuResult result =
          context_.Import({request.kind, request.handle, {{fd, request.size_bytes}}}, &mapping);
      reply->address = mapping.address;
      reply->size_bytes = mapping.size_bytes;
      return result;
    }
    case PeerOp::kWords: {
      void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (page == MAP_FAILED) return GpuResult::Error("the page of words cannot be mapped");
      words_ = static_cast<uint64_t*>(page);
      return context_.RegisterHost(words_, 4096, &words_device_);
    }
    default:
      return DoInOrder(request);
  }
}

GpuResult GpuPeerWorker::DoInOrder(const PeerRequest& request) {
  const GpuAddress word = words_device_ + request.word * sizeof(uint64_t);
  switch (request.op) {
    case PeerOp::kStore:
      __atomic_store_n(words_ + request.word, request.value, __ATOMIC_RELEASE);
      return GpuResult::Ok();
    case PeerOp::kWriteValue:
      return context_.WriteValue(stream_, word, GpuWord::k64, request.value);
    case PeerOp::kWaitValue:
      return context_.WaitValue(stream_, word, GpuWord::k64, request.value);
    case PeerOp::kQuery:
      return context_.Query(stream_);
    case PeerOp::kLoadKernel:
      return gpu_.LoadKernel(request.launch.kernel);
    case PeerOp::kLaunch: {
      PeerLaunch launch = request.launch;
      launch.words = word;
      return gpu_.Launch(request.value == 1 ? second_stream_ : stream_, launch);
    }
    default:  // what is an engine's, gpu_peer_main.cc does
      break;
  }
  return GpuResult::Error("unknown request");
}

GpuResult GpuPeerWorker::Export(const PeerRequest& request, PeerReply* reply, UniqueFd* reply_fd) {
  GpuAllocation allocation;
  GpuResult result = context_.Describe(request.address, &allocation);
  if (!result.ok()) return result;
  GpuExport exported;
  result = context_.Export(request.address, request.kind, &exported);
  reply_fd->Reset(exported.fd);
  reply->handle = exported.handle;
  reply->address = allocation.base;
  reply->size_bytes = allocation.size_bytes;
  reply->buffer_id = allocation.buffer_id;
  return result;
}

GpuResult GpuPeerWorker::CopyNow(void* target, const void* source, uint64_t size_bytes) {
  const GpuResult result = context_.Copy(stream_, target, source, size_bytes);
  return result.ok() ? context_.Synchronize(stream_) : result;
}

}  // namespace specd
