// PoolCache keeps the last pools of rows for the suites, because neighbouring measurements share
// pools.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/bench/round_set.h"
#include "tools/bench/rows.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

// One measurement to make.
struct Cell {
  const VerifyCase* verify_case = nullptr;
  DType dtype = DType::kFloat32;
  int32_t vocab_size = 0;
  RoundShape shape;

  int64_t round_bytes() const {
    return shape.rows_of_round() * vocab_size * SizeBytes(dtype) *
           (HasDraftRows(*verify_case) ? 2 : 1);
  }
};

std::string Describe(const Cell& cell);

struct Pools {
  const RowPool* target = nullptr;
  const RowPool* draft = nullptr;  // null if the case has no draft rows
};

class PoolCache {
 public:
  PoolCache(RowShape shape, std::string path) : shape_(shape), path_(std::move(path)) {}

  // Valid until the next call. RESOURCE_EXHAUSTED if the pools would not fit into memory.
  absl::StatusOr<Pools> For(const Cell& cell);

 private:
  absl::StatusOr<const RowPool*> Get(const Cell& cell, bool drafter);

  RowShape shape_;
  std::string path_;  // for RowShape::kFile
  std::optional<RowPool> target_;
  std::optional<RowPool> draft_;
};

}  // namespace specd::bench
