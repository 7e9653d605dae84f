// RecordedRows loads the rows and masks of one recorded round into memory, for RoundRebuilder.
//
// The sizes and places come from an untrusted file. Rows that several tasks name are loaded once,
// and all rows of a round together are at most as large as the row file. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/trace/row_file.h"
#include "daemon/trace/trace_record.h"

namespace specd::replay {

class RecordedRows {
 public:
  // Forgets the rows of the round before. `file` outlives the loads. Null: no row can be loaded.
  void Begin(const TraceRound& round, int32_t vocab_size, const RowFileReader* file);

  // The row of a tensor as an index into the view of that tensor below, or empty if it was not
  // recorded. An error says why a recorded row cannot be read.
  absl::StatusOr<std::optional<uint32_t>> Load(TraceTensor tensor, uint32_t index);
  // A row of NaN (of a mask: no id is allowed), for places that the round did not read. A round
  // that reads it after all ends there, and its answer differs.
  uint32_t Placeholder(TraceTensor tensor);
  // The record of a row, or null.
  const TraceRow* Find(TraceTensor tensor, uint32_t index) const;

  // Valid until the next Load or Begin.
  TensorView Target() const { return View(TraceTensor::kTarget, round_->target); }
  TensorView Draft() const { return View(TraceTensor::kDraft, round_->draft); }
  MaskView Masks() const;
  const uint32_t* GrammarMask(uint32_t row) const;

  // The bytes of one row of a tensor.
  uint64_t RowBytes(TraceTensor tensor) const;
  // A loaded row.
  std::span<const std::byte> Row(TraceTensor tensor, uint32_t row) const;

 private:
  static constexpr size_t kNumTensors = 4;
  struct Tensor {
    std::unordered_map<uint32_t, const TraceRow*> records;  // by index
    std::unordered_map<uint64_t, uint32_t> loaded;          // rows by offset
    // Words, so that every element of a row is aligned. Rows have a stride of whole words.
    std::vector<uint32_t> words;
  };

  TensorView View(TraceTensor tensor, const TraceTensorInfo& info) const;
  uint64_t StrideWords(TraceTensor tensor) const;
  uint32_t NewRow(TraceTensor tensor, uint32_t word);
  const Tensor& Of(TraceTensor tensor) const { return tensors_[static_cast<size_t>(tensor)]; }
  Tensor& Of(TraceTensor tensor) { return tensors_[static_cast<size_t>(tensor)]; }

  const TraceRound* round_ = nullptr;
  int32_t vocab_size_ = 0;
  const RowFileReader* file_ = nullptr;
  uint64_t loaded_bytes_ = 0;
  Tensor tensors_[kNumTensors];
};

}  // namespace specd::replay
