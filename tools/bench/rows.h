// RowPool makes many rows of logits for the measurements, in their own memory, in less than a
// second.
//
// A few templates are drawn at random, and every row of a pool is one of them, rotated. A row takes
// the work of its template. No two rows share memory, and no two neighbours have their large values
// at the same ids. A drafter's pool has rows near the rows of the target pool with the same number.
// Immutable once made; safe to read from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "kernels/core/types.h"

namespace specd::bench {

enum class RowShape {
  kLlm,   // N(-1, 2.2) and a decaying head of 200 ids, the best at 16 to 22: nucleus 10 to 23
  kFlat,  // N(0, 1): three quarters of all ids are in the .95 nucleus
};

struct RowSpec {
  RowShape shape = RowShape::kLlm;
  DType dtype = DType::kFloat32;
  int32_t vocab_size = 0;
  int64_t num_rows = 0;
  bool drafter = false;
  // Of a drafter: 0: drafts are accepted and rejected as best_id and worst_id say. Above: the
  // deviation of its logits from the target's, and nothing else.
  double noise = 0;
  // Templates that are taken as they are, without rotation; empty: they are drawn.
  std::vector<std::vector<float>> given = {};

  bool operator==(const RowSpec&) const = default;
};

class RowPool {
 public:
  explicit RowPool(const RowSpec& spec);

  const RowSpec& spec() const { return spec_; }
  TensorView view() const;
  int64_t row_bytes() const { return spec_.vocab_size * SizeBytes(spec_.dtype); }

  // The ids of the greatest and the least value of a row's template. A drafter's row gives the
  // greatest less than the target does, so drafts of it are accepted. It puts most of its mass on
  // the least, so drafts of that are rejected.
  TokenId best_id(int64_t row) const { return Rotate(ranks_[TemplateOf(row)].best, row); }
  TokenId worst_id(int64_t row) const { return Rotate(ranks_[TemplateOf(row)].worst, row); }

 private:
  struct Ranks {
    TokenId best = 0;
    TokenId worst = 0;
  };
  struct AlignedDelete {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, kAlignment); }
  };
  static constexpr std::align_val_t kAlignment{64};

  size_t TemplateOf(int64_t row) const { return static_cast<size_t>(row) % ranks_.size(); }
  int32_t ShiftOf(int64_t row) const;
  TokenId Rotate(TokenId id, int64_t row) const {
    return static_cast<TokenId>((int64_t{id} + ShiftOf(row)) % spec_.vocab_size);
  }

  RowSpec spec_;
  std::vector<Ranks> ranks_;  // one for each template
  std::unique_ptr<std::byte[], AlignedDelete> bytes_;
};

}  // namespace specd::bench
