// The ring: wrap, full, empty, two threads, and peers that write what no correct peer writes.
#include "ipc/segment/spsc_ring.h"

#include <doctest/doctest.h>

#include <array>
#include <thread>

namespace specd {
namespace {

struct Message {
  std::atomic<uint64_t> sequence{0};
  uint64_t words[15] = {};
};

template <uint32_t kDepth>
struct Ring {
  std::array<Message, kDepth> entries;
  std::atomic<uint64_t> consumed{0};
  RingView<Message> view() { return {entries.data(), &consumed, kDepth}; }
};

// Every word of message n is derived from n, so that a torn message shows.
void Fill(Message* message, uint64_t n) {
  for (uint64_t i = 0; i < 15; ++i) message->words[i] = n * 0x9e3779b97f4a7c15 + i;
}
bool IsWhole(const Message& message, uint64_t n) {
  for (uint64_t i = 0; i < 15; ++i) {
    if (message.words[i] != n * 0x9e3779b97f4a7c15 + i) return false;
  }
  return true;
}

TEST_SUITE("unit") {
  TEST_CASE("ring: full at depth, empty at none, in order over many laps") {
    Ring<4> ring;
    RingProducer<Message> producer(ring.view());
    RingConsumer<Message> consumer(ring.view());
    uint64_t sent = 0;
    uint64_t received = 0;
    CHECK(consumer.State() == RingState::kEmpty);
    for (uint32_t lap = 0; lap < 10; ++lap) {
      for (int i = 0; i < 4; ++i) {
        REQUIRE(producer.State() == RingState::kReady);
        Fill(producer.Entry(), sent++);
        producer.Publish();
      }
      REQUIRE(producer.State() == RingState::kFull);
      // Partly drained in odd laps, so that every entry becomes the first one.
      for (int i = 0; i < 4; ++i) {
        REQUIRE(consumer.State() == RingState::kReady);
        REQUIRE(IsWhole(*consumer.Entry(), received++));
        consumer.Release();
        if (lap % 2 == 1 && i == 0) {
          REQUIRE(producer.State() == RingState::kReady);
          Fill(producer.Entry(), sent++);
          producer.Publish();
          REQUIRE(producer.State() == RingState::kFull);
          REQUIRE(consumer.State() == RingState::kReady);
          REQUIRE(IsWhole(*consumer.Entry(), received++));
          consumer.Release();
        }
      }
      REQUIRE(consumer.State() == RingState::kEmpty);
    }
    CHECK(sent == 45);
    CHECK(received == 45);
  }

  TEST_CASE("ring: an entry that is filled but not published does not exist") {
    Ring<2> ring;
    RingProducer<Message> producer(ring.view());
    RingConsumer<Message> consumer(ring.view());
    REQUIRE(producer.State() == RingState::kReady);
    Fill(producer.Entry(), 0);
    CHECK(consumer.State() == RingState::kEmpty);
    producer.Publish();
    CHECK(consumer.State() == RingState::kReady);
  }

  TEST_CASE("ring: room can be asked for ahead") {
    Ring<4> ring;
    RingProducer<Message> producer(ring.view());
    CHECK(producer.State(3) == RingState::kReady);
    CHECK(producer.State(4) == RingState::kFull);
    producer.Publish();
    CHECK(producer.State(2) == RingState::kReady);
    CHECK(producer.State(3) == RingState::kFull);
  }

  TEST_CASE("ring: two threads exchange whole messages in order") {
    Ring<8> ring;
    constexpr uint64_t kMessages = 200000;
    std::thread sender([&ring] {
      RingProducer<Message> producer(ring.view());
      for (uint64_t n = 0; n < kMessages; ++n) {
        while (producer.State() == RingState::kFull) std::this_thread::yield();
        Fill(producer.Entry(), n);
        producer.Publish();
      }
    });
    RingConsumer<Message> consumer(ring.view());
    uint64_t torn = 0;
    for (uint64_t n = 0; n < kMessages; ++n) {
      while (consumer.State() == RingState::kEmpty) std::this_thread::yield();
      if (!IsWhole(*consumer.Entry(), n)) ++torn;
      consumer.Release();
    }
    sender.join();
    CHECK(torn == 0);
    CHECK(consumer.State() == RingState::kEmpty);
  }

  TEST_CASE("ring: a sequence number that jumps is corrupt, whatever the lap") {
    for (uint64_t messages_before : {0, 1, 4, 7}) {
      for (uint64_t jump : {uint64_t{2}, uint64_t{5}, uint64_t{100}, uint64_t{1} << 63}) {
        Ring<4> ring;
        RingProducer<Message> producer(ring.view());
        RingConsumer<Message> consumer(ring.view());
        for (uint64_t n = 0; n < messages_before; ++n) {
          REQUIRE(producer.State() == RingState::kReady);
          producer.Publish();
          REQUIRE(consumer.State() == RingState::kReady);
          consumer.Release();
        }
        REQUIRE(consumer.State() == RingState::kEmpty);
        // The next message would be messages_before + 1.
        ring.entries[messages_before % 4].sequence.store(messages_before + jump);
        CAPTURE(messages_before);
        CAPTURE(jump);
        CHECK(consumer.State() == RingState::kCorrupt);
      }
    }
  }

  TEST_CASE("ring: a sequence number of two laps ago or zero in a later lap is corrupt") {
    Ring<4> ring;
    RingProducer<Message> producer(ring.view());
    RingConsumer<Message> consumer(ring.view());
    for (int n = 0; n < 8; ++n) {
      REQUIRE(producer.State() == RingState::kReady);
      producer.Publish();
      REQUIRE(consumer.State() == RingState::kReady);
      consumer.Release();
    }
    ring.entries[0].sequence.store(1);
    CHECK(consumer.State() == RingState::kCorrupt);
    ring.entries[0].sequence.store(0);
    CHECK(consumer.State() == RingState::kCorrupt);
    ring.entries[0].sequence.store(5);  // the message of one lap ago
    CHECK(consumer.State() == RingState::kEmpty);
  }

  TEST_CASE("ring: a consumed word that is ahead or goes backward is corrupt") {
    Ring<2> ring;
    RingProducer<Message> producer(ring.view());
    for (int n = 0; n < 2; ++n) {
      REQUIRE(producer.State() == RingState::kReady);
      producer.Publish();
    }
    CHECK(producer.State() == RingState::kFull);
    ring.consumed.store(3);  // only two were published
    CHECK(producer.State() == RingState::kCorrupt);
    ring.consumed.store(~uint64_t{0});
    CHECK(producer.State() == RingState::kCorrupt);
    ring.consumed.store(2);
    CHECK(producer.State() == RingState::kReady);
    producer.Publish();
    producer.Publish();
    ring.consumed.store(1);  // it said 2 before
    CHECK(producer.State() == RingState::kCorrupt);
  }
}

}  // namespace
}  // namespace specd
