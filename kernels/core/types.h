// TokenId, DType and the views describe rows and tensors for every folder.
//
// Plain data, standard library only. A view owns nothing: its maker is responsible for the memory
// and for the bounds (ipc/memory/region.h checks outside numbers once).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/check.h"

namespace specd {

using TokenId = int32_t;

// Marks the end of a draft: no token was drawn here. Any other id outside the vocabulary ends the
// draft too; a drafter with a wider vocabulary drew it.
inline constexpr TokenId kNoToken = -1;

// Whether the id may be verified. An id outside the vocabulary ends the draft (CONTRACT §2).
SPECD_INLINE constexpr bool IsInVocabulary(TokenId id, int32_t vocab_size) {
  return id >= 0 && id < vocab_size;
}

// The largest vocabulary. Tile counts, integer masses and counters then fit their words.
inline constexpr int32_t kVocabSizeMax = 1 << 20;

// The verification methods of CONTRACT §5. Values are on the wire.
enum class VerifyMethod : uint32_t {
  kAuto = 0,
  kGreedy = 1,
  kExactMatch = 2,
  kToken = 3,
  kBlock = 4,
  kTree = 5,
  kTraversal = 6,
  kTargetOnly = 7,
  // These change the law of the output.
  kTypical = 8,
  kRelaxed = 9,
  kThreshold = 10,
  kSynthetic = 11,
};
inline constexpr VerifyMethod kLastMethod = VerifyMethod::kSynthetic;

SPECD_INLINE constexpr bool IsLossy(VerifyMethod method) {
  return method >= VerifyMethod::kTypical && method <= VerifyMethod::kSynthetic;
}

// The generator that a token drawn from p comes from (CONTRACT §4). kSglang: the Gumbel noise of
// SGLang's deterministic mode.
enum class Rng : uint32_t { kPhilox = 0, kSglang = 1 };

// Whether the method looks at the rows that draft tokens were drawn from.
SPECD_INLINE constexpr bool ReadsDraftRows(VerifyMethod method) {
  return method == VerifyMethod::kToken || method == VerifyMethod::kBlock ||
         method == VerifyMethod::kTree || method == VerifyMethod::kTraversal;
}

enum class DType : uint32_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

SPECD_INLINE constexpr int64_t SizeBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// The kind of the elements of a row (CONTRACT §2).
enum class RowKind : uint32_t {
  kLogits = 0,
  kProbabilities = 1,       // p enters as ln p and takes the same steps as a logit
  kFinalProbabilities = 2,  // p is sampled from as it is; no parameter may change it
};

// The processor that can use the memory of a view. kHost: the CPU. kDevice: the device that runs
// rounds (Backend::device_uuid). kOtherDevice: another device. Rounds can only copy to that device,
// so rows never lie there.
enum class MemorySpace : uint32_t { kHost = 0, kDevice = 1, kOtherDevice = 2 };

// The rules for reading the elements of a tensor.
struct ElementRules {
  RowKind kind = RowKind::kLogits;
  bool renormalise = false;  // probabilities need not sum to 1
  float scale = 1;           // logits are multiplied by it first
  float cap = 0;             // then logits become cap * tanh(x / cap); 0: no cap
};

// A matrix of rows in memory; the innermost stride is 1 element. Offsets are 64-bit: a batch of
// 2,048 rows of 2^20 floats is past 2^32 bytes. Narrow rows (CONTRACT §2) have fewer elements than
// the vocabulary has ids, and at least two: columns[id] is the element of an id, or -1 if it has
// none.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t num_rows = 0;
  int64_t row_stride = 0;  // in elements
  int32_t vocab_size = 0;
  ElementRules rules;
  MemorySpace space = MemorySpace::kHost;
  // Where rounds read it (Backend::KeepColumns); null: element i belongs to id i.
  const int32_t* columns = nullptr;
  int32_t num_columns = 0;  // the elements of a row, if `columns` is set
};

// One row of a TensorView.
struct RowView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int32_t vocab_size = 0;
  ElementRules rules;
  const int32_t* columns = nullptr;
};

// The elements of one row in memory.
SPECD_INLINE constexpr int32_t NumElements(const TensorView& tensor) {
  return tensor.columns == nullptr ? tensor.vocab_size : tensor.num_columns;
}

// Rows of bits, one bit for each id: bit i % 32 of word i / 32 is 1 if id i is allowed. A row has
// ceil(vocab_size / 32) words.
struct MaskView {
  const uint32_t* words = nullptr;
  int64_t num_rows = 0;
  int64_t row_stride = 0;  // in words
  MemorySpace space = MemorySpace::kHost;
};

// One row of ids for each slot, read by rounds: draft tokens in the memory of their drafter.
struct TokenRows {
  const TokenId* ids = nullptr;
  int64_t row_stride = 0;  // in ids
  MemorySpace space = MemorySpace::kHost;
};

// A copy of the first ids at one slot of TokenRows.
struct TokenRowRead {
  uint32_t slot = 0;
  int32_t num_ids = 0;
  TokenId* to = nullptr;
};

// A copy from memory that rounds read.
struct MemoryRead {
  const void* from = nullptr;
  void* to = nullptr;
  size_t size_bytes = 0;
};

// Why a row, or the side channel in its place, is no distribution (CONTRACT §6).
enum class RowFault : int32_t {
  kNone = 0,
  kNan = 1,      // it holds NaN; a negative probability counts as NaN
  kNoMass = 2,   // nothing is above -inf after masks, bans and biases
  kSum = 3,      // its probabilities do not sum to 1
  kShare = 4,    // the weight or the mass of a side channel is out of range
  kChanged = 5,  // it changed while it was read
};

SPECD_INLINE RowView RowAt(const TensorView& tensor, int64_t row) {
  const char* base = static_cast<const char*>(tensor.data);
  return {base + row * tensor.row_stride * SizeBytes(tensor.dtype), tensor.dtype, tensor.vocab_size,
          tensor.rules, tensor.columns};
}

}  // namespace specd
