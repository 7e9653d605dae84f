// NpzWriter writes arrays as an .npz file of numpy: a ZIP of .npy files, stored and not compressed.
//
// Written by hand, because no library of ours writes ZIP. All sizes have their 64-bit fields, so
// an array may be longer than 4 GiB. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tools/replay/column_file.h"
#include "tools/replay/output_file.h"

namespace specd::replay {

class NpzWriter {
 public:
  explicit NpzWriter(OutputFile* out) : out_(out) {}

  struct Array {
    std::string_view name;
    std::string_view dtype;       // as numpy spells it: "<f8", "<u8", "|S128"
    std::vector<uint64_t> shape;  // C order
    ColumnFile* values = nullptr;
  };
  absl::Status Add(const Array& array);
  // Writes the directory of the ZIP.
  absl::Status Finish();

 private:
  struct Entry {
    std::string name;
    uint32_t crc = 0;
    uint64_t size_bytes = 0;
    uint64_t offset = 0;
  };
  OutputFile* out_;
  std::vector<Entry> entries_;
};

}  // namespace specd::replay
