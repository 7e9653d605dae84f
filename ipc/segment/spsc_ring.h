// RingProducer and RingConsumer are the two ends of a single-producer, single-consumer ring in
// shared memory.
//
// An entry type (EntryT) has a first member `std::atomic<uint64_t> sequence`; the rest is the
// message. Position n (0, 1, 2, ...) lies in entry n % depth. The producer fills the entry and then
// stores n + 1 into `sequence`. The consumer takes the entry when it finds n + 1 there. It then
// stores n + 1 into the `consumed` word, which frees the entry. A process that is killed at any
// moment leaves either a published entry or an unpublished one that is never read.
//
//   producer                                consumer
//   if (ring.State() == kReady) {           if (ring.State() == kReady) {
//     Fill(ring.Entry());                      Copy(ring.Entry());   // then check the copy
//     ring.Publish();                         ring.Release();
//   }                                       }
//
// The other side is not trusted: its words are only compared with private counters. A value that a
// correct peer cannot have written is kCorrupt, permanently. Each end belongs to one thread; the
// two ends may live in different processes.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/core/check.h"

namespace specd {

enum class RingState { kReady, kFull, kEmpty, kCorrupt };

// The shared parts of one ring. depth is a power of two.
template <class EntryT>
struct RingView {
  EntryT* entries = nullptr;
  std::atomic<uint64_t>* consumed = nullptr;
  uint32_t depth = 0;
};

template <class EntryT>
class RingProducer {
 public:
  explicit RingProducer(const RingView<EntryT>& view) : view_(view) {
    SPECD_CHECK(view.depth > 0 && (view.depth & (view.depth - 1)) == 0);
  }

  // Returns kReady if there is room for `ahead` messages more than the one that Entry() names, else
  // kFull or kCorrupt. A producer that promises answers calls this before it takes the question.
  RingState State(uint32_t ahead = 0) {
    if (published_ + ahead - consumed_ < view_.depth) return RingState::kReady;
    // Pairs with the release in RingConsumer::Release. Acquire keeps our writes into the entry from
    // moving before this load, while the consumer still reads the entry.
    const uint64_t consumed = view_.consumed->load(std::memory_order_acquire);
    // A correct consumer's word only grows, and never passes the number of published messages.
    if (consumed - consumed_ > published_ - consumed_) return RingState::kCorrupt;
    consumed_ = consumed;
    return published_ + ahead - consumed_ < view_.depth ? RingState::kReady : RingState::kFull;
  }

  // The entry of the next message. REQUIRES: State() was kReady since the last Publish.
  EntryT* Entry() const { return &view_.entries[published_ & (view_.depth - 1)]; }

  void Publish() {
    EntryT* entry = Entry();
    ++published_;
    // Pairs with the acquire in RingConsumer::State. Release keeps the writes of the message, entry
    // and payload, from moving after this store.
    entry->sequence.store(published_, std::memory_order_release);
  }

  // Messages published so far: the position of the next one.
  uint64_t position() const { return published_; }
  uint32_t entry_index() const { return static_cast<uint32_t>(published_ & (view_.depth - 1)); }

 private:
  RingView<EntryT> view_;
  uint64_t published_ = 0;
  uint64_t consumed_ = 0;  // the last value read from the consumer's word
};

template <class EntryT>
class RingConsumer {
 public:
  explicit RingConsumer(const RingView<EntryT>& view) : view_(view) {
    SPECD_CHECK(view.depth > 0 && (view.depth & (view.depth - 1)) == 0);
  }

  // Returns kReady if the message is there that comes `ahead` messages after the one that Entry()
  // names, else kEmpty or kCorrupt. It writes nothing, so polling an idle ring stays in this core's
  // cache. REQUIRES: ahead < depth.
  RingState State(uint32_t ahead = 0) const {
    const uint64_t position = consumed_ + ahead;
    // Pairs with the release in RingProducer::Publish. Acquire keeps our reads of the message from
    // moving before this load, while the producer still writes the message.
    const uint64_t sequence =
        view_.entries[position & (view_.depth - 1)].sequence.load(std::memory_order_acquire);
    if (sequence == position + 1) return RingState::kReady;
    // Otherwise the entry still holds the message of one lap ago, or nothing in the first lap.
    const uint64_t previous = position < view_.depth ? 0 : position + 1 - view_.depth;
    return sequence == previous ? RingState::kEmpty : RingState::kCorrupt;
  }

  // REQUIRES: State() was kReady since the last Release.
  const EntryT* Entry() const { return &view_.entries[consumed_ & (view_.depth - 1)]; }

  void Release() {
    ++consumed_;
    // Pairs with the acquire in RingProducer::State. Release keeps our reads of the message from
    // moving after this store, when the producer may overwrite it.
    view_.consumed->store(consumed_, std::memory_order_release);
  }

  uint64_t position() const { return consumed_; }

 private:
  RingView<EntryT> view_;
  uint64_t consumed_ = 0;
};

}  // namespace specd
