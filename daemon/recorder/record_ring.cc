#include "daemon/recorder/record_ring.h"

#include "kernels/core/check.h"

namespace specd {

RecordRing::RecordRing(uint64_t size_bytes)
    : size_bytes_(size_bytes),
      memory_(static_cast<std::byte*>(::operator new[](size_bytes, std::align_val_t{kAlignment}))) {
  SPECD_CHECK(size_bytes >= uint64_t{1} << 20 && size_bytes % 4096 == 0);
}

void RecordRing::Skip(uint64_t size_bytes) {
  const uint64_t position = published_.load(std::memory_order_relaxed);
  *HeadAt(position) = {.size_bytes = size_bytes, .content_bytes = 0, .kind = kSkip};
  published_.store(position + size_bytes, std::memory_order_release);
}

std::byte* RecordRing::Reserve(uint64_t size_bytes, bool may_use_spare) {
  if (size_bytes > record_bytes_max()) return nullptr;
  const uint64_t needed = (size_bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  const uint64_t popped = popped_.load(std::memory_order_acquire);
  uint64_t position = published_.load(std::memory_order_relaxed);
  const uint64_t offset = position % size_bytes_;
  const uint64_t to_end = size_bytes_ - offset;
  const bool is_empty = position == popped;
  const uint64_t free = size_bytes_ - (position - popped);
  // A jump to the front leaves the rest of the ring unused until it is popped.
  const uint64_t spare = may_use_spare ? 0 : kSpareBytes;
  const bool is_far = offset >= size_bytes_ / 2 && needed + spare <= offset;
  const bool jumps = needed > to_end || (is_empty && is_far);
  if (needed + spare + (jumps ? to_end : 0) > free) return nullptr;
  if (jumps) {
    Skip(to_end);
    position += to_end;
  }
  return memory_.get() + position % size_bytes_ + kAlignment;
}

void RecordRing::Publish(uint32_t kind, uint64_t size_bytes) {
  const uint64_t position = published_.load(std::memory_order_relaxed);
  const uint64_t content = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  *HeadAt(position) = {
      .size_bytes = content + kAlignment, .content_bytes = size_bytes, .kind = kind};
  published_.store(position + content + kAlignment, std::memory_order_release);
}

bool RecordRing::IsFillingUp() const {
  const uint64_t used =
      published_.load(std::memory_order_relaxed) - popped_.load(std::memory_order_relaxed);
  return used > size_bytes_ / 4 * 3;
}

std::optional<RecordRing::Record> RecordRing::Front() {
  while (true) {
    const uint64_t position = popped_.load(std::memory_order_relaxed);
    if (published_.load(std::memory_order_acquire) == position) return std::nullopt;
    const Head& head = *HeadAt(position);
    if (head.kind != kSkip) {
      auto* content = reinterpret_cast<std::byte*>(HeadAt(position)) + kAlignment;
      return Record{.kind = head.kind, .bytes = {content, head.content_bytes}};
    }
    popped_.store(position + head.size_bytes, std::memory_order_release);
  }
}

void RecordRing::Pop() {
  const uint64_t position = popped_.load(std::memory_order_relaxed);
  popped_.store(position + HeadAt(position)->size_bytes, std::memory_order_release);
}

}  // namespace specd
