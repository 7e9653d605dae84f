// TextShard chooses the streams whose text one of several text sides makes.
//
// A stream belongs to the shard whose index is a hash of its request id modulo the number of
// shards. The low bits of FNV-1a are nearly those of the bytes, so ids that count in steps of two
// would all have one shard. The hash is therefore the upper half of a product with 2^64 divided by
// the golden ratio, as Knuth mixes keys (TAOCP 6.4). A value; safe from any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "ipc/base/fnv.h"

namespace specd {

inline constexpr uint32_t kTextShardsMax = 64;

struct TextShard {
  uint32_t index = 0;
  uint32_t count = 1;

  bool Has(std::string_view request_id) const {
    Fnv1a hash;
    hash.Add(request_id);
    return ((hash.value() * 0x9e3779b97f4a7c15) >> 32) % count == index;
  }
};

}  // namespace specd
