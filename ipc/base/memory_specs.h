// DeviceRegionSpec and TensorSpec describe an engine's memory to the daemon.
//
// They travel in control messages (ipc/control) and are checked where the memory is mapped
// (ipc/memory). An outsider wrote every number and every byte. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace specd {

// A region of device memory. docs/PROTOCOL.md has the meaning of each field.
struct DeviceRegionSpec {
  uint32_t kind = 0;          // GpuMemoryKind
  std::string device_uuid;    // 32 hexadecimal digits, with or without GPU-, MIG- and dashes
  std::string handle;         // 128 hexadecimal digits; "" for kVmm
  uint64_t base_bytes = 0;    // of the exported allocation; kVmm: of all pieces together
  uint64_t offset_bytes = 0;  // of the region in the allocation, a multiple of 16
  uint64_t size_bytes = 0;    // of the region
  uint64_t buffer_id = 0;     // of the allocation (the first piece) in the process that exported it
  uint32_t export_pid = 0;    // pid of that process in its own namespace
  std::vector<uint64_t> piece_bytes = {};  // kVmm: of each piece, in the order of the descriptors
};

// The tensor of a role in a region. A mask leaves dtype, kind and rules at their defaults and
// counts its stride in words. The kind of a draft map is SPECD_MAP_IDS or SPECD_MAP_OFFSETS.
struct TensorSpec {
  uint32_t dtype = 0;         // DType; for slot outputs SPECD_INT32 or SPECD_INT64
  uint64_t offset_bytes = 0;  // of row 0
  uint64_t num_rows = 0;
  uint64_t row_stride = 0;  // in elements; 0: rows without gaps
  uint32_t kind = 0;        // RowKind
  bool renormalise = false;
  double scale = 1;
  double cap = 0;
  uint64_t columns = 0;  // of narrow draft rows and their map; 0: vocab_size
};

}  // namespace specd
