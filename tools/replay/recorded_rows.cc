#include "tools/replay/recorded_rows.h"

#include <fmt/format.h>

#include "daemon/trace/row_hash.h"
#include "tools/replay/names.h"

namespace specd::replay {

void RecordedRows::Begin(const TraceRound& round, int32_t vocab_size, const RowFileReader* file) {
  round_ = &round;
  vocab_size_ = vocab_size;
  file_ = file;
  loaded_bytes_ = 0;
  for (Tensor& tensor : tensors_) {
    tensor.records.clear();
    tensor.loaded.clear();
    tensor.words.clear();
  }
  for (const TraceRow& row : round.rows) Of(row.tensor).records.try_emplace(row.index, &row);
}

const TraceRow* RecordedRows::Find(TraceTensor tensor, uint32_t index) const {
  const auto place = Of(tensor).records.find(index);
  return place == Of(tensor).records.end() ? nullptr : place->second;
}

uint64_t RecordedRows::RowBytes(TraceTensor tensor) const {
  const uint64_t vocab = vocab_size_;
  switch (tensor) {
    case TraceTensor::kTarget:
      return vocab * static_cast<uint64_t>(SizeBytes(round_->target.dtype));
    case TraceTensor::kDraft:
      return vocab * static_cast<uint64_t>(SizeBytes(round_->draft.dtype));
    case TraceTensor::kMask:
    case TraceTensor::kGrammarMask:
      break;
  }
  return (vocab + 31) / 32 * sizeof(uint32_t);
}

uint64_t RecordedRows::StrideWords(TraceTensor tensor) const {
  return (RowBytes(tensor) + sizeof(uint32_t) - 1) / sizeof(uint32_t);
}

absl::StatusOr<std::optional<uint32_t>> RecordedRows::Load(TraceTensor tensor, uint32_t index) {
  const TraceRow* const record = Find(tensor, index);
  if (record == nullptr || record->offset == kNoOffset || file_ == nullptr) return std::nullopt;
  Tensor& rows = Of(tensor);
  const auto place = rows.loaded.find(record->offset);
  if (place != rows.loaded.end()) return place->second;
  const uint64_t size_bytes = RowBytes(tensor);
  const uint64_t file_bytes = file_->file_size_bytes();
  loaded_bytes_ += size_bytes;
  if (record->offset > file_bytes || size_bytes > file_bytes - record->offset) {
    return absl::DataLossError(
        fmt::format("{}: the row file ends at byte {}, before the end of {} row {} at byte {}",
                    file_->path(), file_bytes, NameOf(tensor), index, record->offset));
  }
  if (loaded_bytes_ > file_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the rows of the round overlap in the row file", file_->path()));
  }
  const uint32_t row = NewRow(tensor, 0);
  auto* const begin = reinterpret_cast<std::byte*>(rows.words.data() + row * StrideWords(tensor));
  const RowFileReader::Place from{
      .entry_offset = record->offset / kRowFileAlignment * kRowFileAlignment,
      .skip_bytes = record->offset % kRowFileAlignment};
  if (absl::Status status = file_->Read(from, {begin, size_bytes}); !status.ok()) return status;
  if (record->hash != 0 && record->hash != RowHash({begin, size_bytes})) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} row {} has another hash than its record, so the row file was changed",
                    file_->path(), NameOf(tensor), index));
  }
  rows.loaded.emplace(record->offset, row);
  return row;
}

uint32_t RecordedRows::NewRow(TraceTensor tensor, uint32_t word) {
  std::vector<uint32_t>& words = Of(tensor).words;
  const uint64_t stride = StrideWords(tensor);
  const uint32_t row = words.size() / stride;
  words.resize(words.size() + stride, word);
  return row;
}

uint32_t RecordedRows::Placeholder(TraceTensor tensor) {
  const bool is_mask = tensor == TraceTensor::kMask || tensor == TraceTensor::kGrammarMask;
  const auto [place, is_new] = Of(tensor).loaded.try_emplace(kNoOffset, 0);
  // All ones are a NaN in each type of element.
  if (is_new) place->second = NewRow(tensor, is_mask ? 0 : ~uint32_t{0});
  return place->second;
}

TensorView RecordedRows::View(TraceTensor tensor, const TraceTensorInfo& info) const {
  const Tensor& rows = Of(tensor);
  TensorView view;
  view.data = rows.words.data();
  view.dtype = info.dtype;
  view.num_rows = static_cast<int64_t>(rows.words.size() / StrideWords(tensor));
  view.row_stride =
      static_cast<int64_t>(StrideWords(tensor) * sizeof(uint32_t)) / SizeBytes(info.dtype);
  view.vocab_size = vocab_size_;
  view.rules = info.rules;
  return view;
}

MaskView RecordedRows::Masks() const {
  const Tensor& rows = Of(TraceTensor::kMask);
  const uint64_t stride = StrideWords(TraceTensor::kMask);
  return {.words = rows.words.data(),
          .num_rows = static_cast<int64_t>(rows.words.size() / stride),
          .row_stride = static_cast<int64_t>(stride)};
}

const uint32_t* RecordedRows::GrammarMask(uint32_t row) const {
  return Of(TraceTensor::kGrammarMask).words.data() + row * StrideWords(TraceTensor::kGrammarMask);
}

std::span<const std::byte> RecordedRows::Row(TraceTensor tensor, uint32_t row) const {
  const auto* const begin =
      reinterpret_cast<const std::byte*>(Of(tensor).words.data() + row * StrideWords(tensor));
  return {begin, RowBytes(tensor)};
}

}  // namespace specd::replay
