#include "daemon/recorder/record_ring.h"

#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

namespace specd {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

bool Push(RecordRing* ring, uint64_t size_bytes, uint32_t kind) {
  std::byte* const memory = ring->Reserve(size_bytes);
  if (memory == nullptr) return false;
  CHECK(reinterpret_cast<uintptr_t>(memory) % RecordRing::kAlignment == 0);
  std::memset(memory, static_cast<int>(kind & 0xff), size_bytes);
  ring->Publish(kind, size_bytes);
  return true;
}

bool IsIntact(const RecordRing::Record& record) {
  for (const std::byte byte : record.bytes) {
    if (byte != static_cast<std::byte>(record.kind & 0xff)) return false;
  }
  return true;
}

TEST_SUITE("unit") {
  TEST_CASE("record ring: records of any size come out whole and in order") {
    RecordRing ring(kMib);
    std::mt19937_64 random(1);
    std::deque<std::pair<uint32_t, uint64_t>> expected;
    uint32_t next = 0;
    uint64_t num_full = 0;
    for (int step = 0; step < 20'000; ++step) {
      const uint64_t size = random() % 4 == 0 ? random() % 300'000 : random() % 500;
      if (random() % 2 == 0) {
        if (Push(&ring, size, next)) {
          expected.emplace_back(next++, size);
        } else {
          ++num_full;
          CHECK(!expected.empty());  // an empty ring has room for every record
        }
      } else if (const auto record = ring.Front()) {
        REQUIRE(!expected.empty());
        CHECK(record->kind == expected.front().first);
        CHECK(record->bytes.size() == expected.front().second);
        CHECK(IsIntact(*record));
        ring.Pop();
        expected.pop_front();
      } else {
        CHECK(expected.empty());
      }
    }
    CHECK(num_full > 100);
  }

  TEST_CASE("record ring: a record of the largest size fits wherever an empty ring stands") {
    RecordRing ring(kMib);
    for (uint64_t offset = 0; offset < kMib; offset += 40'000) {
      REQUIRE(Push(&ring, 39'936, 1));
      REQUIRE(ring.Front().has_value());
      ring.Pop();
      REQUIRE(Push(&ring, ring.record_bytes_max(), 2));
      REQUIRE(ring.Front().has_value());
      ring.Pop();
      CHECK_FALSE(ring.Front().has_value());
    }
    CHECK(ring.Reserve(ring.record_bytes_max() + 1) == nullptr);
  }

  TEST_CASE("record ring: small records have room when rounds have none") {
    RecordRing ring(kMib);
    while (Push(&ring, 10'000, 1)) continue;
    CHECK(ring.IsFillingUp());
    CHECK(ring.Reserve(10'000) == nullptr);
    CHECK(ring.Reserve(100, true) != nullptr);
  }

  TEST_CASE("record ring: two threads") {
    RecordRing ring(kMib);
    constexpr uint32_t kRecords = 20'000;
    std::thread producer([&ring] {
      std::mt19937_64 random(2);
      for (uint32_t i = 0; i < kRecords;) {
        if (Push(&ring, random() % 5'000, i)) ++i;
      }
    });
    uint32_t taken = 0;
    uint32_t num_damaged = 0;
    while (taken < kRecords) {
      const auto record = ring.Front();
      if (!record.has_value()) continue;
      num_damaged += record->kind == taken && IsIntact(*record) ? 0 : 1;
      ++taken;
      ring.Pop();
    }
    producer.join();
    CHECK(num_damaged == 0);
  }
}

}  // namespace
}  // namespace specd
