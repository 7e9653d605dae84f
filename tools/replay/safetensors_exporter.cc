#include <fmt/format.h>

#include <string>
#include <string_view>

#include "tools/replay/exporter.h"
#include "tools/replay/json_text.h"
#include "tools/replay/row_columns.h"

namespace specd::replay {
namespace {

std::string_view NameOfType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat16:
      return "F16";
  }
  return "?";
}

// The format of safetensors: the size of a JSON header, the header, the bytes.
class SafetensorsExporter final : public Exporter {
 public:
  absl::Status Take(const ExportedRound& round) override { return rows_.Take(round); }

  absl::Status Finish(const SequenceBook&, OutputFile* out) override {
    if (rows_.target().count + rows_.draft().count == 0) {
      return absl::NotFoundError(
          "the trace has no rows: record it with level rows, or export npz, which needs none");
    }
    for (const auto& [name, matrix] :
         {std::pair("target", &rows_.target()), std::pair("draft", &rows_.draft())}) {
      if (matrix->count == 0) continue;
      Add(name, NameOfType(matrix->dtype), fmt::format("{}, {}", matrix->count, rows_.vocab_size()),
          &matrix->values);
      Add(fmt::format("{}_round", name), "U64", fmt::format("{}", matrix->count), &matrix->rounds);
      Add(fmt::format("{}_index", name), "U32", fmt::format("{}", matrix->count), &matrix->indices);
    }
    std::string header =
        fmt::format("{{\"__metadata__\": {{\"format\": \"specd trace\"}}{}}}", tensors_);
    header.append((8 - header.size() % 8) % 8, ' ');  // the bytes are aligned
    std::string size;
    for (int i = 0; i < 8; ++i) size += static_cast<char>(uint64_t{header.size()} >> (8 * i));
    if (absl::Status status = out->Write(size + header); !status.ok()) return status;
    for (ColumnFile* const column : columns_) {
      absl::Status status = column->Read([&](std::string_view bytes) { return out->Write(bytes); });
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  void Add(std::string_view name, std::string_view type, const std::string& shape,
           ColumnFile* column) {
    tensors_ +=
        fmt::format(", {}: {{\"dtype\": \"{}\", \"shape\": [{}], \"data_offsets\": [{}, {}]}}",
                    JsonString(name), type, shape, offset_, offset_ + column->size_bytes());
    offset_ += column->size_bytes();
    columns_.push_back(column);
  }

  RowColumns rows_;
  std::string tensors_;
  std::vector<ColumnFile*> columns_;
  uint64_t offset_ = 0;
};

}  // namespace

std::unique_ptr<Exporter> MakeSafetensorsExporter() {
  return std::make_unique<SafetensorsExporter>();
}

}  // namespace specd::replay
