// RowCopier finds the rows and masks that the tasks of a round read, and copies or hashes each
// once, for RoundCopier.
//
// Rows in device memory come through the backend. It allocates nothing after construction. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/recorder/copy_arena.h"
#include "daemon/trace/trace_record.h"
#include "kernels/backend.h"
#include "speculative/round/round_observer.h"

namespace specd {

// A row or mask that places of the round name; each is there once.
struct RowCopy {
  TraceTensor tensor = TraceTensor::kTarget;
  uint32_t index = 0;  // as TraceRow::index
  uint64_t hash = 0;   // 0: not computed yet
  const std::byte* bytes = nullptr;
};

// The places whose rows the task's method reads. Rows behind the place where the draft ended were
// not read, except by `block`, which looks at the whole draft before it decides. Places of a tree
// are in no such order, so all of them count.
int32_t NumReadPlaces(const Task& task, const TaskOutcome& outcome);

// The bytes of one row of a tensor, or of a mask.
uint64_t RowBytes(const TensorView& tensor);
uint64_t MaskRowBytes(int32_t vocab_size);

class RowCopier {
 public:
  explicit RowCopier(const BackendLimits& limits);
  // The memory that it takes.
  static uint64_t SizeBytes(const BackendLimits& limits);

  // Lists the rows of these tasks, from level kHashes on: those that the methods read, or those of
  // all places.
  void List(const RanRound& round, TraceLevel level, std::span<const uint32_t> tasks,
            bool all_places);
  size_t size() const { return rows_.size(); }
  // The index of the kGrammarMask row with these words; -1 if it is not listed.
  int32_t FindGrammarMask(const uint32_t* words) const;
  // Fills the rows of the copy: their bytes at level kRows, else their hashes. False: the backend
  // did not give them.
  bool Copy(const RanRound& round, TraceLevel level, CopyArena* arena, RowCopy* rows);

 private:
  struct RowKey {
    TraceTensor tensor;
    uint32_t index;
    const std::byte* bytes;
    friend bool operator==(const RowKey&, const RowKey&) = default;
  };

  void ListPlaces(const RanRound& round, int32_t task_index, bool all_places);
  // Writes a narrow draft row as a row of all ids. False: the backend did not give it.
  bool CopyNarrow(const RanRound& round, const RowKey& row, std::byte* to) const;

  std::vector<RowKey> rows_;       // of the listed round
  std::vector<MemoryRead> reads_;  // those of its rows that lie on the device
  // Room for one row, to compute a hash without keeping the row, and for a narrow row before it is
  // widened. Untouched unless they are used.
  std::unique_ptr<std::byte[]> hashed_row_;
  std::unique_ptr<std::byte[]> narrow_row_;
};

}  // namespace specd
