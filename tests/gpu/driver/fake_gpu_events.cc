// FakeGpuContext's events: they remember records, and may be those of another process.
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/gpu/driver/fake_gpu_context.h"

namespace specd {

GpuResult FakeGpuContext::CreateEvent(GpuEvent* event) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "CreateEvent");
  return begun.ok() ? MakeEvent("CreateEvent", event) : begun;
}

GpuResult FakeGpuContext::CreateSharedEvent(GpuEvent* event) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "CreateSharedEvent");
  if (!begun.ok()) return begun;
  if (!options_.devices[device_index_].has_ipc_events) {
    return Refuse("CreateSharedEvent", kGpuNotSupported, "events of other processes");
  }
  return MakeEvent("CreateSharedEvent", event);
}

GpuResult FakeGpuContext::MakeEvent(const char* call, GpuEvent* event) {
  std::shared_ptr<FakeGpuBlock> block =
      FakeGpuBlock::Make({.kind = FakeBlockKind::kEvent,
                          .buffer_id = next_id_++,
                          .device_uuid = options_.devices[device_index_].uuid});
  if (block == nullptr) return Refuse(call, kGpuOutOfMemory, "no memfd");
  event->handle = block.get();
  events_[event->handle] = std::move(block);
  return GpuResult::Ok();
}

std::shared_ptr<FakeGpuBlock> FakeGpuContext::Find(GpuEvent event) {
  const auto found = events_.find(event.handle);
  if (found == events_.end()) return nullptr;
  CheckAlive(*found->second, "used as an event");
  return found->second;
}

GpuResult FakeGpuContext::ExportEvent(GpuEvent event, GpuHandle* handle) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "ExportEvent");
  if (!begun.ok()) return begun;
  const std::shared_ptr<FakeGpuBlock> block = Find(event);
  if (block == nullptr || !block->is_exporter()) {
    return Refuse("ExportEvent", kGpuInvalidHandle, "no event of this process");
  }
  *handle = block->handle();
  return begun;
}

GpuResult FakeGpuContext::OpenEvent(const GpuHandle& handle, GpuEvent* event) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "OpenEvent");
  if (!begun.ok()) return begun;
  int code = kGpuOk;
  std::shared_ptr<FakeGpuBlock> block = FakeGpuBlock::Open(handle, FakeBlockKind::kEvent, &code);
  if (block == nullptr) return Refuse("OpenEvent", code, "handle");
  event->handle = block.get();
  events_[event->handle] = std::move(block);
  return begun;
}

GpuResult FakeGpuContext::DestroyEvent(GpuEvent event) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "DestroyEvent");
  if (!begun.ok()) return begun;
  const auto found = events_.find(event.handle);
  if (found == events_.end()) return Refuse("DestroyEvent", kGpuInvalidHandle, "no event");
  if (found->second->is_exporter() && found->second->IsImported()) {
    Violation("an event was destroyed while another process had it open");
  }
  events_.erase(found);
  return begun;
}

GpuResult FakeGpuContext::EnqueueWith(
    const char* call, GpuEvent event, GpuStream stream,
    const std::function<uint64_t(FakeGpuQueue&, const std::shared_ptr<FakeGpuBlock>&)>& push) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, call);
  if (!begun.ok()) return begun;
  Stream* const found = Find(stream);
  const std::shared_ptr<FakeGpuBlock> block = Find(event);
  if (found == nullptr || block == nullptr) {
    return Refuse(call, kGpuInvalidHandle, "no stream or no event");
  }
  found->last_ticket = push(*found->queue, block);
  return begun;
}

GpuResult FakeGpuContext::RecordEvent(GpuEvent event, GpuStream stream) {
  return EnqueueWith("RecordEvent", event, stream, [](auto& queue, const auto& block) {
    const uint64_t record = block->header()->recorded.fetch_add(1) + 1;
    return queue.Push([block, record] {
      std::atomic<uint64_t>& completed = block->header()->completed;
      uint64_t seen = completed.load();
      while (seen < record && !completed.compare_exchange_weak(seen, record)) {
      }
    });
  });
}

GpuResult FakeGpuContext::WaitEvent(GpuStream stream, GpuEvent event) {
  return EnqueueWith("WaitEvent", event, stream, [](auto& queue, const auto& block) {
    const uint64_t record = block->header()->recorded.load();
    return queue.PushWait([block, record] { return block->header()->completed.load() >= record; });
  });
}

}  // namespace specd
