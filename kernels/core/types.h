// The words that every folder may use: token ids, data types of rows, views of tensors.
//
// Plain data, standard library only. A view owns nothing: whoever makes one answers for the memory
// behind it and for its bounds (outside numbers are checked in ipc/memory/region.h, once).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/check.h"

namespace specd {

using TokenId = int32_t;

// Marks the end of a draft: no token was drawn here. Every other id outside the vocabulary is a
// token that was drawn and is verified like any other (it has probability 0).
inline constexpr TokenId kNoToken = -1;

// The largest vocabulary: keeps tile counts, integer masses and counters inside their words.
inline constexpr int32_t kVocabSizeMax = 1 << 20;

enum class DType : uint32_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

SPECD_INLINE constexpr int64_t SizeBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// What the elements of a row are (CONTRACT §2).
enum class RowKind : uint32_t {
  kLogits = 0,
  kProbabilities = 1,       // p enters as ln p and takes the same steps as a logit
  kFinalProbabilities = 2,  // p is what is sampled from; no parameter may change it
};

// Who can use the memory behind a view: the CPU; the device that rounds run on
// (Backend::device_uuid); or another device, to which rounds can only copy, so that rows never lie
// there.
enum class MemorySpace : uint32_t { kHost = 0, kDevice = 1, kOtherDevice = 2 };

// How the elements of a tensor are to be read.
struct ElementRules {
  RowKind kind = RowKind::kLogits;
  bool renormalise = false;  // probabilities need not sum to 1
  float scale = 1;           // logits are multiplied by it, and then
  float cap = 0;             // bent into (-cap, cap) by cap * tanh(x / cap); 0: not
};

// A matrix of rows in memory; the innermost stride is 1 element. Offsets are 64-bit: a batch of
// 2,048 rows of 2^20 floats is past 2^32 bytes.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t num_rows = 0;
  int64_t row_stride = 0;  // in elements
  int32_t vocab_size = 0;
  ElementRules rules;
  MemorySpace space = MemorySpace::kHost;
};

// One row of such a matrix.
struct RowView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int32_t vocab_size = 0;
  ElementRules rules;
};

// Rows of bits, one for each id: bit i % 32 of word i / 32 is 1 where id i is allowed. A row has
// ceil(vocab_size / 32) words.
struct MaskView {
  const uint32_t* words = nullptr;
  int64_t num_rows = 0;
  int64_t row_stride = 0;  // in words
  MemorySpace space = MemorySpace::kHost;
};

// An id for each slot, written by rounds.
struct TokenArray {
  TokenId* ids = nullptr;
  MemorySpace space = MemorySpace::kHost;
};

// Rows of ids, one for each slot, that rounds read: draft tokens where whoever drew them left them.
struct TokenRows {
  const TokenId* ids = nullptr;
  int64_t row_stride = 0;  // in ids
  MemorySpace space = MemorySpace::kHost;
};

SPECD_INLINE RowView RowAt(const TensorView& tensor, int64_t row) {
  const char* base = static_cast<const char*>(tensor.data);
  return {base + row * tensor.row_stride * SizeBytes(tensor.dtype), tensor.dtype, tensor.vocab_size,
          tensor.rules};
}

}  // namespace specd
