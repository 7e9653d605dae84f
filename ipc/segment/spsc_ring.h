// The two ends of a single-producer, single-consumer ring whose slots lie in shared memory.
//
// A slot type has a first member `std::atomic<uint64_t> sequence`; the rest is the message.
// Position n (0, 1, 2, ...) lives in slot n % depth. The producer fills the slot and then stores n
// + 1 into `sequence`; the consumer takes the slot when it finds n + 1 there, and then stores n + 1
// into the `consumed` word, which frees the slot. A process killed at any moment leaves either a
// published slot or an unpublished one that nobody looks into.
//
//   producer                                consumer
//   if (ring.State() == kReady) {           if (ring.State() == kReady) {
//     Fill(ring.Slot());                      Copy(ring.Slot());   // then check the copy
//     ring.Publish();                         ring.Release();
//   }                                       }
//
// The other side is not trusted: its words are only compared with private counters, and a value
// that a correct peer cannot have written is kCorrupt, for good. Each end belongs to one thread;
// the two ends may live in different processes.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/core/check.h"

namespace specd {

enum class RingState { kReady, kFull, kEmpty, kCorrupt };

// The shared parts of one ring. depth is a power of two.
template <class SlotT>
struct RingView {
  SlotT* slots = nullptr;
  std::atomic<uint64_t>* consumed = nullptr;
  uint32_t depth = 0;
};

template <class SlotT>
class RingProducer {
 public:
  explicit RingProducer(const RingView<SlotT>& view) : view_(view) {
    SPECD_CHECK(view.depth > 0 && (view.depth & (view.depth - 1)) == 0);
  }

  // kReady, kFull or kCorrupt: is there room for `ahead` messages more than the one that Slot()
  // names? A producer that promises answers asks before it takes the question.
  RingState State(uint32_t ahead = 0) {
    if (published_ + ahead - consumed_ < view_.depth) return RingState::kReady;
    // Pairs with the release in RingConsumer::Release. Acquire keeps our writes into the slot from
    // moving before this load, into the time in which the consumer still reads it.
    const uint64_t consumed = view_.consumed->load(std::memory_order_acquire);
    // A correct consumer's word only grows, and never past what was published.
    if (consumed - consumed_ > published_ - consumed_) return RingState::kCorrupt;
    consumed_ = consumed;
    return published_ + ahead - consumed_ < view_.depth ? RingState::kReady : RingState::kFull;
  }

  // The slot of the next message. REQUIRES: State() was kReady since the last Publish.
  SlotT* Slot() const { return &view_.slots[published_ & (view_.depth - 1)]; }

  void Publish() {
    SlotT* slot = Slot();
    ++published_;
    // Pairs with the acquire in RingConsumer::State. Release keeps the writes of the message, slot
    // and payload, from moving after this store.
    slot->sequence.store(published_, std::memory_order_release);
  }

  // Messages published so far: the position of the next one.
  uint64_t position() const { return published_; }
  uint32_t slot_index() const { return static_cast<uint32_t>(published_ & (view_.depth - 1)); }

 private:
  RingView<SlotT> view_;
  uint64_t published_ = 0;
  uint64_t consumed_ = 0;  // the last value read from the consumer's word
};

template <class SlotT>
class RingConsumer {
 public:
  explicit RingConsumer(const RingView<SlotT>& view) : view_(view) {
    SPECD_CHECK(view.depth > 0 && (view.depth & (view.depth - 1)) == 0);
  }

  // kReady, kEmpty or kCorrupt: is the message there that comes `ahead` messages after the one that
  // Slot() names? Writes nothing, so that polling an idle ring stays in this core's cache.
  // REQUIRES: ahead < depth.
  RingState State(uint32_t ahead = 0) const {
    const uint64_t position = consumed_ + ahead;
    // Pairs with the release in RingProducer::Publish. Acquire keeps our reads of the message from
    // moving before this load, into the time in which the producer still writes it.
    const uint64_t sequence =
        view_.slots[position & (view_.depth - 1)].sequence.load(std::memory_order_acquire);
    if (sequence == position + 1) return RingState::kReady;
    // Otherwise the slot still holds the message of one lap ago, or nothing in the first lap.
    const uint64_t previous = position < view_.depth ? 0 : position + 1 - view_.depth;
    return sequence == previous ? RingState::kEmpty : RingState::kCorrupt;
  }

  // REQUIRES: State() was kReady since the last Release.
  const SlotT* Slot() const { return &view_.slots[consumed_ & (view_.depth - 1)]; }

  void Release() {
    ++consumed_;
    // Pairs with the acquire in RingProducer::State. Release keeps our reads of the message from
    // moving after this store, when the producer may overwrite it.
    view_.consumed->store(consumed_, std::memory_order_release);
  }

  uint64_t position() const { return consumed_; }

 private:
  RingView<SlotT> view_;
  uint64_t consumed_ = 0;
};

}  // namespace specd
