// SlotOutput describes an array that has a row for each slot, where rounds leave what the
// sequences' next forwards read.
//
// WriteSlotRow writes the row of one sequence for kernels and for the host. A view owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/check.h"
#include "kernels/core/types.h"

namespace specd {

// The content of a row. Tokens are the kept tokens of the round; nodes are those of its draft.
enum class SlotField : uint32_t {
  kNextToken = 0,     // the last token
  kKeptTokens = 1,    // all tokens, then -1
  kNumKept = 2,       // the number of tokens
  kNumAccepted = 3,   // the number of accepted nodes
  kTotalKept = 4,     // the tokens of the sequence after the round
  kAcceptedPath = 5,  // the draft's accepted nodes, 0 .. num_nodes - 1, then -1
  // SGLang's layout, where the kept tokens are node 0 and node i of the draft is node i + 1.
  kPredicts = 6,     // entry n is the token that follows node n; -1 where none was kept
  kAcceptIndex = 7,  // entries of kPredicts, counted from slot 0 on: node 0, the path, then -1
};
inline constexpr uint32_t kNumSlotFields = 8;

struct SlotOutput {
  void* data = nullptr;  // null: not bound
  MemorySpace space = MemorySpace::kHost;
  SlotField field = SlotField::kNextToken;
  bool is_wide = false;    // the elements are int64; false: int32
  int32_t row_length = 1;  // elements of a row; a round writes each of them
  int64_t row_stride = 1;  // in elements
  int32_t num_nodes = 0;   // kAcceptIndex: the nodes of a slot in kPredicts
};

SPECD_INLINE constexpr int64_t ElementBytes(const SlotOutput& output) {
  return output.is_wide ? sizeof(int64_t) : sizeof(int32_t);
}

// The address of a slot's row.
SPECD_INLINE void* RowOf(const SlotOutput& output, uint32_t slot) {
  return static_cast<char*>(output.data) + slot * output.row_stride * ElementBytes(output);
}

// The answer of a round to one sequence. REQUIRES: num_tokens > 0.
struct SlotCounts {
  uint32_t slot = 0;
  int32_t num_tokens = 0;
  int32_t num_accepted = 0;
  uint32_t total_kept = 0;
};

// Writes the row of one sequence to `row`. token(i) is token i of the round, and node(i) is
// accepted node i; a path never goes back to an earlier node.
template <typename TokenAt, typename NodeAt>
SPECD_HD void WriteSlotRow(const SlotOutput& output, const SlotCounts& counts, const TokenAt& token,
                           const NodeAt& node, void* row) {
  // The node in SGLang's numbers that token i follows.
  const auto before = [&](int32_t i) { return i == 0 ? 0 : node(i - 1) + 1; };
  int32_t next = 0;  // kPredicts: the first token that has not been written
  for (int32_t i = 0; i < output.row_length; ++i) {
    int64_t value = -1;
    switch (output.field) {
      case SlotField::kNextToken:
        value = token(counts.num_tokens - 1);
        break;
      case SlotField::kKeptTokens:
        if (i < counts.num_tokens) value = token(i);
        break;
      case SlotField::kNumKept:
        value = counts.num_tokens;
        break;
      case SlotField::kNumAccepted:
        value = counts.num_accepted;
        break;
      case SlotField::kTotalKept:
        value = counts.total_kept;
        break;
      case SlotField::kAcceptedPath:
        if (i < counts.num_accepted) value = node(i);
        break;
      case SlotField::kPredicts:
        if (next < counts.num_tokens && i == before(next)) value = token(next++);
        break;
      case SlotField::kAcceptIndex:
        if (i <= counts.num_accepted) value = int64_t{counts.slot} * output.num_nodes + before(i);
        break;
    }
    if (output.is_wide) {
      static_cast<int64_t*>(row)[i] = value;
    } else {
      static_cast<int32_t*>(row)[i] = static_cast<int32_t>(value);
    }
  }
}

}  // namespace specd
