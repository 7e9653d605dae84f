// Block and Cluster hold what warps of one block, or of one cluster, share: memory and barriers.
//
// Plain data of one launch, which runs on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/gpu/ptx/machine/profile.h"
#include "tests/gpu/ptx/machine/race_checker.h"
#include "tests/gpu/ptx/machine/shadow.h"

namespace specd::ptx {

class Warp;

// A barrier of all warps of a block or a cluster. PTX ISA, "bar, barrier" and "barrier.cluster". A
// cluster's barrier does not wait for warps that have ended. A block's would wait for ever
// (Scheduler, SyncBlock).
struct Barrier {
  int32_t num_arrived = 0;
  int32_t num_live = 0;
  int32_t num_ended = 0;
  uint32_t phase = 0;
  SeenClocks joined;          // what those that have arrived know
  SeenClocks completed;       // the same of the phase before
  ChainPoint last;            // the latest of those that have arrived
  ChainPoint completed_last;  // the same of the phase before

  void CompleteIfAllCame() {
    if (num_arrived == 0 || num_arrived < num_live) return;
    num_arrived = 0;
    ++phase;
    completed = std::move(joined);
    joined.clear();
    completed_last = last;
    last = {};
  }
  void Arrive() {
    ++num_arrived;
    CompleteIfAllCame();
  }
  void End() {  // of a warp
    --num_live;
    ++num_ended;
    CompleteIfAllCame();
  }
};

// Memory that its block shares, with a mark for each byte that was written.
class SharedMemory {
 public:
  explicit SharedMemory(size_t size_bytes)
      : size_bytes_(size_bytes),
        words_((size_bytes + sizeof(Word) - 1) / sizeof(Word) + 1),
        cells_(size_bytes / kCellBytes + 2),
        is_written_(size_bytes) {
    for (Word& word : words_) word = {0xA5A5A5A5A5A5A5A5u, 0xA5A5A5A5A5A5A5A5u};
  }

  size_t size_bytes() const { return size_bytes_; }
  std::byte* begin() { return reinterpret_cast<std::byte*>(words_.data()); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(words_.data()); }
  bool Holds(uint64_t address_of_access, uint64_t size_bytes) const {
    const uint64_t offset = address_of_access - address();
    return address_of_access >= address() && offset < size_bytes_ &&
           size_bytes <= size_bytes_ - offset;
  }
  ShadowCell* CellOf(uint64_t offset) { return &cells_[offset / kCellBytes]; }
  uint8_t* MarkOf(uint64_t offset) { return &is_written_[offset]; }

 private:
  struct alignas(16) Word {
    uint64_t low;
    uint64_t high;
  };
  size_t size_bytes_;
  std::vector<Word> words_;
  std::vector<ShadowCell> cells_;
  std::vector<uint8_t> is_written_;
};

struct Cluster;

struct Block {
  Block(Cluster* of_cluster, uint32_t of_index, uint32_t of_rank, size_t shared_bytes)
      : cluster(of_cluster), index(of_index), rank(of_rank), shared(shared_bytes) {}

  Cluster* cluster;
  uint32_t index;  // in the grid
  uint32_t rank;   // in the cluster
  SharedMemory shared;
  Barrier barrier;
  NearCache near;  // in the cache of its processor, if the launch is profiled
};

struct Cluster {
  Barrier barrier;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Warp>> warps;
};

}  // namespace specd::ptx
