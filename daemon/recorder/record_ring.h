// RecordRing hands records of different sizes from a session to the writer of its trace, without a
// lock and without memory of its own making.
//
// The producer reserves a piece of the ring, fills it and publishes it. The consumer reads it where
// it lies and pops it. A record is never split. While the ring has no room, Reserve returns null:
// nothing waits. If the ring runs empty in its second half, the next record begins at the front
// again, so that a consumer that keeps up leaves the second half untouched. One producer at a time,
// one consumer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>

namespace specd {

class RecordRing {
 public:
  static constexpr uint64_t kAlignment = 64;

  // Takes the memory. REQUIRES: size_bytes is a multiple of 4096, and at least 1 MiB.
  explicit RecordRing(uint64_t size_bytes);
  RecordRing(const RecordRing&) = delete;
  RecordRing& operator=(const RecordRing&) = delete;

  // ---- producer

  // The last part of the ring is for small records that must not be lost, such as openings.
  static constexpr uint64_t kSpareBytes = 64 * 1024;

  // Returns memory for a record, aligned to kAlignment; null if there is no room. Only with
  // may_use_spare is the last part given out. A second call replaces the first.
  std::byte* Reserve(uint64_t size_bytes, bool may_use_spare = false);
  // Publishes the first size_bytes of the reserved record. REQUIRES: Reserve returned memory for
  // that many.
  void Publish(uint32_t kind, uint64_t size_bytes);
  // No record is larger: one of this size finds room in every ring that has run empty.
  uint64_t record_bytes_max() const { return (size_bytes_ - kSpareBytes) / 2 - 2 * kAlignment; }
  // True if more than three quarters of the ring are in use.
  bool IsFillingUp() const;

  // ---- consumer

  struct Record {
    uint32_t kind = 0;
    std::span<std::byte> bytes;
  };
  // The oldest record; valid until Pop.
  std::optional<Record> Front();
  // REQUIRES: Front has returned a record.
  void Pop();

  // Positions, which only grow: what was published when published() was asked has been taken once
  // popped() is there.
  uint64_t published() const { return published_.load(std::memory_order_acquire); }
  uint64_t popped() const { return popped_.load(std::memory_order_acquire); }

 private:
  struct Head {
    uint64_t size_bytes;  // of the record with its head, a multiple of kAlignment
    uint64_t content_bytes;
    uint32_t kind;
  };
  static_assert(sizeof(Head) <= kAlignment);
  static constexpr uint32_t kSkip = ~uint32_t{0};

  struct FreeAligned {
    void operator()(std::byte* memory) const {
      ::operator delete[](memory, std::align_val_t{kAlignment});
    }
  };

  Head* HeadAt(uint64_t position) {
    return reinterpret_cast<Head*>(memory_.get() + position % size_bytes_);
  }
  void Skip(uint64_t size_bytes);

  const uint64_t size_bytes_;
  const std::unique_ptr<std::byte[], FreeAligned> memory_;
  // Positions only grow. `published_` is written by the producer with release and read by the
  // consumer with acquire: the bytes of a record are there before its position. `popped_` goes the
  // other way: the consumer has done with the bytes before the producer writes them anew.
  alignas(64) std::atomic<uint64_t> published_{0};
  alignas(64) std::atomic<uint64_t> popped_{0};
};

}  // namespace specd
