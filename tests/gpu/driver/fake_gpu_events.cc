// FakeGpuContext's events: they remember records.
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/gpu/driver/fake_gpu_context.h"

namespace specd {

GpuResult FakeGpuContext::CreateEvent(GpuEvent* event) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "CreateEvent");
  if (!begun.ok()) return begun;
  auto made = std::make_shared<Event>();
  event->handle = made.get();
  events_[event->handle] = std::move(made);
  return begun;
}

GpuResult FakeGpuContext::DestroyEvent(GpuEvent event) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, "DestroyEvent");
  if (!begun.ok()) return begun;
  if (events_.erase(event.handle) == 0)
    return Refuse("DestroyEvent", kGpuInvalidHandle, "no event");
  return begun;
}

GpuResult FakeGpuContext::EnqueueWith(
    const char* call, GpuEvent event, GpuStream stream,
    const std::function<uint64_t(FakeGpuQueue&, const std::shared_ptr<Event>&)>& push) {
  std::unique_lock<std::mutex> lock;
  const GpuResult begun = Begin(&lock, call);
  if (!begun.ok()) return begun;
  Stream* const on = Find(stream);
  const auto found = events_.find(event.handle);
  if (on == nullptr || found == events_.end()) {
    return Refuse(call, kGpuInvalidHandle, "no stream or no event");
  }
  on->last_ticket = push(*on->queue, found->second);
  return begun;
}

GpuResult FakeGpuContext::RecordEvent(GpuEvent event, GpuStream stream) {
  return EnqueueWith("RecordEvent", event, stream, [](auto& queue, const auto& found) {
    const uint64_t record = found->recorded.fetch_add(1) + 1;
    return queue.Push([found, record] {
      uint64_t seen = found->completed.load();
      while (seen < record && !found->completed.compare_exchange_weak(seen, record)) {
      }
    });
  });
}

GpuResult FakeGpuContext::WaitEvent(GpuStream stream, GpuEvent event) {
  return EnqueueWith("WaitEvent", event, stream, [](auto& queue, const auto& found) {
    const uint64_t record = found->recorded.load();
    return queue.PushWait([found, record] { return found->completed.load() >= record; });
  });
}

}  // namespace specd
