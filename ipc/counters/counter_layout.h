// The layout of a counters file: a header, records, their strings, and the values.
//
// A daemon makes the file once, with all records, and renames it to its path when it is whole. From
// then on only values change. Each value has one writer, and any process may read it at any time.
// Values of different writers never share a cache line. All numbers are little endian, and offsets
// count bytes from the beginning of the file. The daemon holds a lock on the file while it lives.
#pragma once

#include <cstddef>
#include <cstdint>

namespace specd {

enum class CounterKind : uint32_t {
  kCounter = 0,  // a sum since the daemon's start
  kGauge = 1,    // a number that rises and falls
  kTimes = 2,    // a histogram of durations: kTimesValues values
  kInfo = 3,     // a gauge that is 1; its labels say something about the daemon
};
inline constexpr uint32_t kCounterKindMax = 3;

// ---- a histogram of durations. Bucket i counts those of at most 1 us << i that fit no earlier
// one; the bucket after the last bound counts the rest, and the sum in nanoseconds stands last.
inline constexpr uint32_t kTimesBounds = 24;  // 1 us .. 8.4 s
inline constexpr uint64_t kTimesFirstNs = 1000;
inline constexpr uint32_t kTimesValues = kTimesBounds + 2;

struct CounterRecord {
  uint32_t name = 0;  // this and the next two: offsets into the strings, which end with a zero each
  uint32_t labels = 0;  // as in an exposition, without the braces: model="qwen3",position="0"
  uint32_t help = 0;
  uint32_t kind = 0;         // CounterKind
  uint32_t is_optional = 0;  // 1: nothing is shown while the value is 0
  uint32_t num_values = 0;   // 1, or kTimesValues
  uint64_t first_value = 0;  // an index
};
static_assert(sizeof(CounterRecord) == 32);

struct CounterHeader {
  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t pid = 0;  // of the daemon, in its own namespace
  uint64_t file_bytes = 0;
  uint64_t epoch = 0;          // of the daemon, as in its events
  uint64_t start_unix_ns = 0;  // when the file was made
  uint64_t num_records = 0;
  uint64_t records_offset = 0;
  uint64_t strings_offset = 0;
  uint64_t strings_bytes = 0;
  uint64_t values_offset = 0;  // a multiple of kCounterLineBytes
  uint64_t num_values = 0;
  uint64_t reserved[5] = {};
};
inline constexpr size_t kCounterLineBytes = 64;
static_assert(sizeof(CounterHeader) == 2 * kCounterLineBytes);
static_assert(offsetof(CounterHeader, num_values) == 80);

inline constexpr uint64_t kCounterMagic = 0x5354'4e43'4345'5053;  // "SPECCNTS"
inline constexpr uint32_t kCounterVersion = 1;
// What a reader takes at most. 65 models make some 1 MiB.
inline constexpr uint64_t kCounterFileBytesMax = uint64_t{16} << 20;

}  // namespace specd
